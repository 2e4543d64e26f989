//! Answers that are answers.

use super::server::{After, DEADLINE, SHORT, answer, ask, listen, routed, routed_at, scripted};
use crate::{Outcome, Port, Verdict};
use rstest::rstest;

/// Upstream's rows on what reaches the server, seen by the server.
#[rstest]
#[case::three_headers(&[], "names", "Accept Connection User-Agent")]
#[case::gzip(&[("Accept-Encoding", "gzip")], "echo", "Accept-Encoding: gzip\r\n")]
#[case::foo(&[("Accept-Encoding", "foo")], "echo", "Accept-Encoding: foo\r\n")]
#[case::empty(&[("Accept-Encoding", "")], "echo", "Accept-Encoding: \r\n")]
#[case::own(&[("X-Muffins-Or-Cupcakes", "muffins")], "echo", "X-Muffins-Or-Cupcakes: muffins\r\n")]
#[case::agent(&[("User-Agent", "foo/1.0")], "echo", "User-Agent: foo/1.0\r\n")]
#[case::no_agent(&[("User-Agent", "")], "names", "Accept Connection")]
#[case::default_agent(&[], "echo", "User-Agent: kube-probe/1.36\r\n")]
#[case::accept(&[("User-Agent", "foo/1.0"), ("Accept", "text/html")], "echo", "Accept: text/html\r\n")]
#[case::accept_anything_foo(&[("Accept", "foo/*")], "echo", "Accept: foo/*\r\n")]
#[case::no_accept(&[("Accept", "")], "names", "Connection User-Agent")]
#[case::neither(&[("User-Agent", "foo/1.0"), ("Accept", "")], "names", "Connection User-Agent")]
#[case::default_accept(&[], "echo", "Accept: */*\r\n")]
#[case::host(&[("Host", "muffins.cupcakes.org")], "echo", "Host: muffins.cupcakes.org\r\n")]
#[tokio::test]
async fn the_server_sees_a_kubelets_request(
    #[case] headers: &[(&str, &str)],
    #[case] path: &str,
    #[case] expected: &str,
) {
    let address = routed(|path, request| {
        let mut names: Vec<&str> = request
            .lines()
            .skip(1)
            .filter_map(|line| Some(line.split_once(':')?.0))
            .filter(|name| *name != "Host")
            .collect();
        names.sort_unstable();
        answer(
            200,
            "",
            if path == "/names" {
                names.join(" ")
            } else {
                request.to_owned()
            }
            .as_str(),
        )
    })
    .await;
    let mut probe = ask(address, &format!("/{path}"));
    for (name, value) in headers {
        probe = probe.header(name, value);
    }
    let outcome = probe.go().await;
    assert_eq!(outcome.verdict, Verdict::Success);
    assert!(outcome.output.contains(expected), "{outcome:?}");
    assert!(path != "names" || outcome.output == expected, "{outcome:?}");
}

#[rstest]
#[case::ok(200, "ok body", Outcome::success("ok body"))]
#[case::created(201, "", Outcome::success(""))]
#[case::last_success(299, "x", Outcome::success("x"))]
#[case::not_modified(304, "", Outcome::warning("Probe terminated redirects, Response body: "))]
#[case::nowhere(
    308,
    "ok body",
    Outcome::warning("Probe terminated redirects, Response body: ok body")
)]
#[case::nowhere_empty(302, "", Outcome::warning("Probe terminated redirects, Response body: "))]
#[case::choices(300, "x", Outcome::warning("Probe terminated redirects, Response body: x"))]
#[case::bad(400, "secret", Outcome::failure("HTTP probe failed with statuscode: 400"))]
#[case::broken(500, "secret", Outcome::failure("HTTP probe failed with statuscode: 500"))]
#[case::switching(101, "", Outcome::failure("HTTP probe failed with statuscode: 101"))]
#[case::strange(999, "", Outcome::failure("HTTP probe failed with statuscode: 999"))]
#[tokio::test]
async fn a_status_is_a_verdict(#[case] status: u16, #[case] body: &'static str, #[case] expected: Outcome) {
    let address = routed(move |_, _| answer(status, "", body)).await;
    assert_eq!(ask(address, "/").go().await, expected);
}

#[rstest]
#[case::old("HTTP/1.0 200 OK\r\n\r\nuntil the end", After::Close, "until the end")]
#[case::chunked(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: x\r\n\r\n",
    After::Stall,
    "abc"
)]
#[case::no_reason("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", After::Stall, "x")]
#[case::early_hints(
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    After::Stall,
    "x"
)]
#[case::folded(
    "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
    After::Stall,
    "x"
)]
#[case::space_before_colon("HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 1\r\n\r\nx", After::Stall, "x")]
#[case::bare_newlines("HTTP/1.1 200 OK\nContent-Length: 1\n\nx", After::Stall, "x")]
#[case::keep_alive("HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", After::Stall, "")]
#[tokio::test]
async fn answers_need_not_be_pretty(#[case] answer: &str, #[case] after: After, #[case] body: &str) {
    let (address, _) = scripted(answer, after).await;
    assert_eq!(ask(address, "/").go().await, Outcome::success(body));
}

