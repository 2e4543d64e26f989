//! TLS towards a peer that is known by its certificate, not by an authority.

use evenkeel_net::pki::der_sha256;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, Mutex, PoisonError};

/// Accepts the pinned certificate and no other. Name, issuer and dates of the certificate do not matter; that the
/// peer holds its key does, and is verified as always.
#[derive(Debug)]
pub(super) struct PinVerifier {
    /// SHA-256 of the DER in hex; `None` accepts any certificate.
    expected: Option<String>,
    presented: Mutex<Option<String>>,
    provider: Arc<CryptoProvider>,
}

impl PinVerifier {
    /// A verifier for one handshake.
    pub(super) fn new(expected: Option<&str>) -> Arc<Self> {
        Arc::new(Self {
            expected: expected.map(str::to_ascii_lowercase),
            presented: Mutex::new(None),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
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
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(self.clone())
            .with_no_client_auth();
        // Each check must be a handshake of its own: a resumed session would prove nothing of the certificate.
        config.resumption = rustls::client::Resumption::disabled();
        // Only the certificate tells who this is; an address in the clear helps nobody.
        config.enable_sni = false;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = der_sha256(end_entity);
        let accepted = self
            .expected
            .as_ref()
            .is_none_or(|expected| *expected == presented);
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(presented);
        if accepted {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
