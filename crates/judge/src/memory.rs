//! What is remembered of a node from one decision to the next.

use crate::state::{Dead, NodeState, Slow};
use evenkeel_zone::Millis;
use evenkeel_zone::wire::Renewal;

/// What is remembered of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// State as last decided.
    pub state: NodeState,
    /// When that state began.
    pub since: Millis,
    /// What only evidence takes back.
    pub latch: Latch,
    /// Since when a majority has said without a break that kubelet or runtime is broken.
    pub broken_since: Option<Millis>,
    /// Since when a majority has vouched for the node without a break, and called its kubelet and runtime
    /// well.
    pub well_since: Option<Millis>,
    /// Last evidence of life: a renewal, or an alive verdict; seen by this replica, or recorded by the
    /// leader.
    pub life: Option<Millis>,
    /// When the evidence of life began of which `life` is the last, without a gap that makes a Lease stale.
    pub lived_from: Option<Millis>,
    /// Since when this replica has known the node: where there is no evidence of life, silence counts from
    /// here.
    pub known_from: Option<Millis>,
    /// Since when there have been signs, without a break, that its zone is dark no more. While it is Dark.
    pub zone_returns: Option<Millis>,
    /// The node was Disconnected when this replica started, and no evidence of its own has come since.
    pub vouched_before: bool,
    /// How often the node was found dead lately.
    pub flaps: Flaps,
}

/// How often a node was found dead lately: each death counts 1 000, and half as much ten minutes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaps {
    sum: u32,
    at: Millis,
}

const ONE_DEATH: u32 = 1_000;
const HALF_LIFE_MS: f64 = 600_000.0;
/// From this sum on, a further death is not accelerated. Of a node that dies every minute that is the fifth
/// death, and the seventh if it dies every three minutes; one that dies every five minutes never gets there.
const FLAPS_FROM: u32 = 3 * ONE_DEATH;

impl Flaps {
    fn left(self, now: Millis) -> u32 {
        let halves = now.since(self.at) as f64 / HALF_LIFE_MS;
        (f64::from(self.sum) * (-halves).exp2()) as u32
    }

    /// Whether the node dies and returns too often for its pods to be moved each time.
    pub(crate) fn is_flapping(self, now: Millis) -> bool {
        self.left(now) >= FLAPS_FROM
    }

    /// The node was found dead once more.
    #[must_use]
    pub(crate) fn and_one(self, now: Millis) -> Self {
        Self {
            sum: self.left(now).saturating_add(ONE_DEATH),
            at: now,
        }
    }
}

/// What only evidence takes back, and what every replica must know. Stands in the NodeIncident before it is
/// acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Latch {
    /// Nothing is latched.
    #[default]
    Open,
    /// Found dead; left on evidence of life.
    Dead(DeadLatch),
    /// Its Lease was renewed after a dead verdict; left when its peers vouch for it again (hazard 38).
    Isolated {
        /// Since when it is Isolated.
        since: Millis,
    },
}

/// A death is confirmed by a round that signs a challenge which was drawn at least this long after its first
/// round was received (hazard 36).
pub const CONFIRMED_AFTER_MS: u64 = 12_000;
/// The same where the first round was received by another leader, whose clock is not ours.
pub const CONFIRMED_AFTER_ADOPTED_MS: u64 = 17_000;

/// A death from its first round on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLatch {
    /// When the voters of the first round were asked: the earliest possible.
    pub requested: Millis,
    /// The renewal after which the node was found dead; `None` where a former version recorded the death.
    pub renewal: Option<Renewal>,
    /// When the first round was received, by this process or by another leader, whose clock is not ours.
    pub received: Millis,
    /// When this process received a round first. A clock of the other leader that is behind ours by more than
    /// the node was silent before would else keep the death from ever being confirmed.
    pub own: Option<Millis>,
    /// A later round since which a majority of the voters had no contact, where that is so of none before: a
    /// voter had heard the node since, or began anew. Why a death that began with it is not accelerated.
    pub later: Option<(Millis, Option<Slow>)>,
    /// When a later round confirmed it.
    pub confirmed: Option<Millis>,
    /// Why its eviction is not accelerated.
    pub slow: Option<Slow>,
}

impl DeadLatch {
    /// Rounds with which the death may have begun: when each was received, from when on a challenge confirms
    /// it, and why it is not accelerated then. Two are by our clock, one by another leader's.
    pub fn first_rounds(&self) -> impl Iterator<Item = (Millis, Millis, Option<Slow>)> {
        let ours = |(first, slow): (Millis, _)| (first, first.plus(CONFIRMED_AFTER_MS), slow);
        let own = self.own.map(|own| ours((own, None)));
        let theirs = Some(self.received).filter(|_| self.own != Some(self.received));
        let theirs = theirs.map(|first| (first, first.plus(CONFIRMED_AFTER_ADOPTED_MS), None));
        own.into_iter().chain(theirs).chain(self.later.map(ours))
    }
}

/// A node as its open incident has it: what another replica, or a former life of this one, has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The state that was recorded.
    pub state: NodeState,
    /// Since when it is in that state, on our clock and never ahead of it.
    pub since: Millis,
    /// What only evidence takes back.
    pub latch: Latch,
    /// The leader's last evidence of life, where a death is latched.
    pub life: Option<Millis>,
}

impl Memory {
    /// Takes over what is recorded, where this replica knows nothing of its own (hazard 50). What it learns
    /// itself later counts as everything does that it sees.
    pub fn adopt(&mut self, recorded: &Recorded) {
        if self.since == Millis(0) {
            self.state = match recorded.state {
                // A death is not begun by a record: what is done goes on when a new round says so.
                NodeState::Dead(_) => NodeState::Dead(Dead::Paused),
                state => state,
            };
            self.since = recorded.since;
            self.vouched_before = recorded.state == NodeState::Disconnected;
        }
        if let Latch::Dead(death) = recorded.latch {
            // The leader's last sign of life counts, so that every replica stops protecting the node when the
            // leader does. What this replica sees itself counts again from its next decision on. Without a
            // recorded sign of life, the node lived until the first round at the latest.
            self.life = recorded.life.or(self.life).or(Some(death.received));
        }
        match (&mut self.latch, recorded.latch) {
            (own @ Latch::Open, theirs) => *own = theirs,
            // The leader's confirmation counts here, too. The first round stays the one that this replica
            // received.
            (Latch::Dead(own), Latch::Dead(theirs)) => {
                own.confirmed = own.confirmed.or(theirs.confirmed);
                own.slow = own.slow.or(theirs.slow);
            }
            (own @ Latch::Dead(_), theirs @ Latch::Isolated { .. }) => *own = theirs,
            (Latch::Isolated { .. }, _) | (Latch::Dead(_), Latch::Open) => {}
        }
    }

    /// From when a silence counts.
    pub fn silent_from(&self) -> Option<Millis> {
        self.life.or(self.known_from)
    }

    /// The leader closed the incident, which ends its latches on every replica. A replica that cannot tell
    /// yet takes the node for healthy, as the leader does.
    pub fn close(&mut self) {
        self.latch = Latch::Open;
        self.vouched_before = false;
        self.state = NodeState::Healthy;
    }
}
