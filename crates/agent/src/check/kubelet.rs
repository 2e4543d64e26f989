//! The kubelet check: does *that node's* kubelet answer?
//!
//! A kubelet is recognised by the SHA-256 of its serving certificate, which the agent on its node published.
//! Kubelets commonly have self-signed certificates that change at a restart, so no authority is asked, and a
//! certificate other than the pinned one is neither a yes nor a no.

use super::dial::Dial;
use super::http::head;
use super::outcome::{Failure, Outcome};
use super::parameters::Parameters;
use super::pin::PinVerifier;
use super::plugin::{Attempt, Plugin, Suspect};
use evenkeel_probe_handlers::http::status;
use evenkeel_probe_handlers::wording::Ends;
use http::{Method, Uri};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// `port`: instead of the one that the node's agent published.
#[derive(Debug)]
pub(super) struct Kubelet {
    port: Option<u16>,
}

impl Kubelet {
    pub(super) fn new(parameters: &mut Parameters) -> Result<Self, String> {
        let port = parameters.port()?;
        Ok(Self { port })
    }
}

impl Plugin for Kubelet {
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a> {
        Box::pin(async move {
            let Some(pin) = &suspect.pin else {
                let why = "the node's agent published no certificate of its kubelet".to_owned();
                return Outcome::Failed(Failure::Local(why));
            };
            check(suspect.dial(self.port), pin, within).await
        })
    }
}

/// One TLS handshake and one `GET /healthz`. Any HTTP status (401 as well) from the pinned kubelet is
/// `Alive { identity: true }`: a locked door has somebody behind it. `pinned_sha256` is the SHA-256 of the
/// certificate's DER in hex. Ends within `timeout`; reads at most one handshake and the head of one answer.
pub(crate) async fn check(dial: impl Into<Dial>, pinned_sha256: &str, timeout: Duration) -> Outcome {
    let dial = dial.into();
    let verifier = PinVerifier::new(Some(pinned_sha256));
    let deadline = tokio::time::Instant::now() + timeout;
    let (stream, ends) = match tokio::time::timeout_at(deadline, handshake(dial, &verifier)).await {
        Ok(Ok(shaken)) => shaken,
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
    match tokio::time::timeout_at(deadline, healthz(stream, ends)).await {
        Ok(Ok(())) => Outcome::Alive { identity: true },
        Ok(Err(error)) => Outcome::Failed(Failure::NoStatus(error)),
        Err(_) => Outcome::Failed(Failure::NoStatus("no answer in time".to_owned())),
    }
}

/// SHA-256, in hex, of the certificate that a kubelet shows and whose key it holds. For an agent and the
/// kubelet on its own node: whoever is asked over a network could be anybody.
pub(crate) async fn fetch_pin(dial: impl Into<Dial>, timeout: Duration) -> Result<String, Failure> {
    let verifier = PinVerifier::new(None);
    // Only a completed handshake counts: before that a certificate is shown, but its key is not proved.
    tokio::time::timeout(timeout, handshake(dial.into(), &verifier))
        .await
        .map_err(|_| Failure::Timeout)??;
    verifier
        .presented()
        .ok_or_else(|| Failure::Broken("the handshake showed no certificate".to_owned()))
}

async fn handshake(dial: Dial, verifier: &Arc<PinVerifier>) -> Result<(TlsStream<TcpStream>, Ends), Failure> {
    let local = |error: std::io::Error| Failure::Local(error.to_string());
    let config = verifier
        .client_config()
        .map_err(|error| Failure::Local(error.to_string()))?;
    let connection = dial.open().await?;
    let ends = connection.ends();
    let stream = connection.into_stream().map_err(local)?;
    // The end of the handshake and the request are two writes; the second must not wait for the first one's
    // receipt.
    stream.set_nodelay(true).map_err(local)?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::IpAddress(dial.address.ip().into()), stream)
        .await
        .map(|stream| (stream, ends))
        .map_err(|error| Failure::Broken(error.to_string()))
}

/// The error says why there was no status.
async fn healthz(stream: TlsStream<TcpStream>, ends: Ends) -> Result<(), String> {
    let request = head(Method::GET, Uri::from_static("/healthz"), ends.peer)?;
    match status(stream, request, ends).await?.as_u16() {
        100..600 => Ok(()),
        status => Err(format!("the answer's status {status} is none of HTTP's")),
    }
}

#[cfg(test)]
mod tests;
