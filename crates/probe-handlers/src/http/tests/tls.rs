//! HTTPS.

use super::server::{After, Ask, SHORT, answer, answer_by, ask, listen, scripted};
use crate::{Compat, Outcome, Tls, Verdict};
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rstest::rstest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

const VALID: Validity = Validity {
    from: 1_600_000_000,
    until: 32_000_000_000,
};

/// An authority, and a certificate of it for an address and a name.
fn identity() -> (String, Identity) {
    let ca = Ca::new("test", VALID).unwrap();
    let names = ServerNames {
        dns: vec!["localhost".into(), "probed.example".into()],
        ips: vec!["127.0.0.1".parse().unwrap()],
    };
    let leaf = ca.issue_server("server", &names, VALID).unwrap();
    (ca.certificate_pem().to_owned(), leaf)
}

fn settings(
    identity: &Identity,
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> TlsAcceptor {
    evenkeel_net::init_crypto();
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_protocol_versions(versions)
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers by HTTP/1, showing the request, the server name and the protocol.
async fn http1(acceptor: TlsAcceptor) -> SocketAddr {
    listen("127.0.0.1:0", move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let name = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
            answer_by(&mut stream, &move |path: &str, request: &str| match path {
                "/without_length" => "HTTP/1.0 200 OK\r\n\r\nuntil the end".to_owned(),
                "/cut" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin".to_owned(),
                "/redirect" => answer(302, "Location: /\r\n", ""),
                _ => answer(200, "", &format!("{name}\n{request}")),
            })
            .await;
        }
    })
    .await
}

