//! The reader's side: from published evidence to what a reader may rely on.
//!
//! The judge believes no writer. A reader checks the signatures of more than half of the roster itself, and
//! remembers the newest sequence of every voter about every subject. Nothing else in a report decides
//! anything: not what it leaves out, not who wrote it, not its own numbers. The one exception is the age of a
//! round, which no voter signs; it can only make a round older than it is ([`Death::requested`]).
//!
//! A genuine majority can be kept back and shown later. So ballots count only if they sign the current
//! challenge of the controller, or the one before it, and a no only against the renewal of the node's Lease
//! that the round names (hazard 41).

mod cell;
mod evidence;

pub use evidence::Refusal;

use crate::Millis;
use crate::keys::{Ed25519, Verifier};
use crate::roster::{MemberId, Roster};
use crate::wire::{Challenge, Nonce, Renewal};
use cell::{Cell, Reader};
use evenkeel_api::zone::Report;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Evidence of life is worth this long after the reader received it (hazard 1).
pub const ALIVE_TTL_MS: u64 = 15_000;
/// Deaths that began within this time count for a storm (hazard 24).
pub const STORM_WINDOW_MS: u64 = 60_000;

/// A boot is young for this long: after a power cut that took several machines, some come back later than
/// others.
pub const YOUNG_BOOT_MS: u64 = 300_000;

/// What the signed evidence says of a node: the newest that was received, however long ago. Whether it still
/// counts is for the judge to say, which knows the time and how far the watches can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No valid evidence.
    None(NoVerdict),
    /// A majority of the roster had fresh contact with the node.
    Alive(Alive),
    /// A majority of the roster voted no in one round.
    Dead(Death),
    /// In a roster of two, the only peer voted no: one vote short of the majority (hazard 13).
    OneShort(Death),
}

/// Evidence of life: a majority of the zone had fresh contact with the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// When the reader received it.
    pub received: Millis,
    /// Until when a majority of the statements is fresh: [`ALIVE_TTL_MS`] after the contacts that they rest
    /// on.
    pub until: Millis,
    /// What the node's agent says of its link to the API server.
    pub cloud: Link,
    /// What the agent and its peers say of the kubelet.
    pub kubelet: Health,
    /// What the agent says of the container runtime.
    pub runtime: Health,
}

/// Evidence of death: one round of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The random name of the round.
    pub round: Nonce,
    /// The node's last renewal as the reporter read it before it asked. The round says that the node has been
    /// silent since this one, and nothing if there is a later one.
    pub renewal: Renewal,
    /// When the challenge that the ballots sign was drawn, if this reader drew it.
    pub challenged: Option<Millis>,
    /// When the voters were asked, on the reader's clock, by the most careful reading: the earliest possible.
    /// Evidence that was already there when the reader began, and signs no challenge of the reader's own, has
    /// an unknown age and reads as `Millis(0)`; reporters repeat their rounds every few seconds, and the next
    /// one has an age.
    pub requested: Millis,
    /// When the reader received it.
    pub received: Millis,
    /// For how long a majority had had no contact with the node when it signed, in milliseconds: the smallest
    /// age among the largest ages that make a majority. It is signed.
    pub silence_ms: u64,
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVerdict {
    /// The node is a member, and no evidence about it was received.
    NotListed,
    /// The node is in no roster.
    NotAMember,
    /// What was received is void: nothing of the zone has been seen to advance since the reader began (hazard
    /// 20).
    Void,
    /// The reporters say that there is no majority either way.
    NoMajority,
    /// Signatures, roster or sequence did not hold: the text was refused.
    Refused,
    /// The ballots sign neither the current challenge nor the one before it: they are old, or the reporter
    /// does not see the present one.
    OtherChallenge,
}

/// A node's link to the API server, as the node's agent sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// The agent has not been running for long enough to say, or said nothing.
    #[default]
    Unknown,
    /// The last contact with the API server is recent.
    Up,
    /// The last contact with the API server is too old, or there was none.
    Down,
}

