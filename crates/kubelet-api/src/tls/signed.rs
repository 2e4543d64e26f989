//! A certificate of the cluster's signer `kubernetes.io/kubelet-serving`.
//!
//! Nobody approves such requests by himself: the log says what to approve. Renewed when 70-90 % of its life
//! are over, asked for anew when the nodes have an address that it lacks; what is served with stays until the
//! new one is there.

mod held;
mod keep;
mod request;

pub use keep::Keep;
pub use request::{Request, RequestError};

use evenkeel_net::log::causes;
use evenkeel_net::pki::{Identity, PkiError, ServerNames};
use evenkeel_net::serve::ServerTls;
use held::Held;
use jiff::Timestamp;
use keep::KeepError;
use kube::Client;
use kube::api::ObjectMeta;
use rand::Rng as _;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How certificates are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The certificate's common name is `system:node:` and this. One certificate serves all nodes of the
    /// process.
    pub name: String,
    /// Where certificate and key outlive the process; without it, each start asks anew.
    pub keep: Option<Keep>,
    /// Time between looks at a request. 5 s.
    pub poll: Duration,
    /// For how long a request waits for its certificate before it is made anew. 15 min, as the kubelet's.
    pub patience: Duration,
    /// Wait after the first failure, doubled with each one that follows up to 1 h, less up to half of it by
    /// chance. 30 s.
    pub back_off: Duration,
}

impl Settings {
    /// The usual, for a process of this name, nothing kept.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            keep: None,
            poll: Duration::from_secs(5),
            patience: Duration::from_secs(15 * 60),
            back_off: Duration::from_secs(30),
        }
    }
}

/// Why there is no (new) certificate; all are worth a retry.
#[derive(Debug, thiserror::Error)]
enum SigningError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "CertificateSigningRequest {name} has no certificate after {after:?}: kubectl certificate approve {name}"
    )]
    Unapproved { name: String, after: Duration },
    #[error("the certificate of CertificateSigningRequest {name} is of no use")]
    Unusable {
        name: String,
        #[source]
        source: PkiError,
    },
}

/// Keeps `tls` in certificates until `shutdown`. `addresses` are those at which nodes are served; as long as
/// there are none, nothing is asked for.
pub async fn follow(
    settings: Settings,
    client: Client,
    tls: ServerTls,
    mut addresses: watch::Receiver<BTreeSet<IpAddr>>,
    shutdown: CancellationToken,
) {
    let signed = Signed {
        settings,
        client,
        tls,
    };
    shutdown.run_until_cancelled(signed.follow(&mut addresses)).await;
}

struct Signed {
    settings: Settings,
    client: Client,
    tls: ServerTls,
}

/// What ended a wait.
enum Woken {
    /// Time is over.
    Over,
    /// The addresses have changed.
    Changed,
}

impl Signed {
    async fn follow(&self, addresses: &mut watch::Receiver<BTreeSet<IpAddr>>) {
        let at = match addresses.wait_for(|addresses| !addresses.is_empty()).await {
            Ok(at) => at.clone(),
            // There will never be anything to serve.
            Err(_) => return,
        };
        let mut held = self.kept(&at).await;
        let mut failures = 0;
        loop {
            let wanted = addresses.borrow_and_update().clone();
            let rest = match &held {
                _ if wanted.is_empty() => Duration::MAX,
                Some(held) if held.names.covers(&wanted) => held.rest(Timestamp::now()),
                _ => Duration::ZERO,
            };
            if !rest.is_zero() {
                // In parts, for clocks that are set.
                wait(rest.min(Duration::from_secs(3_600)), addresses).await;
                continue;
            }
            let asked = tokio::select! {
                asked = self.ask(&wanted) => asked,
                () = changed(addresses) => continue,
            };
            match asked {
                Ok(new) => {
                    tracing::info!(until = %new.until, "serving with a certificate of the cluster's signer");
                    let identity = new.identity.clone();
                    held = Some(new);
                    failures = 0;
                    // One for other addresses would soon be kept instead.
                    tokio::select! {
                        () = self.keep(&wanted, &identity) => {}
                        () = changed(addresses) => {}
                    }
                }
                Err(error) => {
                    let rest = back_off(self.settings.back_off, failures);
                    tracing::warn!(error = causes(&error), again_in = ?rest, "no new serving certificate, trying again");
                    failures = failures.saturating_add(1);
                    if let Woken::Changed = wait(rest, addresses).await {
                        failures = 0;
                    }
                }
            }
        }
    }

