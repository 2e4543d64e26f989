//! TLS towards a peer that is known by its certificate, not by an authority.

use evenkeel_net::pki::der_sha256;
use evenkeel_net::verify::verifier;
use rustls::{CertificateError, ClientConfig, Error};
use std::sync::{Arc, Mutex, PoisonError};

/// Accepts the pinned certificate and no other. Name, issuer and dates of the certificate do not matter; that
/// the peer holds its key does, and is verified as always.
#[derive(Debug)]
pub(super) struct PinVerifier {
    /// SHA-256 of the DER in hex; `None` accepts any certificate.
    expected: Option<String>,
    presented: Mutex<Option<String>>,
}

impl PinVerifier {
    /// A verifier for one handshake.
    pub(super) fn new(expected: Option<&str>) -> Arc<Self> {
        Arc::new(Self {
            expected: expected.map(str::to_ascii_lowercase),
            presented: Mutex::new(None),
        })
    }

    /// Pin of the certificate that the peer showed, as soon as it has shown one.
    pub(super) fn presented(&self) -> Option<String> {
        self.presented
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Client settings that use this verifier.
    pub(super) fn client_config(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let pin = self.clone();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier(move |peer| pin.accept(peer.certificate)))
            .with_no_client_auth();
        // Each check must be a handshake of its own: a resumed session would prove nothing of the
        // certificate.
        config.resumption = rustls::client::Resumption::disabled();
        // Only the certificate tells who this is; an address in the clear helps nobody.
        config.enable_sni = false;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl PinVerifier {
    fn accept(&self, certificate: &[u8]) -> Result<(), Error> {
        let presented = der_sha256(certificate);
        let expected = self.expected.as_ref();
        let accepted = expected.is_none_or(|expected| *expected == presented);
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(presented);
        if accepted {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }
}
