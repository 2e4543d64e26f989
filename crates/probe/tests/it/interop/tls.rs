//! Certificates that nobody should trust.

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// A server's certificate, made on the spot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Certificate {
    /// For another name.
    SelfSigned,
    /// Of the last century.
    Expired,
    /// For another name; wants one of the client.
    Mutual,
}

impl Certificate {
    /// Offers `protocols` by ALPN.
    pub(crate) fn acceptor(self, protocols: &[&[u8]]) -> TlsAcceptor {
        evenkeel_net::init_crypto();
        let mut parameters = rcgen::CertificateParams::new(vec!["elsewhere.example".to_owned()]).unwrap();
        if matches!(self, Self::Expired) {
            parameters.not_before = rcgen::date_time_ymd(1998, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(1999, 1, 1);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let chain = vec![certificate.der().clone()];
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder();
        let builder = if matches!(self, Self::Mutual) {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificate.der().clone()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots));
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, secret).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
