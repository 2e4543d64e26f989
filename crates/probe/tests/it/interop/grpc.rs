//! gRPC health checks.

use super::case::{Allowed, Case, Part, compare};
use super::exec::handlers;
use super::h2::{frame, go_away, headers, last_data, last_headers, message, reset_stream};
use super::server::{Serve, Step};
use super::tls::Certificate;
use evenkeel_probe::core::Handler;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn grpc(name: impl Into<String>, service: &str) -> Case {
    let service = service.to_owned();
    Case::new(name, Handler::Grpc { port: 32, service })
}

/// Sends `frames` once the request is there.
fn plays(name: impl Into<String>, frames: &[Vec<u8>]) -> Case {
    let frames = Step::Send(frames.concat());
    grpc(name, "").script(vec![
        Step::H2Request,
        frames,
        Step::Pause(Duration::from_millis(200)),
    ])
}

fn begin() -> Vec<u8> {
    headers(&[(":status", "200"), ("content-type", "application/grpc")])
}

fn serving(status: u8) -> Vec<u8> {
    message(0, 2, &[8, status])
}

fn end(code: &str) -> Vec<u8> {
    last_headers(&[("grpc-status", code)])
}

/// An answer that is only headers.
fn only(status: &str, kind: Option<&str>, rest: &[(&str, &str)]) -> Vec<u8> {
    let mut list = vec![(":status", status)];
    list.extend(kind.map(|kind| ("content-type", kind)));
    list.extend(rest);
    last_headers(&list)
}

fn failed(code: &str, text: &str) -> Vec<u8> {
    only(
        "200",
        Some("application/grpc"),
        &[("grpc-status", code), ("grpc-message", text)],
    )
}

