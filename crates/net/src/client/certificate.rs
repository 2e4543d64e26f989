//! The client certificate of a configuration that names files, read again when they have changed.
//!
//! A kubelet replaces its certificate long before that ends, in the file that its kubeconfig names, and
//! agents on the host that use this file run for longer than a certificate lasts. An API server looks at the
//! certificate of a connection at each request on it. So there are new connections when there is a new
//! certificate.

use crate::file::Stamp;
use kube::Config;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The files are looked at with a request, and not more often than this.
const CHECK: Duration = Duration::from_secs(1);

/// The certificate in a pair of files. They may be one file.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    certificate: PathBuf,
    key: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<CertifiedKey>,
    /// Grows with each new certificate.
    version: u64,
    /// What `current` was read from.
    read: Stamps,
    /// Files that could not be used, and were told.
    refused: Option<Stamps>,
    checked: Instant,
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: pem::Error },
    #[error("certificate and key do not belong together: {0}")]
    Pair(#[from] rustls::Error),
    #[error("there is no crypto provider")]
    Crypto,
}

impl ClientCertificate {
    /// That of a configuration; nothing where it names no files.
    pub(super) fn of(config: &Config) -> Result<Option<Arc<Self>>, kube::Error> {
        let named = &config.auth_info;
        let inline = named.client_certificate_data.is_some() || named.client_key_data.is_some();
        let files = named.client_certificate.as_ref().zip(named.client_key.as_ref());
        let Some((certificate, key)) = files.filter(|_| !inline) else {
            return Ok(None);
        };
        let (certificate, key) = (PathBuf::from(certificate), PathBuf::from(key));
        let read = stamps(&certificate, &key);
        let current = load(&certificate, &key).map_err(|error| kube::Error::Service(error.into()))?;
        let state = State {
            current: Arc::new(current),
            version: 0,
            read,
            refused: None,
            checked: Instant::now(),
        };
        Ok(Some(Arc::new(Self {
            certificate,
            key,
            state: Mutex::new(state),
        })))
    }

    /// A number that is another one for each certificate that was read.
    pub(super) fn version(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= CHECK {
            state.checked = Instant::now();
            self.read_again(&mut state);
        }
        state.version
    }

    fn read_again(&self, state: &mut State) {
        let stamps = stamps(&self.certificate, &self.key);
        if stamps == state.read {
            return;
        }
        // Where certificate and key are two files, they change one after the other; and who may read them can
        // change without a trace in their stamps. So what cannot be used is tried again each time.
        match load(&self.certificate, &self.key) {
            Ok(current) => {
                tracing::info!(certificate = %self.certificate.display(), "the client certificate has changed");
                state.current = Arc::new(current);
                state.version += 1;
                (state.read, state.refused) = (stamps, None);
            }
            Err(error) => {
                if state.refused.replace(stamps) != Some(stamps) {
                    tracing::warn!(%error, "the client certificate stays the one that was read last");
                }
            }
        }
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&state.current))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

type Stamps = [Option<Stamp>; 2];

fn stamps(certificate: &Path, key: &Path) -> Stamps {
    [certificate, key].map(|path| Stamp::of_file(path).ok())
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, Unusable> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        |source| Unusable::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(fail(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(fail(key))?;
    let provider = CryptoProvider::get_default().ok_or(Unusable::Crypto)?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}
