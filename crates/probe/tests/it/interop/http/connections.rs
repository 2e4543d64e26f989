//! No request gets through, or no answer comes back whole.

use super::super::case::{Allowed, Case, Part, compare};
use super::super::exec::handlers;
use super::super::server::{Serve, Step};
use super::{SECOND, ok, send};
use evenkeel_probe::core::Port;
use std::time::Duration;

fn cases() -> Vec<Case> {
    let pause = Step::Pause(Duration::from_millis(50));
    let begun = || send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    vec![
        Case::http("refused").serve(Serve::Refusing),
        Case::http("refused, https").https().serve(Serve::Refusing),
        Case::http("refused, ::1").v6().serve(Serve::RefusingV6),
        Case::http("refused, path, query and fragment")
            .get(|get| "/a?b=c d#f".clone_into(&mut get.path))
            .serve(Serve::Refusing),
        Case::http("localhost refuses")
            .get(|get| get.host = Some("localhost".to_owned()))
            .serve(Serve::Refusing),
        Case::http("name that cannot be known, so that nobody is asked").get(|get| {
            get.host = Some(format!("{}.invalid", "a".repeat(64)));
            get.port = Port::Number(80);
        }),
        Case::http("host with a space")
            .get(|get| get.host = Some("a b".to_owned()))
            .serve(Serve::Refusing),
        Case::http("host in brackets")
            .get(|get| get.host = Some("[::1]".to_owned()))
            .serve(Serve::RefusingV6),
        Case::http("host with a slash")
            .get(|get| get.host = Some("a/b".to_owned()))
            .serve(Serve::Refusing),
        Case::http("no address").address(None).serve(Serve::Refusing),
        Case::http("dial without an answer")
            .within(SECOND)
            .serve(Serve::Silent),
        Case::http("https dial without an answer")
            .https()
            .within(SECOND)
            .serve(Serve::Silent),
        Case::http("no answer")
            .within(SECOND)
            .script(vec![Step::Head, Step::Stall]),
        Case::http("stalls in the headers").within(SECOND).script(vec![
            Step::Head,
            send("HTTP/1.1 200 OK\r\nX"),
            Step::Stall,
        ]),
        Case::http("stalls in the body")
            .within(SECOND)
            .script(vec![Step::Head, begun(), Step::Stall]),
        Case::http("stalls in the body of a 500")
            .within(SECOND)
            .script(vec![
                Step::Head,
                send("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nabc"),
                Step::Stall,
            ]),
        Case::http("stalls after the most that is read")
            .within(SECOND)
            .script(vec![
                Step::Head,
                send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{}",
                    "a".repeat(10240)
                )),
                Step::Stall,
            ]),
        Case::http("closes at once").script(vec![]),
        Case::http("closes before the status line").replies(""),
        Case::http("closes in the status line").replies("HTTP/1.1 2"),
        Case::http("closes in a header").replies("HTTP/1.1 200 OK\r\nX: y"),
        Case::http("closes between headers").replies("HTTP/1.1 200 OK\r\nX: y\r\n"),
        Case::http("closes in the body").script(vec![Step::Head, begun()]),
        Case::http("closes in the body of a 500").replies("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nabc"),
        Case::http("closes in a chunk")
            .replies("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
        Case::http("closes after the most that is read").replies(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{}",
            "a".repeat(10241)
        )),
        Case::http("reset after the request").script(vec![Step::Head, Step::Reset]),
        Case::http("reset in the body").script(vec![
            Step::Head,
            begun(),
            Step::Pause(Duration::from_millis(300)),
            Step::Reset,
        ]),
        Case::http("slow but in time").script(vec![
            Step::Head,
            send("HTTP/1.1 2"),
            pause.clone(),
            send("00 OK\r\nContent-"),
            pause.clone(),
            send("Length: 2\r\n\r"),
            pause,
            send("\nok"),
        ]),
        Case::http("on ::1").v6().serve(Serve::V6(vec![ok()])),
        Case::http("by name")
            .get(|get| get.host = Some("localhost".to_owned()))
            .script(ok()),
    ]
}

const ALLOWED: &[Allowed] = &[Allowed::new(
    "no address",
    Part::Text,
    "Go dials the machine itself, whose answer says nothing about the pod; ours asks nobody",
)];

#[tokio::test]
async fn http_connections_end_as_with_the_kubelet() {
    compare(
        "http_connections_end_as_with_the_kubelet",
        handlers(),
        cases(),
        ALLOWED,
    )
    .await;
}
