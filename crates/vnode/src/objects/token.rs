//! Tokens of ServiceAccounts, bound to pods.

use super::read::{ReadError, Reader};
use crate::core::volume::TokenSource;
use crate::provider::{Fault, FaultKind, PodId};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use rand::Rng as _;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A token serves so long at the most, however long it is valid.
const MOST_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Spread of renewals, so that tokens that were made at once are not renewed at once.
const JITTER: Duration = Duration::from_secs(10);
/// Time between two tries to renew one that is still valid.
const AGAIN: Duration = Duration::from_secs(10);
/// Tokens that are kept; a further one is requested each time that it is read. Some 30 MiB.
const MOST: usize = 20_000;

/// Tokens by pod.
#[derive(Default)]
pub(super) struct Tokens {
    pods: Mutex<Pods>,
}

#[derive(Default)]
struct Pods {
    by_uid: HashMap<Arc<str>, HashMap<Key, Arc<Slot>>>,
    count: usize,
}

/// Account and source.
type Key = (String, TokenSource);

/// Who holds the lock requests; the others wait.
#[derive(Default)]
struct Slot {
    token: tokio::sync::Mutex<Option<Token>>,
}

struct Token {
    text: Arc<str>,
    renew: Instant,
    expires: Instant,
}

impl Tokens {
    /// A token that is valid.
    pub(super) async fn get(
        &self,
        reader: &Reader,
        pod: &PodId,
        account: &str,
        of: &TokenSource,
    ) -> Result<Arc<str>, Fault> {
        let account = if account.is_empty() { "default" } else { account };
        let slot = self.slot(pod, account, of);
        let mut kept = slot.token.lock().await;
        let now = Instant::now();
        if let Some(token) = kept.as_ref().filter(|token| now < token.renew) {
            return Ok(token.text.clone());
        }
        match request(reader, pod, account, of).await {
            Ok(token) => {
                let text = token.text.clone();
                *kept = Some(token);
                Ok(text)
            }
            Err(fault) => match kept.as_mut().filter(|token| Instant::now() < token.expires) {
                Some(token) => {
                    tracing::warn!(%pod, account, error = %fault, "cannot renew a token; the old one serves on");
                    token.renew = Instant::now() + AGAIN;
                    Ok(token.text.clone())
                }
                None => Err(fault),
            },
        }
    }

    /// Forgets a pod's.
    pub(super) fn forget(&self, pod: &PodId) {
        let mut pods = self.lock();
        if let Some(slots) = pods.by_uid.remove(&pod.uid) {
            pods.count -= slots.len();
        }
    }

    fn slot(&self, pod: &PodId, account: &str, of: &TokenSource) -> Arc<Slot> {
        let key = (account.to_owned(), of.clone());
        let mut pods = self.lock();
        if let Some(slot) = pods.by_uid.get(&pod.uid).and_then(|slots| slots.get(&key)) {
            return slot.clone();
        }
        let slot = Arc::<Slot>::default();
        if pods.count >= MOST {
            pods.sweep(Instant::now());
        }
        if pods.count < MOST {
            pods.count += 1;
            let slots = pods.by_uid.entry(pod.uid.clone()).or_default();
            slots.insert(key, slot.clone());
        }
        slot
    }

    /// A panic while it was held leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tokens that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.lock().count
    }
}

impl Pods {
    /// Drops those that would be renewed and that nobody has read since.
    fn sweep(&mut self, now: Instant) {
        self.by_uid.retain(|_, slots| {
            slots.retain(|_, slot| match slot.token.try_lock() {
                Ok(token) => token.as_ref().is_some_and(|token| now < token.renew),
                Err(_) => true,
            });
            !slots.is_empty()
        });
        self.count = self.by_uid.values().map(HashMap::len).sum();
    }
}

async fn request(reader: &Reader, pod: &PodId, account: &str, of: &TokenSource) -> Result<Token, Fault> {
    let audiences = Some(of.audience.clone()).filter(|audience| !audience.is_empty());
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audiences.into_iter().collect(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name.to_string()),
                uid: Some(pod.uid.to_string()),
            }),
            expiration_seconds: Some(of.expiration),
        },
        ..TokenRequest::default()
    };
    // From here, not from the time in the answer: the API server's clock may be another.
    let began = Instant::now();
    let answer = reader.token(&pod.namespace, account, &wanted).await;
    let answer = answer.map_err(|error| fault(pod, account, &error))?;
    let Some(status) = answer.status.filter(|status| !status.token.is_empty()) else {
        return Err(fault(pod, account, &ReadError::Unreadable));
    };
    let seconds = answer.spec.expiration_seconds.unwrap_or(of.expiration);
    let life = Duration::from_secs(seconds.clamp(0, i64::from(u32::MAX)).unsigned_abs());
    let jitter = JITTER.mul_f64(rand::rng().random());
    Ok(Token {
        text: status.token.into(),
        renew: began + (life / 5 * 4).min(MOST_LIFE).saturating_sub(jitter),
        expires: began + life,
    })
}

fn fault(pod: &PodId, account: &str, error: &ReadError) -> Fault {
    let kind = match error {
        ReadError::Refused { code: 400 | 422, .. } | ReadError::Request(_) => FaultKind::Invalid,
        _ => FaultKind::Later,
    };
    let message = format!(
        "cannot get a token of serviceaccount {}/{account} for pod {pod}: {error}",
        pod.namespace
    );
    Fault::new(kind, "TokenRequestFailed", message)
}
