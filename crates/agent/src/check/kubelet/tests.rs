use super::*;
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity, certificate_sha256};
use rstest::rstest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Long enough for any machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// For checks that are meant to run into it.
const SHORT: Duration = Duration::from_millis(300);

/// A certificate long out of date, for no name at all: neither matters.
fn identity() -> Identity {
    let validity = Validity {
        from: 1_000_000_000,
        until: 1_000_000_001,
    };
    Ca::new("some-ca", validity)
        .unwrap()
        .issue_server("node", &ServerNames::default(), validity)
        .unwrap()
}

fn certified(identity: &Identity) -> CertifiedKey {
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    CertifiedKey::new(
        chain,
        rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap(),
    )
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Always {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// A TLS server that answers each request with `answer` and then keeps the connection open.
async fn kubelet(
    key: CertifiedKey,
    version: &'static rustls::SupportedProtocolVersion,
    answer: &'static str,
) -> SocketAddr {
    evenkeel_net::init_crypto();
    let config = rustls::ServerConfig::builder_with_protocol_versions(&[version])
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(key))));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).await.is_err() {
                        return;
                    }
                    request.push(byte[0]);
                }
                assert!(request.starts_with(b"GET /healthz HTTP/1.1\r\n"));
                if answer == "(close)" {
                    return;
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

#[rstest]
#[case::ok("HTTP/1.1 200 OK\r\n\r\nok")]
#[case::unauthorized("HTTP/1.1 401 Unauthorized\r\n\r\n")]
#[case::broken("HTTP/1.1 500 Internal Server Error\r\n\r\n")]
#[case::old("HTTP/1.0 404 Not Found\r\n\r\n")]
#[tokio::test]
async fn any_status_of_the_pinned_kubelet_is_alive(
    #[case] answer: &'static str,
    #[values(&rustls::version::TLS12, &rustls::version::TLS13)]
    version: &'static rustls::SupportedProtocolVersion,
) {
    let id = identity();
    let pin = certificate_sha256(&id.certificate_pem).unwrap();
    let address = kubelet(certified(&id), version, answer).await;
    assert_eq!(
        check(address, &pin, DEADLINE).await,
        Outcome::Alive { identity: true }
    );
    assert_eq!(
        check(address, &pin.to_uppercase(), DEADLINE).await,
        Outcome::Alive { identity: true }
    );
}

#[tokio::test]
async fn another_certificate_is_neither_alive_nor_dead() {
    let (ours, theirs) = (identity(), identity());
    let expected = certificate_sha256(&ours.certificate_pem).unwrap();
    let presented = certificate_sha256(&theirs.certificate_pem).unwrap();
    let address = kubelet(
        certified(&theirs),
        &rustls::version::TLS13,
        "HTTP/1.1 200 OK\r\n\r\n",
    )
    .await;
    let outcome = check(address, &expected, DEADLINE).await;
    assert_eq!(
        outcome,
        Outcome::WrongIdentity {
            expected,
            presented: presented.clone()
        }
    );
    assert!(!outcome.proves_life());
    // A pin that is none matches nothing.
    let outcome = check(address, "", DEADLINE).await;
    assert_eq!(
        outcome,
        Outcome::WrongIdentity {
            expected: String::new(),
            presented
        }
    );
}

/// Signs with one key under the certificate of another: what somebody does who copied a public certificate.
#[derive(Debug)]
struct Forger {
    shown: Arc<dyn SigningKey>,
    held: Arc<dyn SigningKey>,
}

impl SigningKey for Forger {
    fn choose_scheme(&self, offered: &[rustls::SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.held.choose_scheme(offered)
    }
    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.shown.public_key()
    }
    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        self.held.algorithm()
    }
}

