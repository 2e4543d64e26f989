//! What is, and what is not, an answer.

use super::super::case::{Allowed, Case, Part, compare};
use super::super::exec::handlers;
use super::answer;

fn cases() -> Vec<Case> {
    let rows: [(&str, &str); 51] = [
        ("200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("404", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
        (
            "500",
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno",
        ),
        ("status 600", "HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n"),
        ("status 999", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n"),
        ("status -1", "HTTP/1.1 -1 X\r\n\r\n"),
        ("status 99", "HTTP/1.1 99 X\r\n\r\n"),
        ("status 0200", "HTTP/1.1 0200 X\r\n\r\n"),
        ("status abc", "HTTP/1.1 abc X\r\n\r\n"),
        ("status 2e2", "HTTP/1.1 2e2 X\r\n\r\n"),
        ("status 000", "HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n"),
        ("204", "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "204 with a body",
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        ),
        ("304", "HTTP/1.1 304 Not Modified\r\n\r\n"),
        (
            "304 with a body",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "100 then 200",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "103 then 200",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "101",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        ),
        ("no reason", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na"),
        ("only line feeds", "HTTP/1.1 200 OK\nContent-Length: 1\n\na"),
        ("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nold"),
        ("HTTP/9.9", "HTTP/9.9 200 OK\r\n\r\n"),
        ("HTTP/2.0 in the clear", "HTTP/2.0 200 OK\r\n\r\n"),
        ("HTTP/x", "HTTP/x 200 OK\r\n\r\n"),
        ("garbage", "garbage\r\n\r\n"),
        ("garbage without an end", "garbage"),
        ("garbage of words", "a b c d\r\n\r\n"),
        ("control bytes", "\u{0}\u{1}\u{2}\r\n\r\n"),
        ("empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n"),
        ("status line only", "HTTP/1.1 200 OK\r\n\r\n"),
        (
            "folded header",
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na",
        ),
        ("first header folded", "HTTP/1.1 200 OK\r\n b: c\r\n\r\n"),
        ("header without a colon", "HTTP/1.1 200 OK\r\nnocolon\r\n\r\n"),
        (
            "space before the colon",
            "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "bad header name",
            "HTTP/1.1 200 OK\r\nA@{: b\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "empty header name",
            "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "bad header value",
            "HTTP/1.1 200 OK\r\nA: b\u{1}c\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "header beyond ASCII",
            "HTTP/1.1 200 OK\r\nA: é\r\nContent-Length: 1\r\n\r\na",
        ),
        ("bad length", "HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n"),
        ("negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        ("empty length", "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nab"),
        (
            "huge length",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nab",
        ),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "two equal lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "unknown transfer coding",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
        ),
        (
            "two transfer codings",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "length and chunks",
            "HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        (
            "chunks and a trailer",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: v\r\n\r\n",
        ),
        (
            "bad chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        ),
        (
            "chunk extension",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n0\r\n\r\n",
        ),
        (
            "more than the length",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabcdef",
        ),
    ];
    let mut cases: Vec<Case> = rows
        .into_iter()
        .map(|(name, reply)| Case::http(name).replies(reply))
        .collect();
    for size in [10_239, 10_240, 10_241, 100_000] {
        cases.push(Case::http(format!("body of {size}")).replies(answer("200 OK", "", &"a".repeat(size))));
    }
    cases.extend([
        Case::http("cut within a character")
            .replies(format!("HTTP/1.1 200 OK\r\n\r\n{}éx", "a".repeat(10_239))),
        Case::http("body that is not UTF-8")
            .replies(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\xff\xfe\xe2".to_vec()),
        Case::http("gzip").replies(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
                .to_vec(),
        ),
        Case::http("header of 1 MiB").replies(answer(
            "200 OK",
            &format!("X: {}\r\n", "a".repeat(1 << 20)),
            "a",
        )),
        Case::http("header of 11 MiB").replies(answer(
            "200 OK",
            &format!("X: {}\r\n", "a".repeat(11 << 20)),
            "a",
        )),
        Case::http("5000 headers").replies(answer("200 OK", &"X: a\r\n".repeat(5000), "a")),
        Case::http("six interim answers").replies(format!(
            "{}{}",
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(6),
            answer("200 OK", "", "a")
        )),
    ]);
    cases
}

const PARSER: &str = "the parser takes HTTP/1.0 and 1.1 and statuses from 100 alone, and blank lines before; nobody serves the like";
const LIMIT: &str =
    "64 KiB and 256 lines of headers are read, where Go reads 10 MiB: a probe's memory is bounded";
const LENGTH: &str = "the parser keeps no text of a length that it refuses";

const ALLOWED: &[Allowed] = &[
    Allowed::new("status 000", Part::Text, PARSER),
    Allowed::new("HTTP/9.9", Part::Verdict, PARSER),
    Allowed::new("HTTP/9.9", Part::Text, PARSER),
    Allowed::new("HTTP/2.0 in the clear", Part::Verdict, PARSER),
    Allowed::new("HTTP/2.0 in the clear", Part::Text, PARSER),
    Allowed::new("empty line first", Part::Verdict, PARSER),
    Allowed::new("empty line first", Part::Text, PARSER),
    Allowed::new("bad length", Part::Text, LENGTH),
    Allowed::new("negative length", Part::Text, LENGTH),
    Allowed::new("empty length", Part::Text, LENGTH),
    Allowed::new("huge length", Part::Text, LENGTH),
    Allowed::new("two lengths", Part::Text, LENGTH),
    Allowed::new(
        "cut within a character",
        Part::Text,
        "half a character is left out; Go's JSON makes a replacement of it",
    ),
    Allowed::new("header of 1 MiB", Part::Verdict, LIMIT),
    Allowed::new("header of 1 MiB", Part::Text, LIMIT),
    Allowed::new("5000 headers", Part::Verdict, LIMIT),
    Allowed::new("5000 headers", Part::Text, LIMIT),
    Allowed::new("header of 11 MiB", Part::Text, LIMIT),
];

#[tokio::test]
async fn http_answers_are_read_as_by_the_kubelet() {
    compare(
        "http_answers_are_read_as_by_the_kubelet",
        handlers(),
        cases(),
        ALLOWED,
    )
    .await;
}
