//! TCP, and ports by number and name.

use super::case::{Allowed, Case, Part, SERVER, compare};
use super::exec::handlers;
use super::server::Serve;
use evenkeel_probe::core::{Handler, HttpGet, Port, Scheme};
use std::time::Duration;

fn tcp(name: impl Into<String>, host: Option<&str>, port: Port) -> Case {
    let host = host.map(str::to_owned);
    Case::new(name, Handler::TcpSocket { host, port })
}

fn connections() -> Vec<Case> {
    let server = Port::Number(SERVER);
    let probe = |name: &str| tcp(name, None, server.clone());
    vec![
        probe("open").script(vec![]),
        probe("open, silent").script(vec![super::server::Step::Stall]),
        probe("open on ::1").v6().serve(Serve::V6(vec![vec![]])),
        probe("refused").serve(Serve::Refusing),
        probe("refused on ::1").v6().serve(Serve::RefusingV6),
        probe("no answer")
            .within(Duration::from_secs(1))
            .serve(Serve::Silent),
        probe("no address").address(None).serve(Serve::Refusing),
        tcp("by name", Some("localhost"), server.clone()).script(vec![]),
        tcp("by name, refused", Some("localhost"), server.clone()).serve(Serve::Refusing),
        tcp("other address than the pod's", Some("127.0.0.1"), server.clone())
            .v6()
            .script(vec![]),
        tcp(
            "name that cannot be known, so that nobody is asked",
            Some(&format!("{}.invalid", "a".repeat(64))),
            Port::Number(80),
        ),
        tcp("host in brackets", Some("[::1]"), server.clone()).serve(Serve::RefusingV6),
        tcp("host with a space", Some("a b"), server.clone()).serve(Serve::Refusing),
        tcp("host with a colon", Some("a:b"), server).serve(Serve::Refusing),
    ]
}

fn ports() -> Vec<Case> {
    let numbers = [0, -1, 65_536, 66_666].map(Port::Number);
    let names = [
        "missing",
        "",
        "8080x",
        "0x50",
        " 80",
        "0",
        "-1",
        "70000",
        "99999999999999999999",
        "-99999999999999999999",
        "1_000",
        "+",
        "é",
        "\"",
    ]
    .map(|name| Port::Name(name.to_owned()));
    let mut cases = Vec::new();
    for port in numbers.into_iter().chain(names) {
        cases.push(tcp(format!("tcp {port:?}"), None, port.clone()));
        let get = HttpGet {
            scheme: Scheme::Http,
            host: None,
            port: port.clone(),
            path: "/".to_owned(),
            headers: Vec::new(),
        };
        cases.push(Case::new(format!("http {port:?}"), Handler::HttpGet(get)));
    }
    let named = |name: &str| {
        tcp(format!("named {name:?}"), None, Port::Name(name.to_owned())).container(|container| {
            container.ports = vec![("web".to_owned(), 1), ("80".to_owned(), 1)];
        })
    };
    cases.extend([
        named("web").script(vec![]),
        named("80").script(vec![]),
        named("Web").script(vec![]),
    ]);
    cases
}

const ALLOWED: &[Allowed] = &[
    Allowed::new(
        "no address",
        Part::Text,
        "Go dials the machine itself, whose answer says nothing about the pod; ours asks nobody",
    ),
    Allowed::new(
        "host in brackets",
        Part::Text,
        "Go complains of the port, where the host is wrong",
    ),
];

#[tokio::test]
async fn connections_are_judged_as_by_the_kubelet() {
    compare(
        "connections_are_judged_as_by_the_kubelet",
        handlers(),
        connections(),
        ALLOWED,
    )
    .await;
}

#[tokio::test]
async fn ports_are_resolved_as_by_the_kubelet() {
    compare("ports_are_resolved_as_by_the_kubelet", handlers(), ports(), &[]).await;
}