fn connections() -> Vec<Case> {
    vec![
        grpc("no address", "").address(None).within(SECOND),
        grpc("refused", "").within(SECOND).serve(Serve::Refusing),
        grpc("refused, 1.5 s", "")
            .within(Duration::from_millis(1500))
            .serve(Serve::Refusing),
        grpc("refused on ::1", "")
            .v6()
            .within(SECOND)
            .serve(Serve::RefusingV6),
        grpc("dial without an answer", "")
            .within(SECOND)
            .serve(Serve::Silent),
        grpc("no preface", "").within(SECOND).script(vec![Step::Stall]),
        grpc("HTTP/1", "")
            .within(SECOND)
            .replies("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        grpc("TLS", "")
            .within(SECOND)
            .script(vec![Step::Tls(Certificate::SelfSigned)]),
        grpc("closes at once", "").within(SECOND).script(vec![]),
        grpc("garbage", "")
            .within(SECOND)
            .script(vec![Step::Read, Step::Send(b"garbage garbage garbage".to_vec())]),
        grpc("refuses settings", "")
            .within(SECOND)
            .script(vec![Step::Read, Step::Send(go_away(0, 2, "no"))]),
        grpc("never answers", "")
            .within(SECOND)
            .script(vec![Step::H2Request, Step::Stall]),
    ]
}

fn answers() -> Vec<Case> {
    let mut cases = vec![
        grpc("healthy", "").serve(Serve::Http2(None)),
        grpc("healthy, by name", "some.Service").serve(Serve::Http2(None)),
        grpc("healthy, long name", &"s".repeat(300)).serve(Serve::Http2(None)),
        grpc("healthy on ::1", "")
            .v6()
            .serve(Serve::RefusingV6)
            .within(SECOND),
    ];
    for status in [1, 2, 3, 4, 77] {
        cases.push(plays(
            format!("status {status}"),
            &[begin(), serving(status), end("0")],
        ));
    }
    for code in 1..=17 {
        cases.push(plays(
            format!("code {code}"),
            &[failed(&code.to_string(), "what happened")],
        ));
    }
    for (status, kind) in [
        ("200", "text/html"),
        ("302", "text/html"),
        ("400", "text/html"),
        ("401", "text/html"),
        ("403", "text/html"),
        ("404", "text/plain"),
        ("429", "text/html"),
        ("500", "text/html"),
        ("502", "text/html"),
        ("503", "text/html"),
        ("504", "text/html"),
    ] {
        cases.push(plays(format!("HTTP {status}"), &[only(status, Some(kind), &[])]));
    }
    cases.extend([
        plays("empty message", &[begin(), message(0, 0, &[]), end("0")]),
        plays(
            "unknown field",
            &[begin(), message(0, 4, &[8, 1, 16, 5]), end("0")],
        ),
        plays("code 99", &[failed("99", "what happened")]),
        plays(
            "no text",
            &[only("200", Some("application/grpc"), &[("grpc-status", "5")])],
        ),
        plays("text in percent", &[failed("2", "a%20b%zz%C3%A9")]),
        plays("bad code", &[failed("abc", "what happened")]),
        plays("no kind", &[only("200", None, &[("grpc-status", "0")])]),
        plays(
            "kind with a suffix",
            &[
                headers(&[(":status", "200"), ("content-type", "application/grpc+proto")]),
                serving(1),
                end("0"),
            ],
        ),
        plays(
            "a page",
            &[
                headers(&[(":status", "200"), ("content-type", "text/html")]),
                last_data(b"<html>"),
            ],
        ),
        plays(
            "sorry",
            &[
                headers(&[(":status", "503"), ("content-type", "text/plain")]),
                last_data(b"sorry"),
            ],
        ),
        plays("no message", &[begin(), end("0")]),
        plays("only headers, and fine", &[failed("0", "")]),
        plays("no code", &[begin(), serving(1), last_headers(&[("x", "y")])]),
        plays(
            "message, then a failure",
            &[
                begin(),
                serving(1),
                last_headers(&[("grpc-status", "13"), ("grpc-message", "oops")]),
            ],
        ),
        plays("two messages", &[begin(), serving(1), serving(1), end("0")]),
        plays("bad message", &[begin(), message(0, 1, &[8]), end("0")]),
        plays("compressed message", &[begin(), message(1, 2, &[8, 1]), end("0")]),
        plays("huge message", &[begin(), message(0, u32::MAX, &[])]),
        plays(
            "end without trailers",
            &[begin(), last_data(&[0, 0, 0, 0, 2, 8, 1])],
        ),
        plays("close after the request", &[]),
        plays("close after headers", &[begin()]),
        plays("go away", &[go_away(0, 0, "")]),
        plays("go away with an error", &[go_away(1, 2, "dbg")]),
        plays("garbage frame", &[b"garbage garbage garbage garbage".to_vec()]),
        plays(
            "ping first",
            &[frame(6, 0, 0, &[0; 8]), begin(), serving(1), end("0")],
        ),
    ]);
    for code in [0, 1, 2, 3, 5, 8, 11, 12, 13, 99] {
        cases.push(plays(format!("stream reset {code}"), &[reset_stream(code)]));
    }
    cases
}

const AGENT: &str = "ours is no grpc-go, and does not say so";
const CODES: &str = "the client library knows no codes beyond 16, and takes them for 2";
const BROKEN: &str =
    "a server that breaks the protocol: the verdict is the same, the words are the libraries' own";
const TWO: &str = "the client library reads one message of a unary call and does not look for another";
const HUGE: &str = "ours reads 64 KiB of an answer that has three bytes, Go's 4 MiB";

const ANSWERS: &[Allowed] = &[
    Allowed::new("healthy", Part::Request, AGENT),
    Allowed::new("healthy, by name", Part::Request, AGENT),
    Allowed::new("healthy, long name", Part::Request, AGENT),
    Allowed::new("code 17", Part::Text, CODES),
    Allowed::new("code 99", Part::Text, CODES),
    Allowed::new("bad code", Part::Text, CODES),
    Allowed::new("no message", Part::Text, BROKEN),
    Allowed::new("only headers, and fine", Part::Text, BROKEN),
    Allowed::new("no code", Part::Text, BROKEN),
    Allowed::new("bad message", Part::Text, BROKEN),
    Allowed::new("compressed message", Part::Text, BROKEN),
    Allowed::new("end without trailers", Part::Text, BROKEN),
    Allowed::new("close after the request", Part::Text, BROKEN),
    Allowed::new("close after headers", Part::Text, BROKEN),
    Allowed::new("go away", Part::Text, BROKEN),
    Allowed::new("go away with an error", Part::Text, BROKEN),
    Allowed::new("garbage frame", Part::Text, BROKEN),
    Allowed::new("stream reset 0", Part::Text, BROKEN),
    Allowed::new("stream reset 1", Part::Text, BROKEN),
    Allowed::new("stream reset 2", Part::Text, BROKEN),
    Allowed::new("stream reset 3", Part::Text, BROKEN),
    Allowed::new("stream reset 5", Part::Text, BROKEN),
    Allowed::new("stream reset 8", Part::Text, BROKEN),
    Allowed::new("stream reset 11", Part::Text, BROKEN),
    Allowed::new("stream reset 12", Part::Text, BROKEN),
    Allowed::new("stream reset 13", Part::Text, BROKEN),
    Allowed::new("stream reset 99", Part::Text, BROKEN),
    Allowed::new("two messages", Part::Verdict, TWO),
    Allowed::new("two messages", Part::Text, TWO),
    Allowed::new("huge message", Part::Text, HUGE),
];

#[tokio::test]
async fn grpc_connections_end_as_with_the_kubelet() {
    compare(
        "grpc_connections_end_as_with_the_kubelet",
        handlers(),
        connections(),
        &[],
    )
    .await;
}

#[tokio::test]
async fn grpc_answers_are_read_as_by_the_kubelet() {
    compare(
        "grpc_answers_are_read_as_by_the_kubelet",
        handlers(),
        answers(),
        ANSWERS,
    )
    .await;
}
