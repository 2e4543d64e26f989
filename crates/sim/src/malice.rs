//! What one hostile member does, which holds a valid key of its own and no other.

use evenkeel_api::zone::{Report, SignedRound};
use evenkeel_zone::wire::RequestDigest;
use std::fmt;

/// How a member breaks the rules. Its agent runs, so that it is a member like any other; what it hears, sends
/// and publishes is changed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Malice {
    /// Answers no to every request at once, and publishes that all others are dead.
    SaysNo,
    /// Answers yes to every request at once, and publishes that all others live.
    SaysYes,
    /// Answers every request twice, no and yes, and publishes as many a no of its own as a majority has.
    SaysBoth,
    /// Says no to every request, after the longest silence there is, of a machine that booted just now; yes
    /// only with a contact just now.
    ForgesAges,
    /// Answers for those to whom it should pass something on, passes on what it has changed, and says that
    /// it has lost all others.
    LiesAsRelay,
    /// Asks for 64 rounds a second about all others.
    Asks,
    /// Keeps all ballots that it can get, of its own rounds too, and shows them later, each time beside a new
    /// one of its own that agrees.
    Hoards,
    /// The same with ballots that are older than challenges stand in a cell where somebody is listed.
    HoardsLong,
    /// Shows ballots under requests that name other suspects than those that were asked about.
    Swaps,
    /// Publishes reports that leave everybody out, or one member, or that hold the oldest rounds it has; and
    /// tells the others that it has published what they hold.
    Omits,
    /// Asks about all others naming renewals that it makes up, and publishes what was answered.
    NamesRenewals,
}

impl Malice {
    pub const ALL: [Self; 11] = [
        Self::SaysNo,
        Self::SaysYes,
        Self::SaysBoth,
        Self::ForgesAges,
        Self::LiesAsRelay,
        Self::Asks,
        Self::Hoards,
        Self::HoardsLong,
        Self::Swaps,
        Self::Omits,
        Self::NamesRenewals,
    ];

    /// Whether it keeps rounds that it has seen.
    pub(crate) fn keeps(self) -> bool {
        use Malice::{Hoards, HoardsLong, NamesRenewals, Omits, Swaps};
        matches!(self, Hoards | HoardsLong | Swaps | Omits | NamesRenewals)
    }
}

impl fmt::Display for Malice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SaysNo => "says no to everything",
            Self::SaysYes => "says yes to everything",
            Self::SaysBoth => "says no and yes to everything",
            Self::ForgesAges => "forges ages of contacts and of its boot",
            Self::LiesAsRelay => "lies as a relay",
            Self::Asks => "asks for as many rounds as it can",
            Self::Hoards => "keeps ballots back and shows them later",
            Self::HoardsLong => "keeps ballots back and shows them much later",
            Self::Swaps => "shows ballots under other requests",
            Self::Omits => "publishes what is old and leaves members out",
            Self::NamesRenewals => "names renewals that it makes up",
        })
    }
}

/// What a hostile member remembers.
#[derive(Debug)]
pub(crate) struct Hostile {
    pub(crate) malice: Malice,
    /// The number of its agent's present life.
    pub(crate) incarnation: u64,
    /// The last sequence that it used besides its agent. A ballot counts once, whoever made it up.
    pub(crate) sequence: u64,
    pub(crate) rounds: u64,
    /// Oldest first.
    pub(crate) kept: Vec<Kept>,
    /// What its agent has published last.
    pub(crate) draft: Report,
}

/// A round of its own, or one that somebody has published.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) digest: RequestDigest,
    pub(crate) round: SignedRound,
    pub(crate) accuses: bool,
    pub(crate) since: u64,
}

impl Hostile {
    pub(crate) fn new(malice: Malice) -> Self {
        Self {
            malice,
            incarnation: 0,
            sequence: 0,
            rounds: 0,
            kept: Vec::new(),
            draft: Report::default(),
        }
    }
}
