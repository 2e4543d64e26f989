//! Heartbeats over TLS, from clients with certificates and without.

use super::*;
use evenkeel_koupleless::discovery::listener::{HeartbeatTls, Heartbeats, ListenerError};
use evenkeel_kubelet_api::tls::files::Files;
use evenkeel_net::log::causes;
use evenkeel_net::pki::{Ca, Identity as Keys, ServerNames, Validity};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use tempfile::TempDir;

const VALID: Validity = Validity {
    from: 0,
    until: 4_000_000_000,
};
const EXPIRED: Validity = Validity { from: 0, until: 1 };
/// Between two looks at files.
const OFTEN: Duration = Duration::from_millis(20);

/// Files as somebody who renews them writes them.
struct Directory {
    home: TempDir,
    /// Who signs the serving certificate.
    servers: Ca,
}

impl Directory {
    fn new() -> Self {
        let directory = Self {
            home: tempfile::tempdir().unwrap(),
            servers: Ca::new("servers", VALID).unwrap(),
        };
        directory.serve_by(&directory.servers);
        directory
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    /// In one step each, as the kubelet does with Secrets.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path("new"), text).unwrap();
        std::fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn serve_by(&self, ca: &Ca) {
        let names = ServerNames {
            ips: vec!["127.0.0.1".parse().unwrap()],
            ..ServerNames::default()
        };
        let serving = ca.issue_server("discovery", &names, VALID).unwrap();
        self.write("tls.key", &serving.key_pem);
        self.write("tls.crt", &serving.certificate_pem);
    }

    fn settings(&self) -> Heartbeats {
        Heartbeats {
            address: "127.0.0.1:0".parse().unwrap(),
            tokens: None,
            tls: Some(HeartbeatTls {
                files: Files {
                    certificate: self.path("tls.crt"),
                    key: self.path("tls.key"),
                },
                clients: Some(self.path("ca.crt")),
            }),
        }
    }
}

/// A replica behind such a listener; the second goes on following the files as long as it is there.
async fn replica(client: &Client, settings: &Heartbeats) -> (Replica, DropGuard) {
    let stop = CancellationToken::new();
    let listener = settings.open(None, OFTEN, &stop).await.unwrap();
    let sources = Sources {
        heartbeats: Some(listener),
        ..Sources::default()
    };
    let setup = Setup {
        sources,
        ..Setup::default()
    };
    (Replica::start(client, setup), stop.drop_guard())
}

/// Sends a heartbeat: status and body, or why the connection did not come about.
async fn beat(replica: &Replica, servers: &Ca, keys: Option<&Keys>) -> Result<(u16, String), String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate(servers.certificate_pem())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match keys {
        Some(keys) => {
            let key = PrivateKeyDer::from_pem_slice(keys.key_pem.as_bytes()).unwrap();
            let chain = vec![certificate(&keys.certificate_pem)];
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let talk = async {
        let stream = TcpStream::connect(replica.address.unwrap()).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        let request = post("/heartbeat", "", &heartbeat("a", 1238));
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // With TLS 1.3 it is here that a client hears that its certificate was refused.
        let read = stream.read_to_end(&mut answer).await;
        if answer.is_empty() {
            read?;
        }
        Ok(String::from_utf8(answer).unwrap())
    };
    let answer: std::io::Result<String> = talk.await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    Ok((status, body.to_owned()))
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_needs_a_certificate_of_the_right_authority_that_is_valid_now() {
    let (_api, client) = api().await;
    let directory = Directory::new();
    let bases = Ca::new("bases", VALID).unwrap();
    let others = Ca::new("others", VALID).unwrap();
    directory.write("ca.crt", bases.certificate_pem());
    let (replica, _following) = replica(&client, &directory.settings()).await;
    let servers = &directory.servers;

    let (status, body) = beat(&replica, servers, None).await.unwrap();
    assert_eq!((status, body.as_str()), (401, "a client certificate is needed\n"));
    let other = others.issue_client("base", &[], VALID).unwrap();
    let error = beat(&replica, servers, Some(&other)).await.unwrap_err();
    assert!(
        error.contains("UnknownCA") || error.contains("DecryptError"),
        "{error}"
    );
    let expired = bases.issue_client("base", &[], EXPIRED).unwrap();
    let error = beat(&replica, servers, Some(&expired)).await.unwrap_err();
    assert!(error.contains("CertificateExpired"), "{error}");
    // Without TLS nobody is heard.
    let mut plain = TcpStream::connect(replica.address.unwrap()).await.unwrap();
    let request = post("/heartbeat", "", &heartbeat("a", 1238));
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // It may be cut off in the middle.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(replica.discovery.bases().len(), 0);

    let right = bases.issue_client("base", &[], VALID).unwrap();
    let answer = beat(&replica, servers, Some(&right)).await;
    assert_eq!(answer, Ok((200, "SUCCESS".to_owned())));
    assert_eq!(replica.discovery.bases().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_will_do_beside_certificates() {
    let (_api, client) = api().await;
    let directory = Directory::new();
    let bases = Ca::new("bases", VALID).unwrap();
    directory.write("ca.crt", bases.certificate_pem());
    directory.write("tokens", "one");
    let settings = Heartbeats {
        tokens: Some(directory.path("tokens")),
        ..directory.settings()
    };
    let (replica, _following) = replica(&client, &settings).await;
    let (status, body) = beat(&replica, &directory.servers, None).await.unwrap();
    let words = "a bearer token or a client certificate is needed\n";
    assert_eq!((status, body.as_str()), (401, words));
    let right = bases.issue_client("base", &[], VALID).unwrap();
    assert_eq!(
        beat(&replica, &directory.servers, Some(&right)).await.unwrap().0,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_files_count_and_broken_ones_change_nothing() {
    let (_api, client) = api().await;
    let directory = Directory::new();
    let (old, new) = (Ca::new("old", VALID).unwrap(), Ca::new("new", VALID).unwrap());
    directory.write("ca.crt", old.certificate_pem());
    let (replica, _following) = replica(&client, &directory.settings()).await;
    let [first, second] = [&old, &new].map(|ca| ca.issue_client("base", &[], VALID).unwrap());
    assert_eq!(
        beat(&replica, &directory.servers, Some(&first)).await.unwrap().0,
        200
    );

    directory.write("ca.crt", new.certificate_pem());
    until("the new authority counts", async || {
        let answer = beat(&replica, &directory.servers, Some(&second)).await;
        matches!(answer, Ok((200, _)))
    })
    .await;
    beat(&replica, &directory.servers, Some(&first))
        .await
        .unwrap_err();

    // Broken first, so that what comes after it shows that it was passed over.
    directory.write("ca.crt", "nonsense");
    directory.write("tls.crt", "nonsense");
    let servers = Ca::new("other servers", VALID).unwrap();
    beat(&replica, &servers, Some(&second)).await.unwrap_err();
    directory.serve_by(&servers);
    until("the new serving certificate counts", async || {
        let answer = beat(&replica, &servers, Some(&second)).await;
        matches!(answer, Ok((200, _)))
    })
    .await;
}

#[tokio::test]
async fn files_that_are_of_no_use_are_named_with_their_flag() {
    let directory = Directory::new();
    let stop = CancellationToken::new();
    let open = async |settings: Heartbeats| {
        let error: ListenerError = settings.open(None, OFTEN, &stop).await.unwrap_err();
        causes(&error)
    };
    let shown = |path: &Path| path.display().to_string();
    let error = open(directory.settings()).await;
    let file = shown(&directory.path("ca.crt"));
    assert!(
        error.starts_with("--heartbeat-client-ca-file: ") && error.contains(&file),
        "{error}"
    );
    directory.write("ca.crt", "nonsense");
    let error = open(directory.settings()).await;
    assert!(error.contains("holds no authority"), "{error}");
    directory.write("tls.key", "nonsense");
    let error = open(directory.settings()).await;
    let file = shown(&directory.path("tls.key"));
    assert!(
        error.starts_with("--heartbeat-tls-cert-file") && error.contains(&file),
        "{error}"
    );
}
