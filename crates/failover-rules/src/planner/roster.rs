//! Rosters: which nodes of a cell watch each other. Made of Nodes and AgentStatus objects by the leader
//! alone.

use evenkeel_api::crd::AgentStatusSpec;
use evenkeel_api::names::kept_out_of_rosters;
use evenkeel_api::zone::{RosterAcknowledgement, RosterContact, RosterMember, RosterSpec};
use evenkeel_zone::Millis;
use evenkeel_zone::keys::{KeyError, PublicKey};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Whether a node can be in a roster at all: control-plane and virtual nodes are not.
pub fn eligible(labels: &BTreeMap<String, String>) -> bool {
    kept_out_of_rosters(labels).is_none()
}

/// Public keys that were looked at and hold. A look costs some 10 µs, and rosters are made twice a second.
#[derive(Debug, Default)]
pub struct SoundKeys {
    keys: BTreeSet<String>,
    /// Next keys with proof: UID of the Node, present key, next key, proof.
    next: BTreeSet<[String; 4]>,
}

impl SoundKeys {
    fn check(&mut self, key: &str) -> Result<(), KeyError> {
        if !self.keys.contains(key) {
            PublicKey::from_base64(key)?;
            self.keys.insert(key.to_owned());
        }
        Ok(())
    }

    /// The next key that an agent announces, if it proves that it has it.
    fn next_of(&mut self, uid: &str, agent: &AgentStatusSpec) -> Option<String> {
        let (next, proof) = (agent.next_public_key.as_ref()?, agent.next_key_proof.as_ref()?);
        let claim = [uid, &agent.public_key, next, proof].map(str::to_owned);
        if !self.next.contains(&claim) {
            let present = PublicKey::from_base64(&agent.public_key).ok()?;
            let key = PublicKey::from_base64(next).ok()?;
            if present == key || !key.is_next_by(proof, uid, &present) {
                return None;
            }
            self.next.insert(claim);
        }
        Some(next.clone())
    }

    /// Forgets all where most are of agents that are gone.
    pub fn bound(&mut self, agents: usize) {
        if self.keys.len() > 2 * agents + 16 {
            self.keys.clear();
        }
        if self.next.len() > agents + 16 {
            self.next.clear();
        }
    }
}

/// A member from a node and what its agent says of itself, or why it cannot be one.
pub fn member(
    node: &str,
    node_uid: &str,
    agent: &AgentStatusSpec,
    keys: &mut SoundKeys,
) -> Result<RosterMember, String> {
    if agent.node_uid != node_uid {
        return Err(format!(
            "AgentStatus {node} speaks of a Node with UID {}, the Node has {node_uid}; its agent has to register anew",
            agent.node_uid
        ));
    }
    if agent.address.parse::<SocketAddr>().is_err() {
        return Err(format!(
            "AgentStatus {node}: address {:?} is not IP:PORT",
            agent.address
        ));
    }
    if let Err(error) = keys.check(&agent.public_key) {
        return Err(format!("AgentStatus {node}: publicKey: {error}"));
    }
    Ok(RosterMember {
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        address: agent.address.clone(),
        public_key: agent.public_key.clone(),
        next_public_key: keys.next_of(node_uid, agent),
        kubelet: agent.kubelet.clone(),
        learner: false,
    })
}