/// Health of a part of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nobody has looked, or could tell.
    #[default]
    Unknown,
    /// The part answers.
    Ok,
    /// The part does not answer.
    Failing,
}

/// A challenge as a reader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// What ballots sign.
    pub challenge: Challenge,
    /// When it was drawn, if this reader itself drew it: times of other clocks are not compared.
    pub drawn: Option<Millis>,
}

/// Deaths of one cell, for what its zone adds up over its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Members that died within [`STORM_WINDOW_MS`], by signed evidence alone.
    pub recent: usize,
    /// All members.
    pub members: usize,
}

/// Whether a zone with these cells is in a storm: more than max(1, 25 %) of its members died within
/// [`STORM_WINDOW_MS`] (hazards 24 and 51).
pub fn is_storm(cells: &[Deaths]) -> bool {
    let sum = add_up(cells.iter());
    sum.recent > 1 && 4 * sum.recent > sum.members
}

/// Whether cells of a zone may convict both sides of one split: two or more of them convicted members within
/// [`STORM_WINDOW_MS`], together more than 25 % of their members. The smaller side of a zone can hold the
/// majority of a single cell, so that none of these deaths can be told from a split (hazard 42).
pub fn may_be_split(cells: &[Deaths]) -> bool {
    let convicting = || cells.iter().filter(|cell| cell.recent > 0);
    let sum = add_up(convicting());
    convicting().count() > 1 && 4 * sum.recent > sum.members
}

fn add_up<'a>(cells: impl Iterator<Item = &'a Deaths>) -> Deaths {
    cells.fold(Deaths::default(), |sum, cell| Deaths {
        recent: sum.recent + cell.recent,
        members: sum.members + cell.members,
    })
}

/// What a reader remembers of all cells, and what it concludes.
///
/// Feed it every roster and report that watches deliver and every renewal of a cell's Lease; ask it for
/// verdicts.
///
/// ```
/// # use evenkeel_zone::verdict::{Book, NoVerdict, Verdict};
/// let book = Book::new();
/// assert_eq!(book.verdict("4a5c…"), Verdict::None(NoVerdict::NotAMember));
/// ```
#[derive(Debug)]
pub struct Book {
    verifier: Arc<dyn Verifier>,
    /// By name of the cell.
    cells: BTreeMap<String, Cell>,
    /// What was seen of Leases, by whose they are.
    renewals: BTreeMap<MemberId, Renewal>,
}

impl Default for Book {
    fn default() -> Self {
        Self::new()
    }
}

impl Book {
    /// Knows nothing: every cell is void until it has been seen to advance once (hazard 20).
    pub fn new() -> Self {
        Self::verifying_with(Arc::new(Ed25519))
    }

    /// The same for members that sign by another scheme.
    pub fn verifying_with(verifier: Arc<dyn Verifier>) -> Self {
        Self {
            verifier,
            cells: BTreeMap::new(),
            renewals: BTreeMap::new(),
        }
    }

    fn parts(&mut self) -> (&mut BTreeMap<String, Cell>, Reader<'_>) {
        let reader = Reader {
            verifier: &*self.verifier,
            renewals: &self.renewals,
        };
        (&mut self.cells, reader)
    }

    /// Takes in the last renewal that the reader has seen of a node, by the node's UID; nothing once the node
    /// or its Lease is gone. A round that names another one replaces no round that names this one.
    pub fn renewed(&mut self, node_uid: &str, renewal: Option<Renewal>) {
        let id = MemberId::of(node_uid);
        match renewal {
            Some(renewal) => self.renewals.insert(id, renewal),
            None => self.renewals.remove(&id),
        };
    }

    /// Takes in a cell's roster as it was received at `now`, and counts again what was published under it.
    /// Returns what was refused, for logs.
    ///
    /// `cell` is the caller's key, the same in all calls. When the object that carries the roster is replaced
    /// by another of its name (its UID changed), call [`Book::forget`] first: versions and sequences begin
    /// anew.
    pub fn roster(&mut self, now: Millis, cell: &str, roster: Roster) -> Vec<Refusal> {
        let (cells, reader) = self.parts();
        let cell = cells.entry(cell.to_owned()).or_default();
        cell.roster(reader, now, roster)
    }

