//! TLS towards whoever is probed.

use super::wording;
use crate::Tls;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest handshake (Go's `TLSHandshakeTimeout` in Kubernetes' transports).
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Authorities whose settings are kept.
const KEPT: usize = 64;

/// Client settings for a probe. Made once, and once for each text of authorities; the error says what is
/// wrong with that text.
pub fn settings(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    static UNVERIFIED: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    static VERIFIED: Mutex<VecDeque<(String, Arc<ClientConfig>)>> = Mutex::new(VecDeque::new());
    match tls {
        Tls::Unverified => {
            if let Some(settings) = UNVERIFIED.get() {
                return Ok(settings.clone());
            }
            let settings = build(None)?;
            Ok(UNVERIFIED.get_or_init(|| settings).clone())
        }
        Tls::Verified { ca_pem, .. } => {
            let mut kept = VERIFIED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, settings)) = kept.iter().find(|(pem, _)| pem == ca_pem) {
                return Ok(settings.clone());
            }
            let settings = build(Some(ca_pem))?;
            if kept.len() >= KEPT {
                kept.pop_front();
            }
            kept.push_back((ca_pem.clone(), settings.clone()));
            Ok(settings)
        }
    }
}

fn build(ca_pem: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = match ca_pem {
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
        Some(pem) => builder
            .with_root_certificates(authorities(pem)?)
            .with_no_client_auth(),
    };
    // As with a kubelet, no probe leans on the one before it.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn authorities(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()))
            .map_err(|error| format!("the probe's authorities (PEM) cannot be read: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the probe's authorities (PEM) hold no certificate".to_owned());
    }
    Ok(roots)
}

/// Who the other side must be: the name that the probe gives, or the host it asks.
pub fn server_name(tls: &Tls, host: &str, stream: &TcpStream) -> Result<ServerName<'static>, String> {
    if let Tls::Verified {
        server_name: Some(name),
        ..
    } = tls
    {
        return ServerName::try_from(name.clone()).map_err(|_| {
            format!(
                "the probe's server name {} is no name",
                wording::quote(name.as_bytes())
            )
        });
    }
    match ServerName::try_from(host.to_owned()) {
        Ok(name) => Ok(name),
        // An address with a zone, or a name that DNS would not have: nobody is asked for by name then.
        Err(_) if *tls == Tls::Unverified => match stream.peer_addr() {
            Ok(peer) => Ok(ServerName::IpAddress(peer.ip().into())),
            Err(error) => Err(wording::system(&error)),
        },
        Err(_) => Err(format!(
            "the host {} cannot be in a certificate",
            wording::quote(host.as_bytes())
        )),
    }
}

/// Shakes hands. No server name is sent for addresses. The error is Go's text.
pub async fn connect(
    stream: TcpStream,
    settings: Arc<ClientConfig>,
    name: ServerName<'static>,
    ends: wording::Ends,
) -> Result<TlsStream<RecordedStream>, String> {
    // The end of the handshake and the request are two writes; the second must not wait for the first one's
    // receipt.
    stream
        .set_nodelay(true)
        .map_err(|error| wording::broken(ends, &error))?;
    let handshake = TlsConnector::from(settings)
        .connect(name, RecordedStream::new(stream))
        .into_fallible();
    match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, seen))) => Err(match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => wording::tls(error, seen.beginning()),
            None => wording::broken(ends, &error),
        }),
        Err(_) => Err("net/http: TLS handshake timeout".to_owned()),
    }
}

/// A stream that remembers how its input began, to tell a server without TLS.
#[derive(Debug)]
pub struct RecordedStream {
    stream: TcpStream,
    first: [u8; 5],
    count: usize,
}

impl RecordedStream {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            first: [0; 5],
            count: 0,
        }
    }

    fn beginning(&self) -> &[u8] {
        &self.first[..self.count]
    }
}

impl AsyncRead for RecordedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buf);
        if this.count < this.first.len() {
            for byte in &buf.filled()[before..] {
                let Some(place) = this.first.get_mut(this.count) else {
                    break;
                };
                *place = *byte;
                this.count += 1;
            }
        }
        result
    }
}

impl AsyncWrite for RecordedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Takes any certificate, readable or not, as a kubelet does. Signatures are not looked at: they would prove
/// that the other side holds the key of a certificate that nobody knows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