/// The members whose keys are their own. A key belongs to one agent: of several nodes that claim it, the one
/// that has it in a roster of `published`, as its key or as its next one, keeps it; if none has, it is
/// nobody's, and who has no other key becomes no member. Otherwise one agent would have two votes, and
/// readers would refuse the roster.
///
/// Returns what is to be told to people.
pub fn with_own_keys(published: &[&RosterMember], members: &mut Vec<RosterMember>) -> Vec<String> {
    let mut claims: BTreeMap<String, usize> = BTreeMap::new();
    for key in members.iter().flat_map(keys) {
        *claims.entry(key.to_owned()).or_default() += 1;
    }
    let present: BTreeSet<String> = members.iter().map(|member| member.uid.clone()).collect();
    let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
    for known in published.iter().filter(|known| present.contains(&known.uid)) {
        holders.extend(keys(known).map(|key| (key, known.uid.as_str())));
    }
    let owns = |uid: &str, key: &str| match holders.get(key) {
        Some(holder) => *holder == uid,
        None => claims.get(key) == Some(&1),
    };
    let mut complaints = Vec::new();
    members.retain(|member| {
        let is_own = owns(&member.uid, &member.public_key);
        if !is_own {
            complaints.push(format!(
                "node {}: another node claims the key of its agent as well, so that it is in no roster; see whose AgentStatus has \
                 publicKey or nextPublicKey {}, and give one of the agents another key",
                member.name, member.public_key
            ));
        }
        is_own
    });
    for member in members {
        let foreign = |key: &mut String| !owns(&member.uid, key);
        if let Some(key) = member.next_public_key.take_if(foreign) {
            complaints.push(format!(
                "node {}: another node claims the next key of its agent, {key}, as well, so that its key does not change",
                member.name
            ));
        }
    }
    complaints
}

/// The keys that a member's agent claims.
fn keys(member: &RosterMember) -> impl Iterator<Item = &str> {
    std::iter::once(&*member.public_key).chain(member.next_public_key.as_deref())
}

/// Whether this is the same agent as the published one: its key stayed, or is the one that was announced.
fn goes_on(published: &RosterMember, member: &RosterMember) -> bool {
    keys(published).any(|key| key == member.public_key)
}

/// While a cell has fewer voters, newcomers are voters at once. With two voters a cell convicts nobody by
/// itself, so that there is nothing that could be left to them.
const FOUNDERS: usize = 3;
/// A newcomer becomes a voter after this time where it has met a majority, though not everybody.
const LEARNS_MS: u64 = 30_000;
/// After this time former voters whose node renews its Lease count as having acknowledged a roster.
const SETTLES_MS: u64 = 60_000;
/// What takes longer than this is told to people.
const STUCK_MS: u64 = 300_000;
/// Agents that name a later version than the published one for so long have it: the API server was restored
/// from a backup, and what is published from here on must be later than what they have. Until then it may be
/// us who do not see the latest roster yet.
const AHEAD_MS: u64 = 30_000;
/// A roster's version grows by so much at most, whatever agents say.
const LONGEST_LEAP: i64 = 1_000;
/// A cell's roster gets a new version at most this often, but for members that are gone.
const BATCH_MS: u64 = 10_000;

/// What a leader remembers of a cell's roster beside the roster itself.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The version that is published, and since when.
    version: Option<(i64, Millis)>,
    /// Who votes, by UID and key, and since which version: whoever has acknowledged a later one knows them.
    voters: (BTreeSet<(String, String)>, i64),
    /// When that version came, and whether the roster has been waiting to settle since.
    voters_since: Millis,
    unsettled: bool,
    /// Since when these members have been learners, by node UID and key.
    learning: BTreeMap<(String, String), Millis>,
    /// The latest version of another roster that members name, where the published one is not later.
    ahead: Option<Ahead>,
}

#[derive(Clone, Copy, Debug)]
struct Ahead {
    published: i64,
    named: i64,
    since: Millis,
}

impl Progress {
    /// Notes what is published now.
    pub fn note(&mut self, published: &RosterSpec, now: Millis) {
        self.unsettled = !published.settled_voters.is_empty();
        // Of one version there is one list of members, and this is looked at twice a second.
        if self
            .version
            .is_some_and(|(version, _)| version == published.version)
        {
            return;
        }
        self.version = Some((published.version, now));
        let voters = published.members.iter().filter(|member| !member.learner);
        let voters = voters.map(identity).collect();
        if self.voters.0 != voters {
            self.voters = (voters, published.version);
            self.voters_since = now;
        }
        let members = published.members.iter();
        let learners: BTreeSet<(String, String)> =
            members.filter(|member| member.learner).map(identity).collect();
        self.learning.retain(|learner, _| learners.contains(learner));
        for learner in learners {
            self.learning.entry(learner).or_insert(now);
        }
    }

