//! Rows of upstream's `pkg/probe/grpc/grpc_test.go` against real servers, and peers that do not behave.

use super::probe;
use crate::core::{Compat, Container, Handler, Outcome, Probe, Target, Tls};
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

mod hostile;
mod server;

use server::{Mock, serve, serve_tls};

const SECOND: Duration = Duration::from_secs(1);

fn target(address: Option<IpAddr>) -> Target {
    Target {
        address,
        source: None,
        container: Arc::new(Container::default()),
        container_id: "containerd://c1".into(),
    }
}

fn of(timeout: Duration) -> Probe {
    Probe {
        timeout,
        ..Probe::new(Handler::Grpc {
            port: 1,
            service: String::new(),
        })
    }
}

async fn ask(address: SocketAddr, timeout: Duration, compat: Compat) -> Outcome {
    probe(
        address.port(),
        "",
        &target(Some(address.ip())),
        &of(timeout),
        compat,
    )
    .await
}

#[tokio::test]
async fn no_host_is_a_failure_and_no_error() {
    let outcome = probe(32, "", &target(None), &of(SECOND), Compat::Kubelet).await;
    assert_eq!(
        outcome,
        Outcome::failure("timeout: failed to connect service \":32\" within 1s: context deadline exceeded")
    );
}

#[tokio::test]
async fn a_plain_http_server_is_a_failure_and_no_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(|| async { "res" });
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service),
            );
        }
    });
    assert_eq!(
        ask(address, SECOND, Compat::Kubelet).await,
        Outcome::failure(format!(
            "timeout: failed to connect service \"{address}\" within 1s: context deadline exceeded"
        ))
    );
    let strict = ask(address, Duration::from_secs(60), Compat::Strict).await;
    let expected =
        format!("error: failed to connect service at \"{address}\": error reading server preface: ");
    assert!(strict.output.starts_with(&expected), "{strict:?}");
    server.abort();
}

#[tokio::test]
async fn a_service_that_does_not_serve_is_a_failure() {
    for (status, text) in [
        (2, "service unhealthy (responded with \"NOT_SERVING\")"),
        (0, "service unhealthy (responded with \"UNKNOWN\")"),
        (3, "service unhealthy (responded with \"SERVICE_UNKNOWN\")"),
        (77, "service unhealthy (responded with \"77\")"),
    ] {
        let address = serve(Mock::status(status)).await;
        assert_eq!(
            ask(address, SECOND * 60, Compat::Kubelet).await,
            Outcome::failure(text)
        );
    }
}

#[tokio::test]
async fn an_answer_after_the_timeout_is_a_failure() {
    let address = serve(Mock::slow(Duration::from_secs(4))).await;
    assert_eq!(
        ask(address, SECOND * 2, Compat::Kubelet).await,
        Outcome::failure("timeout: health rpc did not complete within 2s")
    );
    assert_eq!(
        ask(address, Duration::from_millis(1_500), Compat::Strict).await,
        Outcome::failure("timeout: health rpc did not complete within 1.5s")
    );
}

#[tokio::test]
async fn a_service_that_serves_is_a_success() {
    let address = serve(Mock::status(1)).await;
    for compat in [Compat::Kubelet, Compat::Strict] {
        assert_eq!(
            ask(address, SECOND * 60, compat).await,
            Outcome::success("service healthy")
        );
    }
}

#[tokio::test]
async fn a_server_on_all_addresses_is_reached_at_0_0_0_0() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("late", tonic_health::ServingStatus::NotServing)
        .await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    server::accept(listener, health);
    let ask = async |service: &str| {
        let target = target(Some(Ipv4Addr::UNSPECIFIED.into()));
        probe(port, service, &target, &of(SECOND * 60), Compat::Kubelet).await
    };
    assert_eq!(ask("").await, Outcome::success("service healthy"));
    assert_eq!(
        ask("late").await,
        Outcome::failure("service unhealthy (responded with \"NOT_SERVING\")")
    );
    assert_eq!(
        ask("missing").await,
        Outcome::failure(
            "error: health rpc probe failed: rpc error: code = NotFound desc = service not registered"
        )
    );
    reporter
        .set_service_status("late", tonic_health::ServingStatus::Serving)
        .await;
    assert_eq!(ask("late").await, Outcome::success("service healthy"));
}

#[tokio::test]
async fn the_server_is_told_who_asks_for_what_and_for_how_long() {
    let mock = Mock::status(1);
    let address = serve(mock.clone()).await;
    let mut target = target(Some(address.ip()));
    target.source = Some(Ipv4Addr::new(127, 0, 0, 9).into());
    let outcome = probe(address.port(), "db", &target, &of(SECOND * 60), Compat::Kubelet).await;
    assert_eq!(outcome, Outcome::success("service healthy"));
    let seen = mock.seen();
    assert_eq!(
        (seen.service.as_str(), seen.agent.as_str()),
        ("db", "kube-probe/1.36")
    );
    let (number, unit) = seen.timeout.split_at(seen.timeout.len() - 1);
    let per_second: u64 = match unit {
        "m" => 1_000,
        "u" => 1_000_000,
        "n" => 1_000_000_000,
        _ => 1,
    };
    assert!(
        number.parse::<u64>().unwrap() <= 60 * per_second,
        "{}",
        seen.timeout
    );
    assert_eq!(seen.peer.unwrap().ip(), IpAddr::from([127, 0, 0, 9]));
}