#[rstest]
#[tokio::test]
async fn a_copied_certificate_without_its_key_proves_nothing(
    #[values(&rustls::version::TLS12, &rustls::version::TLS13)]
    version: &'static rustls::SupportedProtocolVersion,
) {
    let (real, forger) = (identity(), identity());
    let pin = certificate_sha256(&real.certificate_pem).unwrap();
    let shown = certified(&real);
    let key = Forger {
        shown: shown.key.clone(),
        held: certified(&forger).key,
    };
    let address = kubelet(
        CertifiedKey::new(shown.cert.clone(), Arc::new(key)),
        version,
        "HTTP/1.1 200 OK\r\n\r\n",
    )
    .await;
    let outcome = check(address, &pin, DEADLINE).await;
    assert!(
        matches!(outcome, Outcome::Failed(Failure::Broken(_))),
        "{outcome:?}"
    );
    assert!(!outcome.proves_life());
    let fetched = fetch_pin(address, DEADLINE).await;
    assert!(matches!(fetched, Err(Failure::Broken(_))), "{fetched:?}");
}

#[rstest]
#[case::not_http("SSH-2.0-OpenSSH\r\n", DEADLINE)]
#[case::half_a_line("HTTP/1.1 20", SHORT)]
#[case::half_a_head("HTTP/1.1 200 OK\r\n", SHORT)]
#[case::no_number("HTTP/1.1 abc\r\n", DEADLINE)]
#[case::impossible("HTTP/1.1 999 x\r\n\r\n", DEADLINE)]
#[case::silence("", SHORT)]
#[case::closed("(close)", DEADLINE)]
#[tokio::test]
async fn a_handshake_without_status_proves_life_but_is_a_failure(
    #[case] answer: &'static str,
    #[case] timeout: Duration,
) {
    let id = identity();
    let pin = certificate_sha256(&id.certificate_pem).unwrap();
    let address = kubelet(certified(&id), &rustls::version::TLS13, answer).await;
    // The handshake itself may need more than the short time on a busy machine; only what follows is under
    // test.
    let start = tokio::time::Instant::now();
    let outcome = check(address, &pin, timeout.max(Duration::from_secs(2))).await;
    assert!(
        matches!(outcome, Outcome::Failed(Failure::NoStatus(_))),
        "{outcome:?}"
    );
    assert!(outcome.proves_life());
    assert!(start.elapsed() < DEADLINE);
}

#[tokio::test]
async fn an_endless_head_is_not_read_to_its_end() {
    let id = identity();
    let pin = certificate_sha256(&id.certificate_pem).unwrap();
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(100 << 10));
    let address = kubelet(certified(&id), &rustls::version::TLS13, endless.leak()).await;
    let outcome = check(address, &pin, DEADLINE).await;
    let Outcome::Failed(Failure::NoStatus(why)) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        why.ends_with("server response headers exceeded 65536 bytes; aborted"),
        "{why}"
    );
}

#[tokio::test]
async fn silence_refusal_and_plain_text_are_failures() {
    let pin = "0".repeat(64);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Connections sit in the accept queue: TCP says yes, nobody speaks.
    assert_eq!(
        check(address, &pin, SHORT).await,
        Outcome::Failed(Failure::Timeout)
    );
    assert_eq!(fetch_pin(address, SHORT).await, Err(Failure::Timeout));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // A peer that is gone already is of no interest here.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let outcome = check(address, &pin, DEADLINE).await;
    assert!(
        matches!(outcome, Outcome::Failed(Failure::Broken(_))),
        "{outcome:?}"
    );

    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(
        check(closed, &pin, DEADLINE).await,
        Outcome::Failed(Failure::Refused)
    );
}

#[tokio::test]
async fn an_agent_learns_the_pin_of_its_own_kubelet() {
    let id = identity();
    let pin = certificate_sha256(&id.certificate_pem).unwrap();
    let address = kubelet(certified(&id), &rustls::version::TLS13, "").await;
    assert_eq!(fetch_pin(address, DEADLINE).await, Ok(pin));
}
