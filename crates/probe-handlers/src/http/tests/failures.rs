//! No answer, or half of one, told in the words of a kubelet's events.

use super::server::{After, SHORT, ask, closed, listen, scripted};
use crate::{Outcome, Verdict};
use rstest::rstest;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

const BROKEN: &str = "net/http: HTTP/1.x transport connection broken: ";

#[rstest]
#[case::nothing("", After::Close, "EOF")]
#[case::garbage("garbage", After::Close, "*malformed HTTP response \"garbage\"")]
#[case::garbage_line("garbage\r\n", After::Stall, "*malformed HTTP response \"garbage\"")]
#[case::escapes(
    "gar\"b\u{1}ä\r\n",
    After::Stall,
    "*malformed HTTP response \"gar\\\"b\\x01ä\""
)]
#[case::ssh(
    "SSH-2.0-OpenSSH\r\n",
    After::Stall,
    "*malformed HTTP response \"SSH-2.0-OpenSSH\""
)]
#[case::half_a_status("HTTP/1.1 20", After::Close, "*malformed HTTP status code \"20\"")]
#[case::half_a_head("HTTP/1.1 200 OK\r\nA: b", After::Close, "*unexpected EOF")]
#[case::half_a_name("HTTP/1.1 200 OK\r\nAb", After::Close, "*unexpected EOF")]
#[case::no_number("HTTP/1.1 abc\r\n\r\n", After::Close, "*malformed HTTP status code \"abc\"")]
#[case::long_number(
    "HTTP/1.1 2000 x\r\n\r\n",
    After::Close,
    "*malformed HTTP status code \"2000\""
)]
#[case::no_status("HTTP/1.1\r\n\r\n", After::Close, "*malformed HTTP response \"HTTP/1.1\"")]
#[case::odd_version("HTTP/9 200 OK\r\n\r\n", After::Close, "*malformed HTTP version \"HTTP/9\"")]
#[case::no_header(
    "HTTP/1.1 200 OK\r\nbad line\r\n\r\n",
    After::Close,
    "*malformed MIME header: missing colon: \"bad line\""
)]
#[case::bad_length(
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    After::Close,
    "*bad Content-Length"
)]
#[case::negative_length(
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    After::Close,
    "*bad Content-Length"
)]
#[tokio::test]
async fn an_answer_that_is_none_is_a_failure(#[case] answer: &str, #[case] after: After, #[case] why: &str) {
    let (address, _) = scripted(answer, after).await;
    let why = why.replace('*', BROKEN);
    assert_eq!(
        ask(address, "/").go().await,
        Outcome::failure(format!("Get \"http://{address}/\": {why}"))
    );
}

#[rstest]
#[case::cut("Content-Length: 10\r\n\r\nabc", After::Close, "unexpected EOF")]
#[case::stalled(
    "Content-Length: 10\r\n\r\nabc",
    After::Stall,
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
)]
#[case::chunk_size(
    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    After::Close,
    "invalid byte in chunk length"
)]
#[case::huge_chunk(
    "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    After::Close,
    "http chunk length too large"
)]
#[case::cut_chunk("Transfer-Encoding: chunked\r\n\r\n5\r\nab", After::Close, "unexpected EOF")]
#[case::bad_chunk(
    "Transfer-Encoding: chunked\r\n\r\n2\r\nabXX",
    After::Close,
    "malformed chunked encoding"
)]
#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_to_a_kubelet_and_a_failure_in_strict_mode(
    #[case] rest: &str,
    #[case] after: After,
    #[case] why: &str,
    #[values(200, 302, 500)] status: u16,
) {
    let (address, _) = scripted(format!("HTTP/1.1 {status} x\r\n{rest}"), after).await;
    let timeout = if after == After::Stall {
        SHORT
    } else {
        super::server::DEADLINE
    };
    let probe = ask(address, "/").within(timeout);
    assert_eq!(probe.clone().go().await, Outcome::error(Verdict::Failure, why));
    assert_eq!(
        probe.strict().go().await,
        Outcome::failure(format!("Get \"http://{address}/\": {why}"))
    );
}

