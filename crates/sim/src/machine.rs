//! A machine: what its processes are, and what survives on its disk.

use crate::candidate::Candidate;
use crate::clock::Clock;
use crate::malice::Hostile;
use crate::measure::Meter;
use evenkeel_api::zone::RosterAcknowledgement;
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::engine::{Engine, Met};
use evenkeel_zone::keys::Signer;
use evenkeel_zone::roster::Roster;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Machine {
    pub(crate) zone: String,
    /// Number of its cell, in a run of zones alone.
    pub(crate) cell: u32,
    pub(crate) powered: bool,
    pub(crate) stalled_until: Option<u64>,
    /// The agent's process alone is stopped until then.
    pub(crate) paused_until: Option<u64>,
    /// Datagrams that wait in the agent's socket while it does not run.
    pub(crate) unread: u32,
    /// The agent gets to each event up to so many milliseconds late, and keeps their order.
    pub(crate) slow: u64,
    pub(crate) slow_until: u64,
    pub(crate) clock: Clock,
    /// How often the node moved to another address, and how often its agent got another key.
    pub(crate) moves: u8,
    pub(crate) keys: u8,
    pub(crate) version: u64,
    pub(crate) kubelet_up: bool,
    pub(crate) kubelet_life: u64,
    pub(crate) kubelet_failures: u32,
    /// Whatever is asked of the kubelet, or asks by it, takes up to so many milliseconds longer.
    pub(crate) kubelet_slow: u64,
    /// Somebody else answers on its port.
    pub(crate) stranger: bool,
    pub(crate) agent_life: u64,
    /// What its AgentStatus says of the roster, in a run of zones alone.
    pub(crate) acknowledged: Option<RosterAcknowledgement>,
    pub(crate) signer: Arc<dyn Signer>,
    pub(crate) agent: Option<Agent>,
    /// Its agent breaks the rules.
    pub(crate) hostile: Option<Hostile>,
    /// When it booted last, if it did so within the run.
    booted: Option<u64>,
    /// On its disk: who was seen alive since the boot, the last roster, the sequences used.
    pub(crate) met: Met,
    pub(crate) roster: Arc<Roster>,
    pub(crate) sequence: u64,
    pub(crate) meter: Meter,
    /// Datagrams when promises were last looked at.
    pub(crate) sent_before: u64,
}

/// The watch of one agent.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Events of a former connection are void.
    pub(crate) epoch: u64,
    /// The last connection whose watch the API server has taken.
    pub(crate) taken: u64,
    pub(crate) stands: bool,
    pub(crate) cell: String,
    pub(crate) ends: u64,
    pub(crate) failures: u32,
}

/// An agent's process, from its start to its end.
pub(crate) struct Agent {
    pub(crate) engine: Engine,
    pub(crate) tick_at: u64,
    /// By kind and name of an object: its version as it was read last.
    pub(crate) current: BTreeMap<(Kind, String), u64>,
    pub(crate) standing: bool,
    /// It reports as soon as it has a link.
    pub(crate) ranked: bool,
    pub(crate) leading: bool,
    pub(crate) lease: Candidate,
    pub(crate) following: Following,
    /// By number of another cell: the versions of its ZoneHealth and ZoneChallenge that it knows.
    pub(crate) others: BTreeMap<u32, BTreeMap<Kind, u64>>,
    pub(crate) publishing: bool,
    pub(crate) proving: bool,
    pub(crate) proofs: Option<i64>,
    pub(crate) failures: u32,
}

impl Machine {
    pub(crate) fn new(zone: &str, signer: Arc<dyn Signer>, clock: Clock) -> Self {
        Self {
            zone: zone.to_owned(),
            cell: 0,
            powered: false,
            stalled_until: None,
            paused_until: None,
            unread: 0,
            slow: 0,
            slow_until: 0,
            clock,
            moves: 0,
            keys: 0,
            version: 1,
            kubelet_up: false,
            kubelet_life: 0,
            kubelet_failures: 0,
            kubelet_slow: 0,
            stranger: false,
            agent_life: 0,
            signer,
            agent: None,
            hostile: None,
            booted: None,
            acknowledged: None,
            met: Met::default(),
            roster: Arc::new(Roster::none()),
            sequence: 0,
            meter: Meter::default(),
            sent_before: 0,
        }
    }

    /// Power is back: a new boot, in which the agent has met nobody yet.
    pub(crate) fn boot(&mut self, now: u64) {
        self.booted = Some(now);
        self.met = Met::default();
    }

    /// For how many milliseconds it has been up. At the start of a run all have been for an hour.
    pub(crate) fn uptime(&self, now: u64) -> u64 {
        self.booted
            .map_or(3_600_000 + now, |booted| now.saturating_sub(booted))
    }

    /// The disk is lost, and with it what the agent remembered.
    pub(crate) fn lose_disk(&mut self) {
        self.met = Met::default();
        self.roster = Arc::new(Roster::none());
        self.sequence = 0;
    }

    /// The agent, if it is still the process of this life.
    pub(crate) fn agent_of(&mut self, life: u64) -> Option<&mut Agent> {
        let current = self.agent_life == life;
        self.agent.as_mut().filter(|_| current)
    }
}
