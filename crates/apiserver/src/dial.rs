//! Connections that the server opens, with errors in Go's words, which is what clients of Kubernetes see.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For how long a peer may take to accept a connection; upstream's number.
const CONNECT: Duration = Duration::from_secs(30);
/// For how long a peer may take for its TLS handshake; upstream's number.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection, with TLS or without.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Opens a connection to `address`, which messages show; with `tls`, the certificate must be for `name`.
pub(crate) async fn open(
    address: &str,
    name: &str,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Box<dyn Connection>, String> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address))
        .await
        .map_err(|_elapsed| format!("dial tcp {address}: i/o timeout"))?
        .map_err(|error| dial_error(address, &error))?;
    stream
        .set_nodelay(true)
        .map_err(|error| dial_error(address, &error))?;
    // A node that is gone must not keep the streams through it.
    evenkeel_net::tcp::keep_alive(&stream).map_err(|error| dial_error(address, &error))?;
    let Some(config) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("tls: {name} is not a valid server name"))?;
    let stream = tokio::time::timeout(HANDSHAKE, TlsConnector::from(config).connect(name, stream))
        .await
        .map_err(|_elapsed| "net/http: TLS handshake timeout".to_owned())?
        .map_err(|error| tls_error(&error))?;
    Ok(Box::new(stream))
}

/// A refused connection in Go's words.
fn dial_error(host: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {host}: {why}")
}

/// A failed handshake in Go's words.
fn tls_error(error: &std::io::Error) -> String {
    use rustls::CertificateError as Bad;
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(bad)) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => "certificate signed by unknown authority",
            Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "certificate has expired or is not yet valid"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "certificate is not valid for the server's name"
            }
            _ => return format!("tls: failed to verify certificate: x509: {bad:?}"),
        },
        _ => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}
