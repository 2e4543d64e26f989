//! What the tests of this binary share: an authority, and connections that trust it.

use bytes::Bytes;
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Long enough for any machine; only a hang waits for it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn validity() -> Validity {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    Validity {
        from: now - 60,
        until: now + 3600,
    }
}

pub(crate) fn ca() -> Ca {
    Ca::new("test-ca", validity()).unwrap()
}

pub(crate) fn server_identity(ca: &Ca, name: &str) -> Identity {
    let names = ServerNames {
        dns: vec!["localhost".into()],
        ips: vec!["127.0.0.1".parse().unwrap()],
    };
    ca.issue_server(name, &names, validity()).unwrap()
}

/// A TLS connection to `address`, which must show a certificate of `ca`.
pub(crate) async fn connect(
    address: SocketAddr,
    ca: &Ca,
    client: Option<&Identity>,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    evenkeel_net::init_crypto();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap())
        .unwrap();
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(id) => {
            let chain = vec![CertificateDer::from_pem_slice(id.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(id.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let tcp = TcpStream::connect(address).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), tcp)
        .await
}

/// One GET over a fresh connection; by HTTP/2 if that was agreed on.
pub(crate) async fn get(stream: TlsStream<TcpStream>, path: &str) -> Result<(u16, String), hyper::Error> {
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let request = hyper::Request::get(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = if h2 {
        let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        send.send_request(request).await?
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        send.send_request(request).await?
    };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