async fn http2(acceptor: TlsAcceptor) -> SocketAddr {
    listen("127.0.0.1:0", move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let mut names: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
                names.sort_unstable();
                let body = match request.uri().path() {
                    "/big" => "a".repeat(1 << 20),
                    _ => format!("{:?} {} {}", request.version(), request.uri(), names.join(" ")),
                };
                let status = if request.uri().path() == "/500" { 500 } else { 200 };
                let answer = hyper::Response::builder()
                    .status(status)
                    .body(Full::new(bytes::Bytes::from(body)));
                Ok::<_, Infallible>(answer.unwrap())
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // How a probe leaves is not the server's trouble.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await
}

fn verified(mut probe: Ask, ca_pem: &str, server_name: Option<&str>) -> Ask {
    probe.extras.tls = Tls::Verified {
        ca_pem: ca_pem.to_owned(),
        server_name: server_name.map(str::to_owned),
    };
    probe.strict()
}

#[rstest]
#[tokio::test]
async fn any_certificate_will_do_by_either_version(
    #[values(&rustls::version::TLS12, &rustls::version::TLS13)] version: &'static SupportedProtocolVersion,
    #[values("/", "/redirect")] path: &str,
) {
    let (_, id) = identity();
    let address = http1(settings(&id, &[], &[version])).await;
    let outcome = ask(address, path).https().go().await;
    assert_eq!(outcome.verdict, Verdict::Success, "{outcome:?}");
    // No server name for an address.
    assert!(outcome.output.starts_with("-\nGET / HTTP/1.1\r\n"), "{outcome:?}");
    let outcome = ask(address, path).https().host("localhost").go().await;
    assert!(
        outcome.output.starts_with("localhost\nGET / HTTP/1.1\r\n"),
        "{outcome:?}"
    );
}

/// The server never says farewell (`close_notify`).
#[tokio::test]
async fn the_end_of_the_connection_ends_a_body_without_length_only() {
    let (_, id) = identity();
    let address = http1(settings(&id, &["http/1.1"], rustls::ALL_VERSIONS)).await;
    let outcome = ask(address, "/without_length").https().go().await;
    assert_eq!(outcome, Outcome::success("until the end"));
    let outcome = ask(address, "/cut").https().go().await;
    assert_eq!(outcome, Outcome::error(Verdict::Failure, "unexpected EOF"));
}

#[tokio::test]
async fn http2_is_spoken_where_the_server_chooses_it() {
    let (_, id) = identity();
    let address = http2(settings(&id, &["h2", "http/1.1"], rustls::ALL_VERSIONS)).await;
    let outcome = ask(address, "/x?y")
        .https()
        .header("Host", "some.host")
        .header("Connection", "close")
        .go()
        .await;
    assert_eq!(
        outcome,
        Outcome::success("HTTP/2.0 https://some.host/x?y accept user-agent")
    );
    assert_eq!(
        ask(address, "/big").https().go().await,
        Outcome::success("a".repeat(Outcome::OUTPUT))
    );
    assert_eq!(
        ask(address, "/500").https().go().await,
        Outcome::failure("HTTP probe failed with statuscode: 500")
    );
}

/// What waits for the answer must not keep itself alive, and the connection with it.
#[tokio::test]
async fn a_probe_that_waits_in_vain_for_http2_leaves_no_connection() {
    let (_, id) = identity();
    let acceptor = settings(&id, &["h2"], rustls::ALL_VERSIONS);
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let address = listen("127.0.0.1:0", move |stream| {
        let (acceptor, ended) = (acceptor.clone(), ended.clone());
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let service = service_fn(|_: hyper::Request<hyper::body::Incoming>| {
                std::future::pending::<Result<hyper::Response<Full<bytes::Bytes>>, Infallible>>()
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    let outcome = ask(address, "/").https().within(SHORT).go().await;
    assert!(outcome.output.contains("Client.Timeout exceeded"), "{outcome:?}");
    evenkeel_testkit::ends("the connection ends with the probe", ends.recv()).await;
}

#[tokio::test]
async fn a_flood_of_http2_frames_does_not_outlast_the_timeout() {
    let (_, id) = identity();
    let acceptor = settings(&id, &["h2"], rustls::ALL_VERSIONS);
    // Each its own way to keep a client busy: pings, settings, window updates, unknown frames.
    let frames: [&[u8]; 4] = [
        &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 0, 0, 4, 0, 0, 0, 0, 0],
        &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 1, 0xfe, 0, 0, 0, 0, 0, 0],
    ];
    for frame in frames {
        let acceptor = acceptor.clone();
        let address = listen("127.0.0.1:0", move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let (mut read, mut write) = tokio::io::split(stream);
                let drain = async {
                    let mut sink = [0; 4096];
                    while matches!(read.read(&mut sink).await, Ok(1..)) {}
                };
                let flood = async {
                    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                    if write.write_all(&settings).await.is_ok() {
                        let block = frame.repeat(500);
                        while write.write_all(&block).await.is_ok() {}
                    }
                };
                tokio::join!(drain, flood);
            }
        })
        .await;
        let probe = ask(address, "/").https().within(SHORT);
        let outcome = evenkeel_testkit::ends("it ends", probe.go()).await;
        assert_eq!(
            (outcome.verdict, outcome.error),
            (Verdict::Failure, None),
            "{}",
            outcome.output
        );
    }
}

#[rstest]
#[case::plain(
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "http: server gave HTTP response to HTTPS client"
)]
#[case::garbage("garbage garbage", "tls: first record does not look like a TLS handshake")]
#[case::alert("\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}", "remote error: tls: handshake failure")]
#[case::closed("", "EOF")]
#[tokio::test]
async fn a_server_without_tls_is_told_in_gos_words(#[case] answer: &'static str, #[case] why: &str) {
    let address = listen("127.0.0.1:0", move |mut stream| async move {
        let mut hello = [0; 5];
        let _ = stream.read_exact(&mut hello).await;
        let rest = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        let _ = stream.read_exact(&mut vec![0; rest]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    assert_eq!(
        ask(address, "/").https().go().await,
        Outcome::failure(format!("Get \"https://{address}/\": {why}"))
    );
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_a_timeout() {
    let (address, _) = scripted("", After::Stall).await;
    let outcome = ask(address, "/").https().within(SHORT).go().await;
    assert!(
        outcome
            .output
            .ends_with("(Client.Timeout exceeded while awaiting headers)"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_redirect_may_change_the_scheme() {
    let (_, id) = identity();
    let secure = http1(settings(&id, &[], rustls::ALL_VERSIONS)).await;
    let location = format!("HTTP/1.1 302 x\r\nLocation: https://{secure}/\r\nContent-Length: 0\r\n\r\n");
    let (plain, _) = scripted(location, After::Close).await;
    assert_eq!(ask(plain, "/").go().await.verdict, Verdict::Success);
}

#[tokio::test]
async fn strict_mode_can_insist_on_an_authority_and_a_name() {
    let ((ca, id), (other, _)) = (identity(), identity());
    let address = http1(settings(&id, &[], rustls::ALL_VERSIONS)).await;
    let probe = ask(address, "/").https();
    for name in [None, Some("probed.example")] {
        let outcome = verified(probe.clone(), &ca, name).go().await;
        assert_eq!(outcome.verdict, Verdict::Success, "{outcome:?}");
        assert!(outcome.output.starts_with(name.unwrap_or("-")), "{outcome:?}");
    }
    for (ca, name) in [(&other, None), (&ca, Some("somebody.else"))] {
        let outcome = verified(probe.clone(), ca, name).go().await;
        let text = outcome.output.clone();
        assert_eq!((outcome.verdict, &outcome.error), (Verdict::Failure, &None));
        assert!(
            text.starts_with(&format!(
                "Get \"https://{address}/\": tls: failed to verify certificate: "
            )),
            "{text}"
        );
        // A kubelet has no such setting.
        let mut lenient = verified(probe.clone(), ca, name);
        lenient.compat = Compat::Kubelet;
        assert_eq!(lenient.go().await.verdict, Verdict::Success);
    }
}

#[rstest]
#[case::nothing("", "the probe's authorities (PEM) hold no certificate")]
#[case::no_certificate(
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "the probe's authorities (PEM) cannot be read: "
)]
#[tokio::test]
async fn authorities_that_are_none_are_an_error(#[case] pem: &str, #[case] why: &str) {
    let probe = verified(ask("127.0.0.1:1".parse().unwrap(), "/").https(), pem, None);
    let outcome = probe.go().await;
    assert_eq!(outcome.verdict, Verdict::Unknown);
    assert!(outcome.error.as_ref().unwrap().starts_with(why), "{outcome:?}");
}