#[tokio::test]
async fn a_reset_names_both_ends() {
    for (answer, body) in [
        ("", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true),
    ] {
        let (address, _) = scripted(answer, After::Reset).await;
        let outcome = ask(address, "/").go().await;
        let text = if body {
            outcome.error.clone().unwrap()
        } else {
            outcome.output.clone()
        };
        assert!(text.contains("read tcp 127.0.0.1:"), "{outcome:?}");
        assert!(
            text.ends_with(&format!("->{address}: read: connection reset by peer")),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_closed_at_once_is_an_end() {
    let address = listen("127.0.0.1:0", |mut stream| async move {
        let mut request = [0; 1000];
        let _ = stream.read(&mut request).await;
    })
    .await;
    assert_eq!(
        ask(address, "/").go().await.output,
        format!("Get \"http://{address}/\": EOF")
    );
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let address = closed().await;
    assert_eq!(
        ask(address, "/healthz?a").go().await,
        Outcome::failure(format!(
            "Get \"http://{address}/healthz?a\": dial tcp {address}: connect: connection refused"
        ))
    );
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_a_failure() {
    let outcome = ask("127.0.0.1:9".parse().unwrap(), "/")
        .host("a b.invalid")
        .go()
        .await;
    assert_eq!(
        outcome.error.unwrap(),
        "parse \"http://a%20b.invalid:9/\": invalid URL escape \"%20\""
    );
    let outcome = ask("127.0.0.1:9".parse().unwrap(), "/")
        .host("nosuch.invalid")
        .go()
        .await;
    let text = outcome.output;
    assert!(
        text.starts_with("Get \"http://nosuch.invalid:9/\": dial tcp: lookup nosuch.invalid: "),
        "{text}"
    );
}

#[tokio::test]
async fn without_an_address_nobody_is_asked() {
    let mut probe = ask("127.0.0.1:9".parse().unwrap(), "/");
    probe.address = None;
    assert_eq!(
        probe.go().await,
        Outcome::failure("Get \"http://:9/\": dial tcp :9: the pod has no address yet")
    );
}

#[rstest]
#[case::name("Bad Name", "x", "net/http: invalid header field name \"Bad Name\"")]
#[case::value("X", "a\r\nInjected: y", "net/http: invalid header field value for \"X\"")]
#[tokio::test]
async fn nothing_is_sent_with_a_bad_header(#[case] name: &str, #[case] value: &str, #[case] why: &str) {
    let (address, heads) = scripted("HTTP/1.1 200 OK\r\n\r\n", After::Close).await;
    let outcome = ask(address, "/").header(name, value).go().await;
    assert_eq!(
        outcome,
        Outcome::failure(format!("Get \"http://{address}/\": {why}"))
    );
    assert!(heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_path_with_a_line_break_stays_one_line() {
    let (address, heads) = scripted("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", After::Close).await;
    assert_eq!(ask(address, "/a\r\nInjected: y").go().await, Outcome::success(""));
    let heads = heads.lock().unwrap();
    assert!(
        heads[0].starts_with("GET /a%0D%0AInjected:%20y HTTP/1.1\r\n"),
        "{heads:?}"
    );
    assert!(!heads[0].contains("\nInjected"), "{heads:?}");
}

#[tokio::test]
async fn an_opaque_url_has_no_host() {
    let address = closed().await;
    assert_eq!(
        ask(address, "foo:bar").go().await,
        Outcome::failure("Get \"http:bar\": http: no Host in request URL")
    );
}

#[tokio::test]
async fn a_timeout_of_nothing_and_one_of_ages_are_timeouts_too() {
    let (address, _) = scripted("", After::Stall).await;
    let outcome = ask(address, "/").within(Duration::from_nanos(1)).go().await;
    assert!(outcome.output.contains("Client.Timeout exceeded"), "{outcome:?}");
    let (address, _) = scripted("HTTP/1.1 200 OK\r\n\r\n", After::Close).await;
    assert_eq!(
        ask(address, "/").within(Duration::MAX).go().await,
        Outcome::success("")
    );
}