#[tokio::test]
async fn a_source_that_is_not_ours_is_a_failure() {
    let address = serve(Mock::status(1)).await;
    let mut target = target(Some(address.ip()));
    target.source = Some(Ipv4Addr::new(192, 0, 2, 1).into());
    let outcome = probe(address.port(), "", &target, &of(SECOND * 60), Compat::Strict).await;
    let expected =
        format!("error: failed to connect service at \"{address}\": dial tcp 192.0.2.1:0->{address}: bind: ");
    assert!(outcome.output.starts_with(&expected), "{outcome:?}");
}

#[tokio::test]
async fn a_server_without_the_health_service_is_told_apart() {
    let address = serve(Mock::error(tonic::Code::Unimplemented, "unknown service")).await;
    assert_eq!(
        ask(address, SECOND * 60, Compat::Kubelet).await,
        Outcome::failure(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service"
        )
    );
}

#[tokio::test]
async fn other_errors_of_the_server_are_shown_as_go_shows_them() {
    for (code, text) in [
        (tonic::Code::Internal, "code = Internal desc = boom"),
        (tonic::Code::Cancelled, "code = Canceled desc = boom"),
        (
            tonic::Code::PermissionDenied,
            "code = PermissionDenied desc = boom",
        ),
    ] {
        let address = serve(Mock::error(code, "boom")).await;
        assert_eq!(
            ask(address, SECOND * 60, Compat::Kubelet).await,
            Outcome::failure(format!("error: health rpc probe failed: rpc error: {text}"))
        );
    }
}

#[tokio::test]
async fn where_nobody_listens_a_kubelet_tries_until_its_time_is_over_and_strict_mode_says_why() {
    let address = server::nobody().await;
    let begun = Instant::now();
    assert_eq!(
        ask(address, Duration::from_millis(500), Compat::Kubelet).await,
        Outcome::failure(format!(
            "timeout: failed to connect service \"{address}\" within 500ms: context deadline exceeded"
        ))
    );
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(
        ask(address, SECOND * 600, Compat::Strict).await,
        Outcome::failure(format!(
            "error: failed to connect service at \"{address}\": dial tcp {address}: connect: connection refused"
        ))
    );
}

#[tokio::test]
async fn a_server_that_comes_late_is_found_by_a_kubelet() {
    // Two connections are turned away, the third is served.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            drop(listener.accept().await.unwrap());
        }
        server::accept(listener, Mock::status(1).into_service());
        pending::<()>().await;
    });
    assert_eq!(
        ask(address, SECOND * 60, Compat::Kubelet).await,
        Outcome::success("service healthy")
    );
    server.abort();
}

#[tokio::test]
async fn an_attempt_that_is_given_up_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asking = tokio::spawn(ask(address, SECOND * 600, Compat::Kubelet));
    let (mut stream, _) = listener.accept().await.unwrap();
    asking.abort();
    let mut sink = Vec::new();
    // By a reset, or by its end.
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut sink);
    let _ = tokio::time::timeout(SECOND * 60, closed).await.expect("closed");
}

#[tokio::test]
async fn probes_leave_nothing_in_time_wait() {
    let address = serve(Mock::status(1)).await;
    for _ in 0..50 {
        assert_eq!(
            ask(address, SECOND * 60, Compat::Kubelet).await,
            Outcome::success("service healthy")
        );
    }
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{:04X} ", address.port());
    let waiting = table
        .lines()
        .filter(|line| line.contains(&remote) && line.split_whitespace().nth(3) == Some("06"))
        .count();
    assert_eq!(waiting, 0, "{table}");
}

#[tokio::test]
async fn over_tls_in_strict_mode_alone() {
    let (address, ca) = serve_tls(Mock::status(1)).await;
    let ask = async |tls: Tls, compat: Compat| {
        let mut of = of(SECOND * if compat == Compat::Strict { 60 } else { 1 });
        of.extras.grpc_tls = true;
        of.extras.tls = tls;
        probe(address.port(), "", &target(Some(address.ip())), &of, compat).await
    };
    let verified = |ca: &str, name: Option<&str>| Tls::Verified {
        ca_pem: ca.to_owned(),
        server_name: name.map(str::to_owned),
    };
    let healthy = Outcome::success("service healthy");
    assert_eq!(ask(Tls::Unverified, Compat::Strict).await, healthy);
    assert_eq!(
        ask(verified(&ca, None), Compat::Strict).await,
        healthy,
        "by address"
    );
    assert_eq!(
        ask(verified(&ca, Some("health.test")), Compat::Strict).await,
        healthy,
        "by name"
    );
    let (_, other) = serve_tls(Mock::status(1)).await;
    for (tls, why) in [
        (
            verified(&ca, Some("other.test")),
            "tls: failed to verify certificate: ",
        ),
        (verified(&other, None), "tls: failed to verify certificate: "),
        (
            verified(&ca, Some("no name")),
            "the probe's server name \"no name\" is no name",
        ),
        (
            verified("", None),
            "the probe's authorities (PEM) hold no certificate",
        ),
        (
            verified(
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                None,
            ),
            "the probe's authorities (PEM) cannot be read",
        ),
    ] {
        let outcome = ask(tls, Compat::Strict).await;
        let expected = format!("error: failed to connect service at \"{address}\": {why}");
        assert!(outcome.output.starts_with(&expected), "{outcome:?}");
    }
    let kubelet = ask(Tls::Unverified, Compat::Kubelet).await;
    assert!(
        kubelet.output.starts_with("timeout: failed to connect"),
        "{kubelet:?}"
    );
}