    /// Asks for a certificate, waits for it, and serves with it.
    async fn ask(&self, wanted: &BTreeSet<IpAddr>) -> Result<Held, SigningError> {
        let addresses = ServerNames {
            ips: wanted.iter().copied().collect(),
            ..ServerNames::default()
        };
        let metadata = ObjectMeta {
            generate_name: Some("csr-".to_owned()),
            ..ObjectMeta::default()
        };
        let node = &self.settings.name;
        let request = Request::create(self.client.clone(), metadata, node, &addresses).await?;
        let name = request.name();
        let again = match &self.settings.keep {
            Some(keep) => format!("It will be kept in {keep}"),
            None => {
                "After a restart it is asked for anew, unless --certificate-secret or --state-dir keeps it"
                    .to_owned()
            }
        };
        tracing::info!(
            "the serving certificate waits for approval: kubectl certificate approve {name}. {again}"
        );

        let patience = self.settings.patience;
        let answer = tokio::time::timeout(patience, request.answer(self.settings.poll));
        let identity = answer.await.map_err(|_| SigningError::Unapproved {
            name: name.to_owned(),
            after: patience,
        })??;
        let unusable = |source| SigningError::Unusable {
            name: name.to_owned(),
            source,
        };
        let mut held = Held::read(identity, chance()).map_err(unusable)?;
        // Refuses a certificate for another key.
        self.tls.replace(&held.identity).map_err(unusable)?;
        // A signer that leaves names out is not asked for them time and again.
        held.names.extend(wanted);
        Ok(held)
    }

    /// What an earlier process kept, if it can still be served with.
    async fn kept(&self, addresses: &BTreeSet<IpAddr>) -> Option<Held> {
        let keep = self.settings.keep.as_ref()?;
        let texts = match self.insisting(keep, || keep.read(&self.client, addresses)).await {
            Ok(texts) => texts,
            Err(error) => {
                let error = causes(&error);
                tracing::warn!(
                    error,
                    "the serving certificate that is kept cannot be read: a new one is asked for"
                );
                return None;
            }
        };
        let now = Timestamp::now();
        let mut expired = None;
        for text in texts {
            let identity = Identity {
                certificate_pem: text.clone(),
                key_pem: text,
            };
            let served = Held::read(identity, chance()).and_then(|held| {
                // Another key than the certificate's is refused here. The first one that has expired is
                // better than nothing.
                if held.until > now || expired.is_none() {
                    self.tls.replace(&held.identity)?;
                }
                Ok(held)
            });
            match served {
                Ok(held) if held.until > now => {
                    tracing::info!(%keep, until = %held.until, "serving with the certificate that is kept");
                    return Some(held);
                }
                Ok(held) => expired = expired.or(Some(held.until)),
                Err(error) => {
                    let error = causes(&error);
                    tracing::warn!(%keep, error, "a serving certificate that is kept cannot be used");
                }
            }
        }
        if let Some(since) = expired {
            tracing::info!(%keep, %since, "the certificate that is kept there has expired");
        }
        None
    }

    async fn keep(&self, addresses: &BTreeSet<IpAddr>, identity: &Identity) {
        let Some(keep) = &self.settings.keep else {
            return;
        };
        let text = format!("{}{}", identity.certificate_pem, identity.key_pem);
        let written = self.insisting(keep, || keep.write(&self.client, addresses, text.clone()));
        match written.await {
            Ok(()) => tracing::info!(%keep, "the serving certificate is kept"),
            Err(error) => tracing::warn!(
                error = causes(&error),
                "the serving certificate is not kept: the next start asks for another one"
            ),
        }
    }

    /// Tries until it is done, or until it is clear that it will not be.
    async fn insisting<T, F: Future<Output = Result<T, KeepError>>>(
        &self,
        keep: &Keep,
        attempt: impl Fn() -> F,
    ) -> Result<T, KeepError> {
        let mut failures = 0;
        loop {
            match attempt().await {
                Err(error) if error.is_passing() => {
                    let rest = back_off(self.settings.back_off.min(FIRST), failures).min(LONGEST);
                    tracing::warn!(%keep, error = causes(&error), again_in = ?rest, "cannot reach what keeps the serving certificate, trying again");
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(rest).await;
                }
                done => return done,
            }
        }
    }
}

/// Wait after the first failure to read or write what is kept, and the longest: nobody is served meanwhile.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

/// Which part of its life a certificate is served with before it is renewed: not the same everywhere.
fn chance() -> f64 {
    rand::rng().random_range(0.7..=0.9)
}

fn back_off(first: Duration, failures: u32) -> Duration {
    let rest = first.saturating_mul(2_u32.saturating_pow(failures));
    rest.min(Duration::from_secs(3_600))
        .mul_f64(rand::rng().random_range(0.5..=1.0))
}

async fn wait(rest: Duration, addresses: &mut watch::Receiver<BTreeSet<IpAddr>>) -> Woken {
    tokio::select! {
        () = tokio::time::sleep(rest) => Woken::Over,
        () = changed(addresses) => Woken::Changed,
    }
}

/// Never, once nobody can change them any more.
async fn changed(addresses: &mut watch::Receiver<BTreeSet<IpAddr>>) {
    if addresses.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
