//! Verifiers of serving certificates that decide by rules of their own.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// What a server presents, and what is known when it does.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The server's own certificate.
    pub certificate: &'a CertificateDer<'a>,
    /// The certificates between it and an authority.
    pub intermediates: &'a [CertificateDer<'a>],
    /// The name by which the server was called.
    pub name: &'a ServerName<'a>,
    /// The stapled OCSP response; empty where there is none.
    pub ocsp: &'a [u8],
    /// The time now.
    pub now: UnixTime,
}

/// A verifier that takes a certificate where `accept` does. That the server holds the key of the certificate
/// is verified as always.
pub fn verifier<A>(accept: A) -> Arc<dyn ServerCertVerifier>
where
    A: Fn(&Presented<'_>) -> Result<(), Error> + Send + Sync + 'static,
{
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Arc::new(Verifier {
        accept,
        algorithms: provider.signature_verification_algorithms,
    })
}

struct Verifier<A> {
    accept: A,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<A> fmt::Debug for Verifier<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl<A> ServerCertVerifier for Verifier<A>
where
    A: Fn(&Presented<'_>) -> Result<(), Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.accept)(&Presented {
            certificate,
            intermediates,
            name,
            ocsp,
            now,
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
