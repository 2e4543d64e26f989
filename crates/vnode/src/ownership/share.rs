//! One replica's part in the sharing: its announcement, what it reads of the others, and what it does about
//! it.

use super::lock::Due;
use super::members::{Members, Patience, SeenLease};
use super::{Change, fnv, slot};
use evenkeel_api::names;
use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::terms::TermFile;
use evenkeel_election::{Config, Elector, Gate};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A member's Lease that has been silent for this long is deleted by whoever sees that.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Least time between two looks at the shares.
const BREATH: Duration = Duration::from_millis(100);

/// Who shares what.
pub(super) struct Group {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) election: Config,
    pub(super) terms: Option<TermFile>,
}

impl Group {
    /// Label of all Leases of the group.
    fn labels(&self) -> BTreeMap<String, String> {
        [(names::vnode::OWNERSHIP_LABEL.to_owned(), self.label())].into()
    }

    /// The group's name, as far as it fits into a label.
    fn label(&self) -> String {
        if self.name.len() <= 63 {
            self.name.clone()
        } else {
            format!("{:016x}", fnv(&self.name))
        }
    }

    fn slot_name(&self, slot: usize) -> String {
        format!("{}-{slot}", self.name)
    }

    /// Of the Lease by which this replica announces itself. The identity is any text: what a name cannot hold
    /// is replaced, and a hash keeps two apart.
    fn member_name(&self) -> String {
        let identity = &self.election.identity;
        let readable: String = identity
            .chars()
            .take(100)
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .collect();
        format!("{}-m-{readable}-{:08x}", self.name, fnv(identity) >> 32)
    }
}

/// Takes part until `shutdown`, and until all slots have been given back.
pub(super) async fn run(
    group: Group,
    gates: Vec<Gate>,
    told: mpsc::UnboundedSender<Change>,
    shutdown: CancellationToken,
) {
    let timing = group.election.clone();
    let look = Arc::new(Notify::new());
    let (wanted, may_take) = watch::channel(BTreeSet::new());
    let mut coordinator = Coordinator {
        leases: Api::namespaced(group.client.clone(), &group.namespace),
        slots: (0..gates.len()).map(|slot| group.slot_name(slot)).collect(),
        members: Members::default(),
        wanted,
        give_back: Vec::new(),
        leaving: BTreeSet::new(),
        is_mute: false,
        misfit: None,
        group,
    };
    let elections = TaskTracker::new();
    let mut ticks = tokio::time::interval(timing.retry_period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut has_begun = false;
    loop {
        let announces = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            _ = ticks.tick() => true,
            () = look.notified() => false,
        };
        // A resync may be given up half way: nothing depends on its end.
        let went_well = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            went_well = coordinator.resync(announces) => went_well,
        };
        if went_well && !has_begun {
            // Only now is it known what may be taken.
            has_begun = true;
            coordinator.begin(&gates, &may_take, &look, &told, &shutdown, &elections);
        }
        tokio::time::sleep(BREATH).await;
    }
    drop(told);
    coordinator.leave().await;
    elections.close();
    elections.wait().await;
}

struct Coordinator {
    group: Group,
    leases: Api<Lease>,
    /// Names of the slots' Leases.
    slots: Vec<String>,
    members: Members,
    wanted: watch::Sender<BTreeSet<usize>>,
    /// To have slots given back.
    give_back: Vec<Arc<Notify>>,
    /// Slots that are being given back.
    leaving: BTreeSet<usize>,
    /// The last look failed, and that was said.
    is_mute: bool,
    /// The replica that counts other slots, which was said.
    misfit: Option<(String, String)>,
}

impl Coordinator {
    fn begin(
        &mut self,
        gates: &[Gate],
        may_take: &watch::Receiver<BTreeSet<usize>>,
        look: &Arc<Notify>,
        told: &mpsc::UnboundedSender<Change>,
        shutdown: &CancellationToken,
        elections: &TaskTracker,
    ) {
        let Group {
            client,
            namespace,
            election,
            terms,
            ..
        } = &self.group;
        for (index, (name, gate)) in self.slots.iter().zip(gates).enumerate() {
            let give_back = Arc::new(Notify::new());
            self.give_back.push(Arc::clone(&give_back));
            let inner = match LeaseLock::new(client.clone(), namespace, name) {
                Ok(lock) => lock.with_labels(self.group.labels()),
                Err(error) => {
                    tracing::error!(%error, "a slot's Lease cannot have this name: correct namespace and name");
                    continue;
                }
            };
            let lock = Due {
                inner,
                slot: index,
                me: election.identity.as_str().into(),
                wanted: may_take.clone(),
                look: Arc::clone(look),
                patience: election.retry_period,
                held: Arc::default(),
            };
            let elector = match Elector::new(lock, election.clone()) {
                Ok(elector) => elector,
                Err(error) => {
                    tracing::error!(%error, "this replica cannot stand for a slot: correct the timing");
                    continue;
                }
            };
            let Ok(elector) = elector.with_gate(gate) else {
                tracing::error!(name, "a slot's gate is in use already, there is a defect");
                continue;
            };
            let elector = match terms {
                Some(terms) => elector.with_term_file(terms),
                None => elector,
            };
            let number = u16::try_from(index).unwrap_or(u16::MAX);
            let running = elector.run(shutdown.clone());
            elections.spawn(slot::follow(
                number,
                running,
                client.clone(),
                give_back,
                told.clone(),
            ));
        }
    }

