//! Redirects.

use super::server::{After, answer, ask, routed, scripted};
use crate::{Outcome, Verdict};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[rstest]
#[tokio::test]
async fn every_redirect_is_followed_by_a_get(
    #[values(301, 302, 303, 307, 308)] status: u16,
    #[values(200, 500)] then: u16,
) {
    let address = routed(move |path, request| match path {
        "/" => answer(status, "Location: /new\r\n", "moved"),
        "/new" if request.starts_with("GET ") => answer(then, "", "new"),
        _ => answer(404, "", ""),
    })
    .await;
    let expected = match then {
        200 => Outcome::success("new"),
        _ => Outcome::failure("HTTP probe failed with statuscode: 500"),
    };
    assert_eq!(ask(address, "/").go().await, expected);
}

#[rstest]
#[case::local("/success", Verdict::Success)]
#[case::local_failure("/fail", Verdict::Failure)]
#[case::relative("success", Verdict::Success)]
#[case::dots("/a/../success", Verdict::Success)]
#[case::other_port("http://127.0.0.1:OTHER/success", Verdict::Success)]
#[case::other_port_failure("http://127.0.0.1:OTHER/fail", Verdict::Failure)]
#[case::no_scheme("//127.0.0.1:OTHER/success", Verdict::Success)]
#[case::elsewhere("http://0.0.0.0/fail", Verdict::Warning)]
#[case::name_of_the_same_address("http://localhost:OTHER/success", Verdict::Warning)]
#[case::opaque("mailto:somebody", Verdict::Warning)]
#[case::looped("/redirect?loc=/redirect", Verdict::Warning)]
#[tokio::test]
async fn the_host_name_alone_decides(#[case] location: &str, #[case] expected: Verdict) {
    let route = |path: &str, _: &str| match path.split_once("?loc=") {
        Some((_, location)) => answer(302, &format!("Location: {location}\r\n"), "here"),
        None if path == "/redirect" => answer(302, "", "nowhere"),
        None if path == "/success" => answer(200, "", ""),
        None => answer(500, "", ""),
    };
    let other = routed(route).await;
    let address = routed(route).await;
    let location = location.replace("OTHER", &other.port().to_string());
    let outcome = ask(address, &format!("/redirect?loc={location}")).go().await;
    assert_eq!(outcome.verdict, expected, "{outcome:?}");
    assert_eq!(outcome.error, None);
    if location.starts_with("http://0") {
        assert_eq!(outcome.output, "Probe terminated redirects, Response body: here");
    }
}

#[rstest]
#[case::right("www.success.com", Outcome::success(""))]
#[case::wrong("www.fail.com", Outcome::failure("HTTP probe failed with statuscode: 400"))]
#[tokio::test]
async fn the_host_header_outlives_a_relative_redirect(#[case] host: &str, #[case] expected: Outcome) {
    let address = routed(|path, request| match path {
        "/redirect" => answer(302, "Location: /success\r\n", ""),
        _ if request.contains("Host: www.success.com\r\n") => answer(200, "", ""),
        _ => answer(400, "", ""),
    })
    .await;
    assert_eq!(
        ask(address, "/redirect").header("Host", host).go().await,
        expected
    );
}

#[tokio::test]
async fn the_host_header_does_not_outlive_an_absolute_one() {
    let (address, heads) = scripted(
        "HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:PORT/n\r\nContent-Length: 0\r\n\r\n",
        After::Close,
    )
    .await;
    let outcome = ask(address, "/a")
        .header("Host", "h.x")
        .header("Authorization", "q")
        .go()
        .await;
    assert_eq!(outcome.verdict, Verdict::Failure);
    let heads = heads.lock().unwrap();
    assert!(
        heads[0].contains("Host: h.x\r\n") && !heads[0].contains("Referer"),
        "{heads:?}"
    );
    assert!(heads[1].contains(&format!("Host: {address}\r\n")), "{heads:?}");
    assert!(
        heads[1].contains(&format!("Referer: http://{address}/a\r\n")),
        "{heads:?}"
    );
    assert!(heads[1].contains("Authorization: q\r\n"), "{heads:?}");
}

