//! When the status is written.

use super::Posted;
use super::words::whole;
use crate::core::Now;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// How long a status that was refused is not written again, unless something changes.
const REFUSED: Duration = Duration::from_secs(60);
/// The longest time until a status is put right that somebody changes each time it is written.
const LONGEST: Duration = Duration::from_secs(300);

/// What is known of the written status.
#[derive(Debug, Default)]
pub(super) struct Posting {
    /// Digest of what was last asked to be written; 0 for nothing.
    wanted: u64,
    /// An answer is outstanding.
    under_way: bool,
    /// When it was last asked.
    at: Duration,
    /// How often what is wanted has been written. Once is enough, unless somebody (a webhook, an older API
    /// server) makes something else of it.
    written: u8,
    /// The newest version of which it is known that it has our status.
    version: u64,
    /// The newest version that was seen.
    seen: u64,
    /// Refused: when it is tried again.
    refused: Option<Duration>,
    /// The object shows another status than ours: when it is put right.
    amiss: Option<Duration>,
}

impl Posting {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// The object came; a refusal may not hold for what it is now.
    pub(super) fn sees(&mut self, pod: &Pod) {
        let version = version(pod);
        if version > self.seen {
            self.seen = version;
            self.refused = None;
        }
    }

    pub(super) fn posted(&mut self, posted: Posted, now: Now) {
        if !self.under_way {
            return;
        }
        self.under_way = false;
        match posted {
            Posted::Done(version) => {
                self.refused = None;
                self.written = self.written.saturating_add(1);
                self.version = self.version.max(version.parse().unwrap_or(0));
            }
            Posted::Overtaken => {}
            Posted::Refused(_) => self.refused = Some(now.mono.saturating_add(REFUSED)),
        }
    }

    /// Whether the object is older than what was written: then it says nothing of the status.
    pub(super) fn is_older(&self, pod: &Pod) -> bool {
        version(pod) < self.version
    }

    /// A status is wanted; one that was not wanted before may well stand as it is written.
    fn wants(&mut self, digest: u64) {
        if self.wanted != digest {
            self.wanted = digest;
            self.written = 0;
        }
    }

    /// When what was written is put right: later each time, as long as the same is wanted.
    fn again(&self, reconcile: Duration) -> Duration {
        let doublings = u32::from(self.written.saturating_sub(1).min(16));
        let delay = reconcile.saturating_mul(1 << doublings).min(LONGEST);
        self.at.saturating_add(delay.max(reconcile))
    }

    /// When there is something to be written next.
    pub(super) fn due(&self) -> Option<Duration> {
        if self.under_way {
            return None;
        }
        self.refused.or(self.amiss)
    }

    /// Whether the status is to be written, because the object shows another one.
    pub(super) fn is_to_be_written(
        &mut self,
        status: &PodStatus,
        pod: &Pod,
        reconcile: Duration,
        now: Duration,
    ) -> bool {
        let own = own(status, status);
        let digest = digest(&own);
        let shown = pod.status.as_ref().map(|theirs| {
            let mut shown = self::own(theirs, status);
            // API servers before 1.34 drop it: where there is none, that alone is no reason to write.
            shown.observed_generation = shown.observed_generation.or(own.observed_generation);
            shown
        });
        let older = self.is_older(pod);
        let same = !older && shown.as_ref() == Some(&own);
        self.amiss = None;
        // Whoever watches sees a pod Pending before it runs, as with a kubelet, however soon it runs: its
        // first status is not replaced on its way.
        if self.under_way && self.version == 0 && own.phase.as_deref() == Some("Running") {
            return false;
        }
        if digest == self.wanted {
            if same {
                self.refused = None;
                return false;
            }
            let due = match self.refused {
                Some(due) => due,
                None if self.under_way || older => return false,
                None => self.again(reconcile),
            };
            if self.under_way {
                return false;
            }
            if due > now {
                self.amiss = Some(due);
                return false;
            }
        } else if same && !self.under_way {
            self.wants(digest);
            self.refused = None;
            return false;
        }
        self.refused = None;
        self.wants(digest);
        self.under_way = true;
        self.at = now;
        true
    }
}

/// The part of a status that is ours, as far as `wanted` speaks of it; times of conditions aside.
fn own(status: &PodStatus, wanted: &PodStatus) -> PodStatus {
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let types: Vec<&str> = wanted
        .conditions
        .iter()
        .flatten()
        .map(|condition| condition.type_.as_str())
        .collect();
    let ours = |name: &str| types.contains(&name);
    let conditions = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| ours(&condition.type_));
    let mut conditions: Vec<_> = conditions
        .map(|condition| k8s_openapi::api::core::v1::PodCondition {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: text(&condition.reason),
            message: text(&condition.message),
            ..Default::default()
        })
        .collect();
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    let containers = |list: &Option<Vec<ContainerStatus>>| {
        let list: Vec<_> = list.iter().flatten().map(container).collect();
        (!list.is_empty()).then_some(list)
    };
    let some = |list: &Option<Vec<_>>| list.as_ref().filter(|list| !list.is_empty()).cloned();
    PodStatus {
        phase: text(&status.phase),
        reason: text(&status.reason),
        message: text(&status.message),
        conditions: Some(conditions),
        host_ip: text(&status.host_ip).filter(|_| wanted.host_ip.is_some()),
        host_ips: status
            .host_ips
            .clone()
            .filter(|list| !list.is_empty() && wanted.host_ips.is_some()),
        pod_ip: text(&status.pod_ip),
        pod_ips: some(&status.pod_ips),
        start_time: status.start_time.as_ref().map(|time| whole(time.0)),
        qos_class: text(&status.qos_class),
        observed_generation: status.observed_generation,
        init_container_statuses: containers(&status.init_container_statuses),
        container_statuses: containers(&status.container_statuses),
        ephemeral_container_statuses: containers(&status.ephemeral_container_statuses),
        ..PodStatus::default()
    }
}

fn container(status: &ContainerStatus) -> ContainerStatus {
    let state =
        |state: &Option<ContainerState>| state.clone().filter(|state| *state != ContainerState::default());
    ContainerStatus {
        name: status.name.clone(),
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        container_id: status.container_id.clone().filter(|id| !id.is_empty()),
        restart_count: status.restart_count,
        ready: status.ready,
        started: status.started,
        state: state(&status.state),
        last_state: state(&status.last_state),
        ..ContainerStatus::default()
    }
}

fn digest(status: &PodStatus) -> u64 {
    struct Sink(DefaultHasher);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    serde_json::to_writer(&mut sink, status)
        .expect("a PodStatus has string keys alone, and a hasher takes all");
    // 0 stands for nothing.
    sink.0.finish().max(1)
}

/// The object's version, as a number: 0 where it is none.
fn version(pod: &Pod) -> u64 {
    let version = pod.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
