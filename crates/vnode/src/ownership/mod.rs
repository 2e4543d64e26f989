//! Which replica serves which node.
//!
//! Nodes fall into slots by a hash of their names; each slot has a Lease of its own and is led by one
//! replica, by the election library. A replica that has lost a slot stops its nodes before anybody else may
//! take them, and its gate refuses the writes that are still under way. Slots are few (16), so that ten
//! thousand nodes cost eight requests per second, not five thousand.
//!
//! # Shares
//!
//! The Leases alone decide who serves what; shares are a courtesy among replicas. Each announces itself by a
//! Lease `NAME-IDENTITY`, and reads all of them every retry period. With `R` replicas alive, each is due
//! `slots / R`, rounded either way; one that holds more gives slots back one after the other, and one that
//! holds enough leaves free slots to those who do not. All replicas compute the same division from the same
//! Leases; where their views differ for a moment, a slot is free for a moment, or somebody's share too large.
//! A slot that stays free although it is due to somebody is anybody's.
//!
//! A replica that is shut down ends its announcement first and gives each slot back when its work has ended:
//! the others take it within a fraction of a second. One that dies is missed after a lease duration.
//!
//! # The hash
//!
//! FNV-1a with 64 bits (offset basis `0xcbf29ce484222325`, prime `0x100000001b3`) of the name's bytes, modulo
//! the number of slots. It is the same in all versions: replicas of two versions must not disagree. The
//! number of slots may be changed only while no replica runs: each announces its own, and one that sees
//! another with another number gives all its slots back and takes none, until that one is gone.

mod lock;
mod members;
mod plan;
mod share;
mod slot;
mod term;

#[cfg(test)]
mod tests;

pub use evenkeel_kubelet_api::Term;
pub use term::term;

use evenkeel_election::terms::TermFile;
use evenkeel_election::{Config, ConfigError, Gate, OnLoss, Work};
use kube::Client;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How nodes are shared among replicas.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// One replica serves all; nobody else may run.
    Alone,
    /// Several replicas share the nodes by slots.
    Slots {
        /// How many slots.
        slots: u16,
        /// Namespace of their Leases.
        namespace: String,
        /// Prefix of their names, common to all replicas.
        name: String,
        /// Timing and this replica's identity. It campaigns again after each loss and releases on a clean
        /// stop, whatever is said here of that.
        election: Config,
        /// Where the terms of this identity are noted, so that its next process has its slots at once.
        terms: Option<TermFile>,
    },
}

impl Sharing {
    /// Sixteen slots with the timing by which a dead replica's are taken over within 15 s: lease duration 10
    /// s, renew deadline 7 s, retry period 2 s.
    pub fn slots(namespace: &str, name: &str, identity: &str) -> Self {
        Self::Slots {
            slots: 16,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            election: Config {
                lease_duration: Duration::from_secs(10),
                renew_deadline: Duration::from_secs(7),
                retry_period: Duration::from_secs(2),
                ..Config::new(identity)
            },
            terms: None,
        }
    }

    /// Whether it can work.
    ///
    /// # Errors
    /// The timing, as the election library has it; no slots.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Alone => Ok(()),
            Self::Slots { slots: 0, .. } => Err(ConfigError("there must be at least one slot".to_owned())),
            Self::Slots { election, .. } => election.validate(),
        }
    }
}

/// A slot came or went.
#[derive(Clone)]
pub enum Change {
    /// Ours from now on; `client` writes only as long as it is.
    Gained {
        /// Number of the slot.
        slot: u16,
        /// A client behind the slot's gate.
        client: Client,
    },
    /// No longer ours: nothing may be done any more for its nodes. `done` is to be dropped when nothing is.
    Lost {
        /// Number of the slot.
        slot: u16,
        /// While it is kept the slot is not given back, for at most a lease duration.
        done: Option<Work>,
    },
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gained { slot, .. } => write!(f, "Gained({slot})"),
            Self::Lost { slot, .. } => write!(f, "Lost({slot})"),
        }
    }
}

/// The slots of this replica.
pub struct Ownership {
    changes: mpsc::UnboundedReceiver<Change>,
    /// Of the slots; none when alone.
    gates: Vec<Gate>,
}

impl Ownership {
    /// Stands for all slots until `shutdown`, and shares them fairly with the other replicas that are alive.
    /// What cannot work ([`Sharing::validate`]) is logged, and gains nothing.
    pub fn start(sharing: Sharing, client: Client, shutdown: CancellationToken) -> Self {
        let (told, changes) = mpsc::unbounded_channel();
        if let Err(error) = sharing.validate() {
            tracing::error!(%error, "no node can be served; correct how nodes are shared among replicas");
        }
        let gates = match sharing {
            Sharing::Alone => {
                // The receiver is just below.
                let _ = told.send(Change::Gained { slot: 0, client });
                tokio::spawn(async move {
                    shutdown.cancelled().await;
                    drop(told);
                });
                Vec::new()
            }
            Sharing::Slots {
                slots,
                namespace,
                name,
                mut election,
                terms,
            } => {
                election.on_loss = OnLoss::Campaign;
                election.release_on_cancel = true;
                election.coordinated = false;
                let gates: Vec<Gate> = (0..slots).map(|_| Gate::new()).collect();
                let group = share::Group {
                    client,
                    namespace,
                    name,
                    election,
                    terms,
                };
                tokio::spawn(share::run(group, gates.clone(), told, shutdown));
                gates
            }
        };
        Self { changes, gates }
    }

    /// The next change; `None` after the shutdown. Cancel safe.
    pub async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// The slot of a node.
    pub fn slot(&self, node: &str) -> u16 {
        slot_of(node, u16::try_from(self.gates.len()).unwrap_or(u16::MAX))
    }

    /// The slot's gate; none when alone.
    pub fn gate(&self, slot: u16) -> Option<Gate> {
        self.gates.get(usize::from(slot)).cloned()
    }
}

/// The slot of a node among so many.
fn slot_of(node: &str, slots: u16) -> u16 {
    let slot = fnv(node) % u64::from(slots.max(1));
    u16::try_from(slot).unwrap_or_default()
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
