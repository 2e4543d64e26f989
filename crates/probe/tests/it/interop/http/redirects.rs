//! Answers that send on.

use super::super::case::{Allowed, Case, Part, compare};
use super::super::exec::handlers;
use super::super::server::{Serve, Step};
use super::super::tls::Certificate;
use super::{SECOND, answer, ok, send};

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let moved = |status: u16, location: &str| {
        send(answer(
            &format!("{status} X"),
            &format!("Location: {location}\r\n"),
            "body",
        ))
    };
    for status in [300, 301, 302, 303, 304, 305, 306, 307, 308, 399] {
        let local = vec![vec![Step::Head, moved(status, "/new")], ok()];
        let broken = vec![
            vec![Step::Head, moved(status, "/new")],
            vec![Step::Head, send(answer("500 X", "", "no"))],
        ];
        cases.extend([
            Case::http(format!("{status} local")).serve(Serve::Scripts(local)),
            Case::http(format!("{status} to a failure")).serve(Serve::Scripts(broken)),
            Case::http(format!("{status} foreign"))
                .script(vec![Step::Head, moved(status, "http://foreign.invalid/")]),
            Case::http(format!("{status} without a location")).replies(answer(
                &format!("{status} X"),
                "",
                "body",
            )),
            Case::http(format!("{status} without a body")).replies(answer(&format!("{status} X"), "", "")),
        ]);
    }
    let locations = [
        "",
        "?q=1",
        "#fragment",
        "new",
        "./a/../b",
        "a b",
        "é",
        "//127.0.0.1:{1}/x",
        "http://127.0.0.1:{1}/x",
        "HTTP://127.0.0.1:{1}",
        "ftp://127.0.0.1:{1}/x",
        "http://user:pw@127.0.0.1:{1}/",
        "http://0.0.0.0:{1}/",
        "http://localhost:{1}/",
        "http://127.0.0.1./",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:abc/",
        "http://127.0.0.1:/",
        "http://[::1",
        "%zz",
        ":x",
        "mailto:x",
        "javascript:1",
        "http:///x",
        "http://[::1]:{1}/",
        "/a%2fb?x=%zz",
        "/path#fragment",
        "/\"<>^`{|}",
    ];
    for location in locations {
        let first = vec![vec![Step::Head, moved(302, location)], ok()];
        let case = Case::http(format!("location {location:?}"));
        // Without a port in the location, the default one.
        cases.push(case.serve(Serve::Scripts(first)).script(ok()));
    }
    let chain = |length: usize| {
        let mut scripts: Vec<Vec<Step>> = (0..length)
            .map(|n| vec![Step::Head, moved(302, &format!("/{n}"))])
            .collect();
        scripts.push(ok());
        Serve::Scripts(scripts)
    };
    cases.extend([
        Case::http("loop").script(vec![Step::Head, moved(302, "/again")]),
        Case::http("9 redirects").serve(chain(9)),
        Case::http("10 redirects").serve(chain(10)),
        Case::http("to a port that refuses")
            .script(vec![Step::Head, moved(302, "http://127.0.0.1:{1}/x")])
            .serve(Serve::Refusing),
        Case::http("to a failing port")
            .script(vec![Step::Head, moved(302, "http://127.0.0.1:{1}/x")])
            .replies(answer("500 X", "", "no")),
        Case::http("to https")
            .script(vec![Step::Head, moved(302, "https://127.0.0.1:{1}/x")])
            .script([vec![Step::Tls(Certificate::SelfSigned)], ok()].concat()),
        Case::http("from https")
            .https()
            .script(vec![
                Step::Tls(Certificate::SelfSigned),
                Step::Head,
                moved(302, "http://127.0.0.1:{1}/x"),
            ])
            .script(ok()),
        Case::http("local, then foreign").serve(Serve::Scripts(vec![
            vec![Step::Head, moved(302, "/there")],
            vec![Step::Head, moved(307, "http://foreign.invalid/")],
        ])),
        Case::http("redirects, the body stalls").serve(Serve::Scripts(vec![
            vec![
                Step::Head,
                send("HTTP/1.1 302 X\r\nLocation: /new\r\nContent-Length: 9\r\n\r\nab"),
                Step::Stall,
            ],
            ok(),
        ])),
        Case::http("redirects, then stalls")
            .within(SECOND)
            .serve(Serve::Scripts(vec![
                vec![Step::Head, moved(302, "/new")],
                vec![Step::Head, Step::Stall],
            ])),
        Case::http("two locations").serve(Serve::Scripts(vec![
            vec![
                Step::Head,
                send(answer("302 X", "Location: /one\r\nLocation: /two\r\n", "")),
            ],
            ok(),
        ])),
        Case::http("cookies are not kept").serve(Serve::Scripts(vec![
            vec![
                Step::Head,
                send(answer("302 X", "Location: /one\r\nSet-Cookie: a=b\r\n", "")),
            ],
            ok(),
        ])),
    ]);
    for location in ["/new", "http://127.0.0.1:{0}/new", "http://127.0.0.1:{1}/new"] {
        cases.push(
            Case::http(format!("headers on the way to {location}"))
                .get(|get| {
                    get.headers = [
                        ("Host", "example.com"),
                        ("Authorization", "Basic eA=="),
                        ("Cookie", "a=b"),
                        ("X", "y"),
                    ]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .to_vec();
                })
                .serve(Serve::Scripts(vec![vec![Step::Head, moved(302, location)], ok()]))
                .script(ok()),
        );
    }
    cases
}

const ALLOWED: &[Allowed] = &[Allowed::new(
    "location \"http://user:pw@127.0.0.1:{1}/\"",
    Part::Request,
    "credentials in a path or a location are not sent: headers are the place for them",
)];

#[tokio::test]
async fn redirects_are_followed_as_by_the_kubelet() {
    compare(
        "redirects_are_followed_as_by_the_kubelet",
        handlers(),
        cases(),
        ALLOWED,
    )
    .await;
}