    /// Takes in what ballots of a cell have to sign, as it was received at `now`: the current challenge, and
    /// the one before it. What was published earlier and signs one of them that was not known before is
    /// counted now. Returns what was refused, for logs.
    pub fn challenges(&mut self, now: Millis, cell: &str, challenges: &[Issued]) -> Vec<Refusal> {
        let (cells, reader) = self.parts();
        let cell = cells.entry(cell.to_owned()).or_default();
        cell.challenges(reader, now, challenges)
    }

    /// Takes in what one reporter of a cell published, as it was received at `now`. Reports of different
    /// reporters are merged: the newest signed evidence counts, whoever published it. Returns what was
    /// refused, for logs; a refusal never changes a verdict that stands.
    pub fn report(&mut self, now: Millis, cell: &str, reporter: &str, report: &Report) -> Vec<Refusal> {
        let (cells, reader) = self.parts();
        let cell = cells.entry(cell.to_owned()).or_default();
        cell.report(reader, now, reporter, report)
    }

    /// A reporter's object is gone. What it published stands until it runs out.
    pub fn forget_report(&mut self, cell: &str, reporter: &str) {
        if let Some(known) = self.cells.get_mut(cell) {
            known.forget_report(reporter);
            if known.is_blank() {
                self.cells.remove(cell);
            }
        }
    }

    /// Takes in a renewal of the cell's Lease (its `renewTime` or holder changed), received at `now`. A
    /// holder whose name no member of the roster has says nothing. The first renewal only shows where the
    /// Lease stands; the second proves that somebody renews it.
    pub fn heartbeat(&mut self, now: Millis, cell: &str, holder: &str) {
        self.cells
            .entry(cell.to_owned())
            .or_default()
            .heartbeat(now, holder);
    }

    /// The cell's ZoneHealth is gone.
    pub fn forget(&mut self, cell: &str) {
        self.cells.remove(cell);
    }

    /// The verdict on a node. Of two cells that hold it, which is so for the moment in which a member moves,
    /// the one with evidence speaks.
    pub fn verdict(&self, node_uid: &str) -> Verdict {
        let id = MemberId::of(node_uid);
        let verdicts = self.cells.values().filter(|cell| cell.has_member(id));
        let mut verdicts = verdicts.map(|cell| cell.verdict(id));
        let Some(first) = verdicts.next() else {
            return Verdict::None(NoVerdict::NotAMember);
        };
        match first {
            Verdict::None(_) => verdicts
                .find(|verdict| !matches!(verdict, Verdict::None(_)))
                .unwrap_or(first),
            Verdict::Alive(_) | Verdict::Dead(_) | Verdict::OneShort(_) => first,
        }
    }

    /// Whether a cell's signed evidence made a member dead within [`STORM_WINDOW_MS`].
    pub fn died_lately(&self, cell: &str, node_uid: &str, now: Millis) -> bool {
        let id = MemberId::of(node_uid);
        self.cells.get(cell).is_some_and(|cell| cell.died_lately(id, now))
    }

    /// When the cell was last seen to advance: new signed evidence, or a renewal of its Lease by a member.
    pub fn advanced(&self, cell: &str) -> Option<Millis> {
        self.cells.get(cell).and_then(Cell::advanced)
    }

    /// Whether more than half of a cell's members, as far as their ballots were seen, booted less than
    /// [`YOUNG_BOOT_MS`] ago.
    pub fn is_returning(&self, cell: &str, now: Millis) -> bool {
        self.cells.get(cell).is_some_and(|cell| cell.is_returning(now))
    }

    /// The members of a cell that died lately, and all its members.
    pub fn deaths(&self, cell: &str, now: Millis) -> Deaths {
        self.cells
            .get(cell)
            .map(|cell| cell.deaths(now))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
