//! Which certificates are shown to kubelets, and which are accepted of them.

use super::address::{self, KubeletAddress};
use super::options::{KubeletOptions, KubeletTrust};
use crate::dial::{self, Connection};
use evenkeel_net::pki::{Identity, PkiError, authorities};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, SignatureScheme};
use std::sync::Arc;

/// How kubelets and pods are reached.
pub(crate) struct Kubelets {
    pub(crate) options: KubeletOptions,
    verifying: Arc<ClientConfig>,
    unverified: Arc<ClientConfig>,
    without_identity: Arc<ClientConfig>,
}

/// How a connection to a peer is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TLS with the server's client certificate; the kubelet's certificate is verified as the options say.
    Kubelet,
    /// The same without verification, where a client of the log asked for that.
    UnverifiedKubelet,
    /// TLS without certificate and verification: pods, services, other ports of a node.
    Tls,
    /// Bytes without encryption.
    Plain,
}

/// A kubelet, a pod or a service, and how a connection to it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) transport: Transport,
    /// Name or address that the certificate must be for.
    pub(crate) host: String,
    pub(crate) port: String,
}

impl Endpoint {
    /// The kubelet at an address.
    pub(crate) fn kubelet(address: &KubeletAddress) -> Self {
        Self {
            transport: Transport::Kubelet,
            host: address.host.clone(),
            port: address.port.to_string(),
        }
    }

    /// Host and port, as in `10.0.0.1:10250`.
    pub(crate) fn authority(&self) -> String {
        address::join(&self.host, &self.port)
    }

    /// Scheme, host and port, as in `https://10.0.0.1:10250`.
    pub(crate) fn url(&self) -> String {
        let scheme = match self.transport {
            Transport::Plain => "http",
            Transport::Kubelet | Transport::UnverifiedKubelet | Transport::Tls => "https",
        };
        format!("{scheme}://{}", self.authority())
    }
}

impl Kubelets {
    /// Shows `identity` to kubelets; `server_ca` is the authority of [`KubeletTrust::ServerCa`].
    pub(crate) fn new(
        options: &KubeletOptions,
        identity: &Identity,
        server_ca: &str,
    ) -> Result<Self, PkiError> {
        let verifying = match &options.trust {
            KubeletTrust::ServerCa => Some(verifier(server_ca)?),
            KubeletTrust::Authority(pem) => Some(verifier(pem)?),
            KubeletTrust::Anything => None,
        };
        let verifying = verifying.unwrap_or_else(anything);
        Ok(Self {
            options: options.clone(),
            verifying: config(verifying, Some(identity))?,
            unverified: config(anything(), Some(identity))?,
            without_identity: config(anything(), None)?,
        })
    }

    /// Opens a connection to a peer.
    pub(crate) async fn open(&self, endpoint: &Endpoint) -> Result<Box<dyn Connection>, String> {
        let tls = match endpoint.transport {
            Transport::Kubelet => Some(self.verifying.clone()),
            Transport::UnverifiedKubelet => Some(self.unverified.clone()),
            Transport::Tls => Some(self.without_identity.clone()),
            Transport::Plain => None,
        };
        dial::open(&endpoint.authority(), &endpoint.host, tls).await
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn unusable(what: &str, reason: &dyn std::fmt::Display) -> PkiError {
    PkiError::Read {
        what: what.to_owned(),
        reason: reason.to_string(),
    }
}

fn verifier(ca_pem: &str) -> Result<Arc<dyn ServerCertVerifier>, PkiError> {
    let refuse = |reason: &dyn std::fmt::Display| unusable("the authority of kubelets", reason);
    let roots = authorities("the authority of kubelets", ca_pem)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| refuse(&error))?;
    Ok(verifier)
}

/// Whether a text is good for [`KubeletTrust::Authority`].
#[cfg(feature = "cli")]
pub(crate) fn check_authority(ca_pem: &str) -> Result<(), PkiError> {
    verifier(ca_pem).map(|_verifier| ())
}

fn config(
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, PkiError> {
    let what = "the client certificate for kubelets";
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(what, &error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some(identity) = identity else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(what, &error))?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|error| unusable(what, &error))?;
    let key = rustls::sign::CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| unusable(what, &error))?;
    Ok(Arc::new(
        builder.with_client_cert_resolver(Arc::new(Shown(Arc::new(key)))),
    ))
}

/// Shows the certificate to whoever asks for one, whatever authorities the peer names: as Go does with a
/// certificate that was chosen by configuration.
#[derive(Debug)]
struct Shown(Arc<rustls::sign::CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts every certificate whose key the peer has.
fn anything() -> Arc<dyn ServerCertVerifier> {
    evenkeel_net::verify::verifier(|_| Ok(()))
}