#[tokio::test]
async fn ten_requests_are_made_and_no_eleventh() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let chain = |last: usize, counted: Arc<AtomicUsize>| {
        move |path: &str, _: &str| {
            counted.fetch_add(1, Ordering::SeqCst);
            let step: usize = path[1..].parse().unwrap();
            match step {
                step if step == last => answer(200, "", "arrived"),
                step => answer(302, &format!("Location: /{}\r\n", step + 1), ""),
            }
        }
    };
    let address = routed(chain(10, counted)).await;
    // Nine redirects are ten requests.
    assert_eq!(ask(address, "/1").go().await, Outcome::success("arrived"));
    assert_eq!(count.swap(0, Ordering::SeqCst), 10);
    let address = routed(chain(11, count.clone())).await;
    assert_eq!(
        ask(address, "/1").go().await,
        Outcome::failure("Get \"/11\": stopped after 10 redirects")
    );
    assert_eq!(count.load(Ordering::SeqCst), 10);
}

#[rstest]
#[case::looped("/loop", "Get \"/loop\": stopped after 10 redirects")]
#[case::absolute_loop(
    "http://127.0.0.1:PORT/l?a=b",
    "Get \"http://127.0.0.1:PORT/l?a=b\": stopped after 10 redirects"
)]
#[case::bad(
    "http://[bad/",
    "Get \"http://127.0.0.1:PORT/\": failed to parse Location header \"http://[bad/\": parse \"http://[bad/\": missing ']' in host"
)]
#[case::bad_port(
    "http://127.0.0.1:x/",
    "Get \"http://127.0.0.1:PORT/\": failed to parse Location header \"http://127.0.0.1:x/\": parse \"http://127.0.0.1:x/\": invalid port \":x\" after host"
)]
#[case::no_such_port(
    "http://127.0.0.1:99999/",
    "Get \"http://127.0.0.1:99999/\": dial tcp: address 99999: invalid port"
)]
#[case::closed_port(
    "http://127.0.0.1:1/x",
    "Get \"http://127.0.0.1:1/x\": dial tcp 127.0.0.1:1: connect: connection refused"
)]
#[case::other_scheme(
    "ftp://127.0.0.1/",
    "Get \"ftp://127.0.0.1/\": unsupported protocol scheme \"ftp\""
)]
#[tokio::test]
async fn a_redirect_that_cannot_be_followed_is_a_failure_in_gos_words(
    #[case] location: &str,
    #[case] expected: &str,
) {
    let answer = format!("HTTP/1.1 302 x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    let (address, _) = scripted(answer, After::Close).await;
    let expected = expected.replace("PORT", &address.port().to_string());
    assert_eq!(ask(address, "/").go().await, Outcome::failure(expected));
}

#[tokio::test]
async fn the_time_is_for_all_requests_together() {
    let (address, _) = scripted(
        "HTTP/1.1 302 x\r\nLocation: /n\r\nContent-Length: 0\r\n\r\n",
        After::Stall,
    )
    .await;
    let slow = super::server::listen("127.0.0.1:0", move |mut stream| async move {
        tokio::time::sleep(super::server::SHORT / 2).await;
        let next = |_: &str, _: &str| answer(302, "Location: /n\r\n", "");
        super::server::answer_by(&mut stream, &next).await;
    })
    .await;
    assert_eq!(
        ask(address, "/").go().await.output,
        "Get \"/n\": stopped after 10 redirects"
    );
    let outcome = ask(slow, "/").within(super::server::SHORT).go().await;
    assert_eq!(
        outcome.output,
        format!(
            "Get \"http://{slow}/n\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )
    );
}
