//! Certificate and key of two files, which somebody else renews.

use super::{Unreadable, read};
use evenkeel_net::log::causes;
use evenkeel_net::pki::{Identity, PkiError};
use evenkeel_net::serve::ServerTls;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Where they are. They may be one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// PEM, leaf first.
    pub certificate: PathBuf,
    /// File with the private key (PEM).
    pub key: PathBuf,
}

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// One of them cannot be read.
    #[error(transparent)]
    Read(#[from] Unreadable),
    /// They hold no certificate with its key; half of them may be new.
    #[error("{} and {} cannot be served with: {source}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The files that were read.
        files: Files,
        /// What is wrong with them.
        #[source]
        source: PkiError,
    },
}

impl Files {
    /// Serves with what the files hold now; returns what that is, for [`follow`](Self::follow).
    pub async fn load(&self, tls: &ServerTls) -> Result<Identity, FilesError> {
        let identity = self.read().await?;
        self.install(tls, &identity)?;
        Ok(identity)
    }

    /// Reads the files again and again, `every` so often, until `shutdown`. As long as they are unusable, for
    /// example since only one of the two is new, what was served with before stays.
    pub async fn follow(
        self,
        tls: ServerTls,
        mut served: Identity,
        every: Duration,
        shutdown: CancellationToken,
    ) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            match self.renew(&tls, &served).await {
                Ok(None) => {}
                Ok(Some(identity)) => {
                    tracing::info!(file = %self.certificate.display(), "serving with a new certificate");
                    served = identity;
                }
                Err(error) => {
                    let error = causes(&error);
                    tracing::warn!(error, "the serving certificate stays as it was; trying again");
                }
            }
        }
    }

    async fn renew(&self, tls: &ServerTls, served: &Identity) -> Result<Option<Identity>, FilesError> {
        let found = self.read().await?;
        if found.certificate_pem == served.certificate_pem && found.key_pem == served.key_pem {
            return Ok(None);
        }
        self.install(tls, &found)?;
        Ok(Some(found))
    }

    async fn read(&self) -> Result<Identity, Unreadable> {
        Ok(Identity {
            certificate_pem: read("the serving certificate", &self.certificate).await?,
            key_pem: read("the serving key", &self.key).await?,
        })
    }

    fn install(&self, tls: &ServerTls, identity: &Identity) -> Result<(), FilesError> {
        tls.replace(identity).map_err(|source| FilesError::Unusable {
            files: self.clone(),
            source,
        })
    }
}
