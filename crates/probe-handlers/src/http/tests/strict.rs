//! What strict mode adds, and what a kubelet ignores.

use super::server::{answer, ask, routed};
use crate::Outcome;
use rstest::rstest;

#[rstest]
#[case::off(0, "HTTP probe failed with statuscode: 503")]
#[case::all(
    100,
    "HTTP probe failed with statuscode: 503, body: \"no\\ndatabase\\x1b[1m ä\""
)]
#[case::cut(4, "HTTP probe failed with statuscode: 503, body: \"no\\nd\"...")]
#[case::cut_in_a_character(
    17,
    "HTTP probe failed with statuscode: 503, body: \"no\\ndatabase\\x1b[1m \"..."
)]
#[case::boundless(
    usize::MAX,
    "HTTP probe failed with statuscode: 503, body: \"no\\ndatabase\\x1b[1m ä\""
)]
#[tokio::test]
async fn a_failure_may_show_the_beginning_of_the_body(#[case] bytes: usize, #[case] expected: &str) {
    let address = routed(|_, _| answer(503, "", "no\ndatabase\u{1b}[1m ä")).await;
    let mut probe = ask(address, "/");
    probe.extras.body_snippet = bytes;
    assert_eq!(probe.clone().strict().go().await, Outcome::failure(expected));
    let plain = Outcome::failure("HTTP probe failed with statuscode: 503");
    assert_eq!(probe.go().await, plain);
}

#[tokio::test]
async fn a_snippet_of_control_characters_stays_within_the_limit_of_outputs() {
    let address = routed(|_, _| answer(500, "", &"\u{1}".repeat(9000))).await;
    let mut probe = ask(address, "/").strict();
    probe.extras.body_snippet = 9000;
    let output = probe.go().await.output;
    assert!(
        output.len() <= Outcome::OUTPUT && output.len() > 10000,
        "{}",
        output.len()
    );
}

#[tokio::test]
async fn a_redirect_that_is_not_followed_may_be_a_failure() {
    let address = routed(|_, _| answer(302, "Location: http://192.0.2.1/\r\n", "login")).await;
    let mut probe = ask(address, "/");
    let warning = Outcome::warning("Probe terminated redirects, Response body: login");
    assert_eq!(probe.clone().strict().go().await, warning);
    probe.extras.fail_on_redirect = true;
    assert_eq!(
        probe.clone().strict().go().await,
        Outcome::failure("HTTP probe failed with statuscode: 302")
    );
    assert_eq!(probe.go().await, warning);
}
