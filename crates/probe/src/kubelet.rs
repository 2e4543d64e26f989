//! The kubelet check: does *that node's* kubelet answer?
//!
//! A kubelet is recognised by the SHA-256 of its serving certificate, which the agent on its node published. Kubelets
//! commonly have self-signed certificates that change at a restart, so no authority is asked, and a certificate other
//! than the pinned one is neither a yes nor a no.

use crate::pin::PinVerifier;
use crate::{Dial, Failure, Outcome};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest status line that is read; what follows it is not.
const STATUS_LINE: u64 = 1024;

/// One TLS handshake and one `GET /healthz`. Any HTTP status (401 as well) from the pinned kubelet is
/// `Alive { identity: true }`: a locked door has somebody behind it. `pinned_sha256` is the SHA-256 of the
/// certificate's DER in hex. Ends within `timeout`; reads at most one handshake and one status line.
pub async fn check(dial: impl Into<Dial>, pinned_sha256: &str, timeout: Duration) -> Outcome {
    let dial = dial.into();
    let verifier = PinVerifier::new(Some(pinned_sha256));
    let deadline = tokio::time::Instant::now() + timeout;
    let stream = match tokio::time::timeout_at(deadline, handshake(dial, &verifier)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(failure)) => {
            return match verifier.presented() {
                Some(presented) if !presented.eq_ignore_ascii_case(pinned_sha256) => Outcome::WrongIdentity {
                    expected: pinned_sha256.to_owned(),
                    presented,
                },
                _ => Outcome::Failed(failure),
            };
        }
        Err(_) => return Outcome::Failed(Failure::Timeout),
    };
    // From here on the peer has signed this handshake with the kubelet's key.
    match tokio::time::timeout_at(deadline, healthz(stream, dial)).await {
        Ok(Ok(())) => Outcome::Alive { identity: true },
        Ok(Err(error)) => Outcome::Failed(Failure::NoStatus(error.to_string())),
        Err(_) => Outcome::Failed(Failure::NoStatus("no answer in time".to_owned())),
    }
}

/// SHA-256, in hex, of the certificate that a kubelet shows and whose key it holds. For an agent and the kubelet on
/// its own node: whoever is asked over a network could be anybody.
pub async fn fetch_pin(dial: impl Into<Dial>, timeout: Duration) -> Result<String, Failure> {
    let verifier = PinVerifier::new(None);
    // Only a completed handshake counts: before that a certificate is shown, but its key is not proved.
    tokio::time::timeout(timeout, handshake(dial.into(), &verifier))
        .await
        .map_err(|_| Failure::Timeout)??;
    verifier
        .presented()
        .ok_or_else(|| Failure::Broken("the handshake showed no certificate".to_owned()))
}

async fn handshake(dial: Dial, verifier: &Arc<PinVerifier>) -> Result<TlsStream<TcpStream>, Failure> {
    let config = verifier
        .client_config()
        .map_err(|error| Failure::Local(error.to_string()))?;
    let stream = dial.open().await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::IpAddress(dial.address.ip().into()), stream)
        .await
        .map_err(|error| Failure::Broken(error.to_string()))
}

async fn healthz(mut stream: TlsStream<TcpStream>, dial: Dial) -> io::Result<()> {
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nUser-Agent: evenkeel-probe/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        dial.address,
        env!("CARGO_PKG_VERSION"),
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    read_status(&mut stream).await.map(drop)
}

/// Status code of an HTTP/1 response.
async fn read_status(stream: impl AsyncRead + Unpin) -> io::Result<u16> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut limited = stream.take(STATUS_LINE);
    let mut line = Vec::new();
    let mut chunk = [0; 256];
    while !line.contains(&b'\n') {
        match limited.read(&mut chunk).await? {
            0 if limited.limit() == 0 => return Err(invalid("no end of the status line in sight")),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => line.extend_from_slice(&chunk[..count]),
        }
    }
    let status = line
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| rest.get(1..5))
        .and_then(|rest| rest.strip_prefix(b" "))
        .and_then(|code| std::str::from_utf8(code).ok())
        .and_then(|code| code.parse::<u16>().ok())
        .filter(|code| (100..600).contains(code));
    status.ok_or_else(|| invalid("the answer is not HTTP"))
}

#[cfg(test)]
mod tests;