    /// Announces this replica where asked to, reads the others, and divides anew. Returns whether it could.
    async fn resync(&mut self, announces: bool) -> bool {
        let timeout = self.group.election.request_timeout();
        let read = tokio::time::timeout(timeout, async {
            if announces {
                self.announce().await?;
            }
            let selector = format!("{}={}", names::vnode::OWNERSHIP_LABEL, self.group.label());
            self.leases.list(&ListParams::default().labels(&selector)).await
        })
        .await;
        let problem = match read {
            Ok(Ok(found)) => {
                if std::mem::take(&mut self.is_mute) {
                    tracing::info!("the other replicas can be seen again");
                }
                self.divide(found.items).await;
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {timeout:?}"),
        };
        if !std::mem::replace(&mut self.is_mute, true) {
            tracing::warn!(
                namespace = self.group.namespace,
                problem,
                "cannot see which replicas are alive; shares stay as they are. It takes list, create, patch and delete on \
                 leases.coordination.k8s.io"
            );
        }
        false
    }

    async fn announce(&self) -> kube::Result<()> {
        let name = self.group.member_name();
        let Config {
            identity,
            lease_duration,
            ..
        } = &self.group.election;
        let spec = LeaseSpec {
            holder_identity: Some(identity.clone()),
            lease_duration_seconds: Some(i32::try_from(lease_duration.as_secs().max(1)).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(SystemClock.wall())),
            ..LeaseSpec::default()
        };
        let labels = self.group.labels();
        let count = self.slots.len().to_string();
        let annotations = BTreeMap::from([(names::vnode::OWNERSHIP_SLOTS.to_owned(), count)]);
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec});
        let patched = self
            .leases
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(name),
                        labels: Some(labels),
                        annotations: Some(annotations),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                self.leases
                    .create(&PostParams::default(), &lease)
                    .await
                    .map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    async fn divide(&mut self, found: Vec<Lease>) {
        let now = SystemClock.boot();
        let me = self.group.election.identity.clone();
        let leases: Vec<SeenLease> = found
            .into_iter()
            .map(|lease| SeenLease {
                count: lease
                    .metadata
                    .annotations
                    .and_then(|mut annotations| annotations.remove(names::vnode::OWNERSHIP_SLOTS)),
                name: lease.metadata.name.unwrap_or_default(),
                version: lease.metadata.resource_version.unwrap_or_default(),
                holder: lease
                    .spec
                    .and_then(|spec| spec.holder_identity)
                    .unwrap_or_default(),
            })
            .collect();
        let Config {
            lease_duration,
            retry_period,
            ..
        } = self.group.election;
        let patience = Patience {
            alive: lease_duration.saturating_sub(retry_period),
            free: lease_duration + retry_period * 2,
        };
        let view = self.members.observe(&leases, &me, &self.slots, patience, now);
        self.judge(view.misfit.clone());
        let plan = view.plan(&me);
        self.wanted.send_if_modified(|wanted| {
            let is_new = *wanted != plan.wanted;
            wanted.clone_from(&plan.wanted);
            is_new
        });
        // One after the other: the next when the last has passed into other hands.
        let holds = |slot: usize| {
            view.holders
                .get(slot)
                .is_some_and(|holder| holder.as_deref() == Some(&me))
        };
        self.leaving.retain(|slot| holds(*slot));
        // But all at once where a node may be served twice.
        let at_once = if view.misfit.is_some() {
            plan.surplus.len()
        } else {
            usize::from(self.leaving.is_empty())
        };
        for slot in plan.surplus.iter().rev().take(at_once) {
            if let Some(give_back) = self.give_back.get(*slot).filter(|_| self.leaving.insert(*slot)) {
                tracing::info!(slot, "giving a slot back");
                give_back.notify_one();
            }
        }
        self.sweep(&leases, now).await;
    }

    /// Says once that a replica counts other slots, and once that none does any more.
    fn judge(&mut self, misfit: Option<(String, String)>) {
        if self.misfit == misfit {
            return;
        }
        if let Some((other, count)) = &misfit {
            tracing::error!(
                other,
                slots = self.slots.len(),
                its_slots = count,
                "another replica shares the same nodes among another number of slots: no node is served here. Stop one of the \
                 two, and give all replicas of this name the same number of slots"
            );
        } else {
            tracing::info!("all replicas share among the same number of slots again");
        }
        self.misfit = misfit;
    }

    /// Deletes the announcements of replicas that are long dead.
    async fn sweep(&self, leases: &[SeenLease], now: Duration) {
        for lease in leases {
            if self.slots.contains(&lease.name) || self.members.silence(&lease.name, now) < FORGOTTEN {
                continue;
            }
            let exact = DeleteParams::default().preconditions(Preconditions {
                resource_version: Some(lease.version.clone()),
                uid: None,
            });
            if let Err(error) = self.leases.delete(&lease.name, &exact).await {
                tracing::debug!(%error, lease = lease.name, "a dead replica's announcement stays");
            }
        }
    }

    /// Ends the announcement, so that the others know before the slots are given back.
    async fn leave(&self) {
        let timeout = self.group.election.request_timeout();
        let name = self.group.member_name();
        let now = DeleteParams::default();
        let deletion = self.leases.delete(&name, &now);
        let error = match tokio::time::timeout(timeout, deletion).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {timeout:?}"),
        };
        tracing::warn!(error, "the Lease that shows this replica is left to run out");
    }
}
