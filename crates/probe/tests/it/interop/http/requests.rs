//! HTTP: what is sent.

use super::super::case::{Allowed, Case, Part, compare};
use super::super::exec::handlers;

fn cases() -> Vec<Case> {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut cases = Vec::new();
    let rows: &[(&str, &[(&str, &str)])] = &[
        ("none", &[]),
        ("one", &[("X-Muffins-Or-Cupcakes", "muffins")]),
        (
            "sorted",
            &[("Zz", "1"), ("Aa", "2"), ("Mm", "3"), ("cOOkie", "x=1")],
        ),
        ("repeated", &[("X-a", "1"), ("x-A", "2"), ("B", "")]),
        ("user agent", &[("User-Agent", "foo/1.0")]),
        ("user agent in small letters", &[("user-agent", "foo/1.0")]),
        ("two user agents", &[("User-Agent", "foo"), ("User-Agent", "bar")]),
        ("empty user agent", &[("User-Agent", "")]),
        ("accept", &[("Accept", "text/html")]),
        ("empty accept", &[("Accept", "")]),
        ("empty accept, then another", &[("Accept", ""), ("Accept", "a/b")]),
        (
            "empty accept and a user agent",
            &[("Accept", ""), ("User-Agent", "foo")],
        ),
        ("host", &[("Host", "example.com")]),
        ("host in small letters", &[("host", "example.com:8080")]),
        ("two hosts", &[("Host", "a"), ("host", "b")]),
        ("empty host", &[("Host", "")]),
        ("host with a space", &[("Host", "a b")]),
        ("host with a slash", &[("Host", "a/b")]),
        ("host beyond ASCII", &[("Host", "é.de")]),
        ("encoding", &[("Accept-Encoding", "gzip")]),
        ("encoding foo", &[("Accept-Encoding", "foo")]),
        ("empty encoding", &[("Accept-Encoding", "")]),
        ("connection", &[("Connection", "keep-alive")]),
        ("connection close", &[("Connection", "close")]),
        ("upgrade", &[("Connection", "Upgrade"), ("Upgrade", "websocket")]),
        ("length", &[("Content-Length", "5")]),
        ("transfer coding", &[("Transfer-Encoding", "chunked")]),
        ("trailer", &[("Trailer", "x")]),
        ("te", &[("TE", "trailers")]),
        ("keep-alive", &[("Keep-Alive", "5"), ("Proxy-Connection", "x")]),
        ("authorization", &[("Authorization", "Basic xyz")]),
        ("referer", &[("Referer", "z")]),
        ("odd name", &[("x_y.z!", "1")]),
        ("name with digits", &[("x-1a-B", "1")]),
        ("tab", &[("A", "b\tc")]),
        ("beyond ASCII", &[("A", "é")]),
        ("spaces around", &[("A", "  b  ")]),
        ("name with a space", &[("A b", "c")]),
        ("empty name", &[("", "c")]),
        ("name beyond ASCII", &[("é", "2")]),
        ("line feed", &[("A", "b\nc")]),
        ("carriage return", &[("A", "b\rc")]),
        ("control byte", &[("A", "b\u{1}")]),
        ("delete byte", &[("A", "b\u{7f}")]),
    ];
    for (name, headers) in rows {
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let case = Case::http(format!("headers: {name}"));
        cases.push(case.get(|get| get.headers = headers).replies(reply));
    }
    for path in [
        "",
        "/",
        "a",
        "/a b",
        "/a?b c",
        "/a#fragment",
        "?q",
        "?",
        "/?",
        "/a?",
        "//",
        "//x/y",
        "///a",
        "http://other/",
        "/%zz",
        "/a?b=%zz",
        "/%2f%41",
        "/%C3%A9",
        "/é",
        "/a?é",
        "/a\u{1}",
        "/a?\u{1}",
        "/a\u{7f}",
        "*",
        "/./../a",
        ":80",
        ":80/%zz",
        "a:b/c",
        "mailto:x",
        "/\"<>\\^`{|}",
        "/a?\"<>\\^`{|}",
        "/!$&'()*+,;=:@",
        "/a;b",
        "/[x]",
        "//user:pw@host/x",
        "/a?b?c",
        "/a#b#c",
        "/a%23b",
        "/a+b",
        "/~a",
        "/a//b/",
        "/%",
        "/%4",
        "/a?b#%zz",
    ] {
        let case = Case::http(format!("path {path:?}"));
        cases.push(case.get(|get| path.clone_into(&mut get.path)).replies(reply));
    }
    cases.push(
        Case::http("an IPv6 address in the host header")
            .v6()
            .serve(super::super::server::Serve::V6(vec![vec![
                super::super::server::Step::Head,
                super::super::server::Step::Send(reply.into()),
            ]])),
    );
    cases
}

const ALLOWED: &[Allowed] = &[
    Allowed::new(
        "headers: host beyond ASCII",
        Part::Request,
        "such a host is left out instead of put into punycode; a manifest can say that itself",
    ),
    Allowed::new(
        "path \"/a?b c\"",
        Part::Request,
        "Go sends the query as it is written, and so what is no request line; ours escapes it",
    ),
    Allowed::new(
        "path \"/a?é\"",
        Part::Request,
        "Go sends the query as it is written, and so what is no request line; ours escapes it",
    ),
    Allowed::new(
        "path \"/a?\\\"<>\\\\^`{|}\"",
        Part::Request,
        "Go sends the query as it is written, and so what is no request line; ours escapes it",
    ),
    Allowed::new(
        "path \"//user:pw@host/x\"",
        Part::Request,
        "credentials in a path or a location are not sent: headers are the place for them",
    ),
];

#[tokio::test]
async fn requests_are_those_of_the_kubelet() {
    compare("requests_are_those_of_the_kubelet", handlers(), cases(), ALLOWED).await;
}
