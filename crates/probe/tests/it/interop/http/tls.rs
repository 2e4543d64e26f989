//! HTTPS.

use super::super::case::{Allowed, Case, Part, compare};
use super::super::exec::handlers;
use super::super::server::{Serve, Step};
use super::super::tls::Certificate;
use super::{SECOND, ok, send};

fn cases() -> Vec<Case> {
    let over = |certificate| [vec![Step::Tls(certificate)], ok()].concat();
    let alert = |description: u8| vec![Step::Read, send(vec![21, 3, 3, 0, 2, 2, description])];
    let mut cases = vec![
        Case::http("self-signed")
            .https()
            .script(over(Certificate::SelfSigned)),
        Case::http("expired").https().script(over(Certificate::Expired)),
        Case::http("wants a certificate")
            .https()
            .script(over(Certificate::Mutual)),
        Case::http("HTTP/2")
            .https()
            .serve(Serve::Http2(Some(Certificate::SelfSigned))),
        Case::http("HTTP/2 with headers")
            .https()
            .get(|get| {
                "/a?b=c%20d".clone_into(&mut get.path);
                get.headers = [
                    ("Host", "example.com"),
                    ("X-B", "1"),
                    ("x-b", "2"),
                    ("Accept", ""),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
            })
            .serve(Serve::Http2(Some(Certificate::SelfSigned))),
        Case::http("http to https").script(over(Certificate::SelfSigned)),
        Case::http("https to http")
            .https()
            .script(vec![Step::Read, send("HTTP/1.0 400 Bad Request\r\n\r\n")]),
        Case::http("https to garbage")
            .https()
            .script(vec![Step::Read, send("garbage garbage")]),
        Case::http("https to little garbage")
            .https()
            .script(vec![Step::Read, send("gar")]),
        Case::http("https, closes at once").https().script(vec![]),
        Case::http("https, closes at the hello")
            .https()
            .script(vec![Step::Read]),
        Case::http("https, reset at the hello")
            .https()
            .script(vec![Step::Read, Step::Reset]),
        Case::http("https, no hello")
            .https()
            .within(SECOND)
            .script(vec![Step::Read, Step::Stall]),
        Case::http("https, no answer").https().within(SECOND).script(vec![
            Step::Tls(Certificate::SelfSigned),
            Step::Head,
            Step::Stall,
        ]),
        Case::http("https, stalls in the body")
            .https()
            .within(SECOND)
            .script(vec![
                Step::Tls(Certificate::SelfSigned),
                Step::Head,
                send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
                Step::Stall,
            ]),
        Case::http("https, closes before the status line")
            .https()
            .script(vec![Step::Tls(Certificate::SelfSigned), Step::Head]),
        Case::http("https, closes in the body").https().script(vec![
            Step::Tls(Certificate::SelfSigned),
            Step::Head,
            send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        ]),
    ];
    for (name, description) in [
        ("handshake failure", 40),
        ("protocol version", 70),
        ("internal error", 80),
        ("unrecognized name", 112),
        ("no application protocol", 120),
        ("unknown", 200),
    ] {
        cases.push(
            Case::http(format!("alert: {name}"))
                .https()
                .script(alert(description)),
        );
    }
    cases
}

const ALLOWED: &[Allowed] = &[Allowed::new(
    "https to little garbage",
    Part::Text,
    "the first byte is enough to know that it is no TLS; Go waits for five",
)];

#[tokio::test]
async fn https_ends_as_with_the_kubelet() {
    compare("https_ends_as_with_the_kubelet", handlers(), cases(), ALLOWED).await;
}