    /// Notes the version that members name of another roster than the published one. It may be the same.
    pub(super) fn note_named(&mut self, published: i64, named: Option<i64>, now: Millis) {
        // Whatever is published after this time goes beyond what was named; whoever names another roster
        // still waits anew.
        let goes_on = |before: &Ahead| before.published == published || now.since(before.since) < AHEAD_MS;
        let before = self.ahead.filter(goes_on);
        self.ahead = named.filter(|named| *named >= published).map(|named| Ahead {
            published,
            named,
            since: before.map_or(now, |before| before.since),
        });
    }

    /// The version that members have, where the published one is not later.
    fn ahead(&self, now: Millis) -> Option<i64> {
        let ahead = self.ahead?;
        (now.since(ahead.since) >= AHEAD_MS).then_some(ahead.named)
    }

    /// Node UIDs of members that have been learners for too long, and whether the roster has waited for too
    /// long to settle.
    pub fn stuck(&self, now: Millis) -> (Vec<&str>, bool) {
        let late = |since: &Millis| now.since(*since) >= STUCK_MS;
        let learners = self.learning.iter().filter(|(_, since)| late(since));
        let learners = learners.map(|((uid, _), _)| uid.as_str()).collect();
        (learners, self.unsettled && late(&self.voters_since))
    }

    pub(super) fn version_age(&self, now: Millis) -> u64 {
        self.version.map_or(u64::MAX, |(_, since)| now.since(since))
    }
}

fn identity(member: &RosterMember) -> (String, String) {
    (member.uid.clone(), member.public_key.clone())
}

/// What a member says and shows, as far as its standing in the cell depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// What its agent last said of this cell's roster: the version that it has in force, how many members it
    /// has met, and how many of these have a vote.
    pub acknowledged: Option<Acknowledged>,
    /// Its node renews its Lease.
    pub renews: bool,
    /// It is listed: nobody has to meet it now.
    pub listed: bool,
}

/// What an agent says of a roster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    pub version: i64,
    pub met: usize,
    pub met_voters: usize,
}

impl Acknowledged {
    /// What an agent with this key says of the cell whose ZoneHealth has this name and UID; nothing if it
    /// speaks of another one, or said so under another key.
    pub fn read(said: Option<&RosterAcknowledgement>, (cell, uid): (&str, &str), key: &str) -> Option<Self> {
        let count = |count| usize::try_from(count).unwrap_or_default();
        let said = said.filter(|said| said.cell == cell && said.cell_uid == uid && said.public_key == key)?;
        Some(Self {
            version: said.version,
            met: count(said.met),
            met_voters: count(said.met_voters),
        })
    }
}

/// A cell's roster as it shall be, and nothing if it is to stay as it is.
///
/// `current` is the last roster that counted, and whether the object shows it; a version never goes back,
/// also when the object was deleted, somebody else has written something, or the API server was restored from
/// a backup. `members` is who shall be in the
/// cell, `contacts` whom it asks to write for it. A cell that never had a member gets no roster; one that
/// lost its last member gets an empty one.
pub fn next(
    (current, shown): (Option<&RosterSpec>, bool),
    (mut members, contacts): (Vec<RosterMember>, Vec<RosterContact>),
    signs: &dyn Fn(&str) -> Signs,
    (progress, now): (&Progress, Millis),
) -> Option<RosterSpec> {
    if members.is_empty() && current.is_none_or(|roster| roster.members.is_empty()) {
        return None;
    }
    members.sort_by(|a, b| a.uid.cmp(&b.uid));
    appoint(current, &mut members, signs, (progress, now));
    let settled_voters = unsettled_since(current, &members, signs, (progress, now));
    let ahead = progress.ahead(now);
    if let Some(roster) = current.filter(|_| shown && ahead.is_none()) {
        let same = roster.members == members && roster.contacts == contacts;
        let settles = same && roster.settled_voters != settled_voters;
        let waits = can_wait(roster, &members) && progress.version_age(now) < BATCH_MS;
        if !settles && (same || waits) {
            return None;
        }
    }
    let version = current.map_or(0, |roster| roster.version);
    let ahead = ahead.map_or(version, |ahead| ahead.min(version.saturating_add(LONGEST_LEAP)));
    let roster = RosterSpec {
        version: version.max(ahead).saturating_add(1),
        members,
        settled_voters,
        contacts,
        ..RosterSpec::default()
    };
    roster.has_version().then_some(roster)
}

