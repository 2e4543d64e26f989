use super::*;
use crate::http::tests::server::{DEADLINE, closed, listen, target};
use rstest::rstest;
use std::net::SocketAddr;
use tokio::net::TcpListener;

fn pod(address: &str) -> Target {
    target(address.parse().ok(), None)
}

async fn go(host: Option<&str>, address: SocketAddr) -> Outcome {
    let port = Port::Number(address.port().into());
    probe(host, &port, &pod("127.0.0.1"), DEADLINE).await
}

#[tokio::test]
async fn an_open_port_is_a_success_to_which_nothing_is_sent() {
    let (told, mut read) = tokio::sync::mpsc::unbounded_channel();
    let address = listen("127.0.0.1:0", move |mut stream| {
        let told = told.clone();
        async move {
            let mut bytes = [0; 10];
            let result = tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await;
            told.send(result.unwrap_or(0)).unwrap();
        }
    })
    .await;
    assert_eq!(go(None, address).await, Outcome::success(""));
    // The server got its connection, with nothing in it.
    assert_eq!(read.recv().await, Some(0));
}

#[tokio::test]
async fn a_server_accepts_every_connection_of_a_probe() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..64 {
        assert_eq!(go(None, address).await, Outcome::success(""));
    }
    // All were reset before anybody accepted them.
    for number in 0..64 {
        let accepted = evenkeel_testkit::ends("it ends", listener.accept()).await;
        assert!(accepted.is_ok(), "{number}: {accepted:?}");
    }
}

#[tokio::test]
async fn probes_leave_nothing_in_time_wait() {
    let address = listen("127.0.0.1:0", |stream| async move {
        // The server keeps its end until the probe has left.
        let mut bytes = [0; 10];
        let _ = stream.readable().await;
        let _ = stream.try_read(&mut bytes);
    })
    .await;
    for _ in 0..100 {
        assert_eq!(go(None, address).await, Outcome::success(""));
    }
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X} 06 ", address.port());
    let waiting = table.lines().filter(|line| line.contains(&port)).count();
    assert_eq!(waiting, 0);
}

#[tokio::test]
async fn a_closed_port_is_a_failure() {
    let address = closed().await;
    let text = format!("dial tcp {address}: connect: connection refused");
    assert_eq!(go(None, address).await, Outcome::failure(text.clone()));
    assert_eq!(
        go(Some("127.0.0.1"), address).await,
        Outcome::failure(text.clone())
    );
    assert_eq!(go(Some(""), address).await, Outcome::failure(text));
}

#[tokio::test]
async fn a_host_takes_the_place_of_the_pods_address() {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(go(Some("127.0.0.2"), address).await, Outcome::success(""));
    assert_eq!(go(None, address).await.verdict, Verdict::Failure);
    // A name is tried at each of its addresses.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(go(Some("localhost"), address).await, Outcome::success(""));
    let outcome = go(Some("nosuch.invalid"), address).await;
    assert!(
        outcome.output.starts_with("dial tcp: lookup nosuch.invalid: "),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn an_ipv6_address_stands_in_brackets() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = Port::Number(listener.local_addr().unwrap().port().into());
    assert_eq!(
        probe(None, &port, &pod("::1"), DEADLINE).await,
        Outcome::success("")
    );
    drop(listener);
    let Port::Number(number) = port else {
        unreachable!()
    };
    assert_eq!(
        probe(None, &port, &pod("::1"), DEADLINE).await,
        Outcome::failure(format!("dial tcp [::1]:{number}: connect: connection refused"))
    );
}

#[rstest]
#[case(Port::Number(-1), "invalid port number: -1")]
#[case(Port::Number(66666), "invalid port number: 66666")]
#[case(Port::Name("web".into()), "strconv.Atoi: parsing \"web\": invalid syntax")]
#[tokio::test]
async fn a_port_that_is_none_is_an_error(#[case] port: Port, #[case] error: &str) {
    let outcome = probe(None, &port, &pod("127.0.0.1"), DEADLINE).await;
    assert_eq!(outcome, Outcome::error(Verdict::Unknown, error));
}

#[tokio::test]
async fn without_an_address_nobody_is_asked() {
    let outcome = probe(None, &Port::Name("found".into()), &pod("none"), DEADLINE).await;
    assert_eq!(
        outcome,
        Outcome::failure("dial tcp :93: the pod has no address yet")
    );
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let (address, _held) = crate::dial::tests::silent().await;
    let port = Port::Number(address.port().into());
    let short = Duration::from_millis(200);
    assert_eq!(
        probe(None, &port, &pod("127.0.0.1"), short).await,
        Outcome::failure(format!("dial tcp {address}: i/o timeout"))
    );
}

#[tokio::test]
async fn a_source_that_is_not_ours_is_told_with_both_ends() {
    let address = closed().await;
    let port = Port::Number(address.port().into());
    let target = target(Some(address.ip()), Some("192.0.2.1".parse().unwrap()));
    assert_eq!(
        probe(None, &port, &target, DEADLINE).await,
        Outcome::failure(format!(
            "dial tcp 192.0.2.1:0->{address}: bind: cannot assign requested address"
        ))
    );
}