#[rstest]
#[case::below(10239, 10239)]
#[case::exact(10240, 10240)]
#[case::above(10241, 10240)]
#[case::far_above(200_000, 10240)]
#[tokio::test]
async fn ten_kibibytes_of_a_body_are_kept(#[case] sent: usize, #[case] kept: usize) {
    let address = routed(move |_, _| answer(200, "", &"a".repeat(sent))).await;
    assert_eq!(ask(address, "/").go().await, Outcome::success("a".repeat(kept)));
}

#[tokio::test]
async fn what_lies_beyond_the_limit_is_not_waited_for() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n";
    let (address, _) = scripted(format!("{head}{}", "a".repeat(10240)), After::Stall).await;
    assert_eq!(ask(address, "/").go().await, Outcome::success("a".repeat(10240)));
}

#[tokio::test]
async fn a_character_cut_in_two_and_bytes_that_are_no_text_do_no_harm() {
    let body = format!("a{}", "ä".repeat(8000));
    let address = routed(move |_, _| answer(200, "", &body)).await;
    let outcome = ask(address, "/").go().await;
    assert_eq!(outcome, Outcome::success(format!("a{}", "ä".repeat(5119))));
    let mut binary = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n".to_vec();
    binary.extend(std::iter::repeat_n(0xff, 20000));
    let (address, _) = scripted(binary, After::Stall).await;
    let outcome = ask(address, "/").go().await;
    assert_eq!(outcome.verdict, Verdict::Success);
    assert!(outcome.output.len() <= Outcome::OUTPUT && outcome.output.len() > 10000);
}

#[tokio::test]
async fn a_handler_that_sleeps_is_a_failure() {
    let address = listen("127.0.0.1:0", |stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let outcome = ask(address, "/").within(SHORT).go().await;
    let url = format!("http://{address}/");
    assert_eq!(
        outcome,
        Outcome::failure(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        ))
    );
}

#[tokio::test]
async fn a_host_of_the_manifest_takes_the_place_of_the_pods_address() {
    let address = routed(|_, request| answer(200, "", request)).await;
    let elsewhere = ask("192.0.2.1:1".parse().unwrap(), "/x");
    for host in ["127.0.0.1", "localhost"] {
        let mut probe = elsewhere.clone().host(host);
        probe.get.port = Port::Number(address.port().into());
        let outcome = probe.go().await;
        assert_eq!(outcome.verdict, Verdict::Success, "{outcome:?}");
        assert!(
            outcome
                .output
                .contains(&format!("Host: {host}:{}\r\n", address.port()))
        );
    }
}

#[tokio::test]
async fn an_ipv6_address_is_asked_in_brackets() {
    let address = routed_at("[::1]:0", |_, request| answer(200, "", request)).await;
    let outcome = ask(address, "/").go().await;
    assert!(
        outcome
            .output
            .contains(&format!("Host: [::1]:{}\r\n", address.port())),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn the_source_address_is_the_one_asked_for() {
    let address = listen("127.0.0.1:0", |mut stream| async move {
        let peer = stream.peer_addr().unwrap().ip().to_string();
        super::server::answer_by(&mut stream, &move |_: &str, _: &str| answer(200, "", &peer)).await;
    })
    .await;
    let mut probe = ask(address, "/").within(DEADLINE);
    probe.source = Some("127.0.0.9".parse().unwrap());
    assert_eq!(probe.go().await, Outcome::success("127.0.0.9"));
}

#[tokio::test]
async fn ports_are_found_by_name_and_bad_ones_are_errors() {
    let mut probe = ask("127.0.0.1:1".parse().unwrap(), "/");
    probe.get.port = Port::Name("118".into());
    let outcome = probe.clone().go().await;
    assert!(
        outcome
            .output
            .starts_with("Get \"http://127.0.0.1:118/\": dial tcp 127.0.0.1:118: "),
        "{outcome:?}"
    );
    probe.get.port = Port::Name("found".into());
    let outcome = probe.clone().go().await;
    assert!(
        outcome.output.starts_with("Get \"http://127.0.0.1:93/\": "),
        "{outcome:?}"
    );
    for (port, error) in [
        (Port::Number(-1), "invalid port number: -1"),
        (
            Port::Name(String::new()),
            "strconv.Atoi: parsing \"\": invalid syntax",
        ),
        (Port::Name("-1".into()), "invalid port number: -1"),
        (
            Port::Name("unknown".into()),
            "strconv.Atoi: parsing \"unknown\": invalid syntax",
        ),
    ] {
        probe.get.port = port;
        assert_eq!(probe.clone().go().await, Outcome::error(Verdict::Unknown, error));
    }
}
