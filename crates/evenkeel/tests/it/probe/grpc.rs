//! Probes of a real gRPC health server, in the clear and over TLS.

use super::world::{Running, World, ended, pod};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// A server that knows the services `shop`, which serves, and `cart`, which does not.
struct Health {
    clear: SocketAddr,
    tls: SocketAddr,
    /// Of the certificate, which is its own authority and for `health.test`.
    pem: String,
    reporter: HealthReporter,
}

impl Health {
    async fn start() -> Self {
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        reporter
            .set_service_status("cart", ServingStatus::NotServing)
            .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let clear = listener.local_addr().expect("it is bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let speaking = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
                // Clients that speak something else are part of the tests.
                tokio::spawn(async move { speaking.await.ok() });
            }
        });
        let (tls, pem) = terminate(clear).await;
        Self {
            clear,
            tls,
            pem,
            reporter,
        }
    }
}

/// Takes the TLS off what goes to `to`.
async fn terminate(to: SocketAddr) -> (SocketAddr, String) {
    let signed = rcgen::generate_simple_self_signed(["health.test".to_owned()]).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key.into())
        .expect("its own key");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Clients that want no TLS, or another certificate, are part of the tests.
                let Ok(mut near) = acceptor.accept(stream).await else {
                    return;
                };
                let mut far = TcpStream::connect(to).await.expect("the server runs");
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, signed.cert.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_servers_are_asked_once_in_the_clear_and_over_tls() {
    let health = Health::start().await;
    let (clear, tls) = (health.clear.to_string(), health.tls.to_string());
    for (args, code, word) in [
        (vec![&*clear], 0, "success in "),
        (vec![&clear, "--service", "shop"], 0, "success in "),
        (
            vec![&clear, "--service", "cart"],
            1,
            "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")",
        ),
        (vec![&clear, "--service", "none"], 1, "Readiness probe failed: "),
        (vec![&tls, "--tls"], 0, "success in "),
        (vec![&tls, "--tls", "--service", "cart"], 1, "NOT_SERVING"),
        (vec![&clear, "--tls"], 1, "Readiness probe failed: "),
        (vec![&tls], 1, "Readiness probe failed: "),
    ] {
        // A server that is spoken to in the wrong way may say nothing until the time is over.
        let args = [&["grpc", "--timeout", "10s"], &args[..]].concat();
        let (got, out, text) = ended(&args);
        assert_eq!((got, out.lines().count()), (code, 1), "{args:?}: {out}{text}");
        assert!(out.contains(word), "{args:?}: {out}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_run_asks_over_tls_and_verifies_if_told() {
    let health = Health::start().await;
    let world = World::new();
    let other = rcgen::generate_simple_self_signed(["health.test".to_owned()]).unwrap();
    let (ca, wrong) = (
        world.file("ca.pem", &health.pem),
        world.file("other.pem", &other.cert.pem()),
    );
    let probe = format!(
        "readinessProbe: {{grpc: {{port: {}, service: shop}}, timeoutSeconds: 10, periodSeconds: 1, failureThreshold: 1}}",
        health.tls.port()
    );
    let start = |name: &str, settings: &str| {
        let metadata = format!(
            "metadata:\n  name: web\n  annotations:\n    evenkeel.io/probes: |\n      web: {{readinessProbe: {{{settings}}}}}"
        );
        let file = world.file(name, &pod(&probe).replace("metadata: {name: web}", &metadata));
        Running::start(&["run", "-f", &file, "--strict"])
    };
    let named =
        |ca: &str| format!("grpcTLS: true, tls: {{verify: true, caFile: {ca}, serverName: health.test}}");
    let unverified = start("unverified.yaml", "period: 100ms, grpcTLS: true");
    let verified = start("verified.yaml", &named(&ca));
    let distrusted = start("distrusted.yaml", &named(&wrong));
    let clear = start("clear.yaml", "period: 1s");
    let at = unverified.sees(0, &[": the pod is Ready"]);
    verified.sees(0, &[": the pod is Ready"]);
    for run in [&distrusted, &clear] {
        run.sees(0, &["Unhealthy: Readiness probe failed: "]);
        assert!(
            !run.lines().join("\n").contains("the pod is Ready"),
            "{}",
            run.lines().join("\n")
        );
    }
    health
        .reporter
        .set_service_status("shop", ServingStatus::NotServing)
        .await;
    let at = unverified.sees(at, &["NOT_SERVING"]);
    let at = unverified.sees(at, &[": the pod is not Ready"]);
    health
        .reporter
        .set_service_status("shop", ServingStatus::Serving)
        .await;
    unverified.sees(at, &[": the pod is Ready"]);
}