/// Says who has a vote. Whoever comes, or comes with another key, has met nobody and is a learner first.
fn appoint(
    current: Option<&RosterSpec>,
    members: &mut [RosterMember],
    signs: &dyn Fn(&str) -> Signs,
    (progress, now): (&Progress, Millis),
) {
    let published = current.into_iter().flat_map(|roster| &roster.members);
    let published: BTreeMap<&str, &RosterMember> =
        published.map(|known| (known.uid.as_str(), known)).collect();
    let known = |member: &RosterMember| {
        let known = published.get(member.uid.as_str()).copied();
        known.filter(|known| goes_on(known, member))
    };
    let is_voter = |member: &RosterMember| known(member).is_some_and(|known| !known.learner);
    let voters = members.iter().filter(|member| is_voter(member)).count();
    let unlisted = members.iter().filter(|member| !signs(&member.uid).listed).count();
    let has_learnt = |member: &RosterMember| {
        let Some(since) = progress.learning.get(&identity(member)) else {
            return false;
        };
        let signs = signs(&member.uid);
        let said = signs
            .acknowledged
            .filter(|said| current.is_some_and(|roster| said.version <= roster.version));
        let Some(said) = said else {
            return false;
        };
        let others = unlisted.saturating_sub(usize::from(!signs.listed));
        said.met >= others || now.since(*since) >= LEARNS_MS && said.met_voters > voters / 2
    };
    let learners: Vec<bool> = members
        .iter()
        .map(|member| {
            // Who has not met the others for long gets no vote because some of them leave.
            let founds = voters == 0 || voters < FOUNDERS && known(member).is_none();
            !founds && !is_voter(member) && !has_learnt(member)
        })
        .collect();
    for (member, learner) in members.iter_mut().zip(learners) {
        member.learner = learner;
    }
}

/// The voters of the last settled roster that are still among the members, which are sorted by UID, while
/// most of them do not know that others vote now; nobody where there is nothing to settle.
fn unsettled_since(
    current: Option<&RosterSpec>,
    members: &[RosterMember],
    signs: &dyn Fn(&str) -> Signs,
    (progress, now): (&Progress, Millis),
) -> Vec<String> {
    let Some(current) = current else {
        return Vec::new();
    };
    let voters = |members: &[RosterMember]| -> BTreeSet<String> {
        let voters = members.iter().filter(|member| !member.learner);
        voters.map(|member| member.uid.clone()).collect()
    };
    let mut settled: BTreeSet<String> = current.settled_voters.iter().cloned().collect();
    if settled.is_empty() {
        settled = voters(&current.members);
    }
    settled.retain(|uid| members.binary_search_by(|member| member.uid.cmp(uid)).is_ok());
    // One founder cannot hold back everybody who joined.
    if settled.len() < 2 || settled == voters(members) {
        return Vec::new();
    }
    let waited = now.since(progress.voters_since) >= SETTLES_MS;
    let knows = |uid: &&String| {
        let signs = signs(uid);
        let versions = progress.voters.1..=current.version;
        let acknowledged = signs
            .acknowledged
            .is_some_and(|said| versions.contains(&said.version));
        acknowledged || waited && signs.renews
    };
    let same = current.members == members;
    if same && settled.iter().filter(knows).count() > settled.len() / 2 {
        return Vec::new();
    }
    settled.into_iter().collect()
}

/// Whether a change can wait until others come together with it: nobody has left, and the cell has voters
/// enough to convict.
fn can_wait(current: &RosterSpec, members: &[RosterMember]) -> bool {
    let stays = |known: &RosterMember| members.iter().any(|member| member.uid == known.uid);
    let voters = current.members.iter().filter(|member| !member.learner);
    voters.count() >= FOUNDERS && current.members.iter().all(stays)
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
