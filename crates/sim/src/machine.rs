//! A machine: what its processes are, and what survives on its disk.

use crate::api::objects::Object;
use crate::candidate::Candidate;
use evenkeel_zone::engine::Engine;
use evenkeel_zone::keys::Signer;
use evenkeel_zone::roster::{MemberId, Roster};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) struct Machine {
    pub(crate) zone: String,
    pub(crate) powered: bool,
    pub(crate) stalled_until: Option<u64>,
    /// Its boot clock at the start of the run.
    pub(crate) boot: u64,
    pub(crate) version: u64,
    pub(crate) kubelet_up: bool,
    pub(crate) kubelet_life: u64,
    pub(crate) kubelet_failures: u32,
    pub(crate) agent_life: u64,
    pub(crate) signer: Arc<dyn Signer>,
    pub(crate) agent: Option<Agent>,
    /// On its disk: who was seen alive, the last roster, the sequences used.
    pub(crate) seen_alive: BTreeSet<MemberId>,
    pub(crate) roster: Roster,
    pub(crate) sequence: u64,
}

/// An agent's process, from its start to its end.
pub(crate) struct Agent {
    pub(crate) engine: Engine,
    pub(crate) tick_at: u64,
    pub(crate) current: Option<(u64, Rc<Object>)>,
    pub(crate) standing: bool,
    pub(crate) leading: bool,
    pub(crate) lease: Candidate,
    pub(crate) polling: bool,
    /// When the next poll is due; others that were scheduled are void.
    pub(crate) poll_at: u64,
    pub(crate) publishing: bool,
    pub(crate) proving: bool,
    pub(crate) proofs: Option<i64>,
    pub(crate) failures: u32,
}

impl Machine {
    pub(crate) fn new(zone: &str, signer: Arc<dyn Signer>, boot: u64) -> Self {
        Self {
            zone: zone.to_owned(),
            powered: false,
            stalled_until: None,
            boot,
            version: 1,
            kubelet_up: false,
            kubelet_life: 0,
            kubelet_failures: 0,
            agent_life: 0,
            signer,
            agent: None,
            seen_alive: BTreeSet::new(),
            roster: Roster::none(),
            sequence: 0,
        }
    }

    /// The agent, if it is still the process of this life.
    pub(crate) fn agent_of(&mut self, life: u64) -> Option<&mut Agent> {
        let current = self.agent_life == life;
        self.agent.as_mut().filter(|_| current)
    }
}
