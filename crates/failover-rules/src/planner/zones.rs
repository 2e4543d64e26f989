//! Plans the writes of rosters and of the status of policies.

use super::action::{Action, Plan};
use super::cells::{self, MOVES_WAIT_MS, divide};
use super::contacts::contacts;
use super::roster::{Acknowledged, Progress, Signs, eligible, member, next, with_own_keys};
use super::{Known, Planner};
use crate::world::facts::{CellFacts, Cluster, Shown};
use evenkeel_api::crd::FailoverPolicyStatus;
use evenkeel_api::names::{RACK_LABEL, zone_of};
use evenkeel_api::zone::{RosterContact, RosterMember, RosterSpec};
use evenkeel_judge::Latch;
use evenkeel_judge::policy::{effective, refused, selects};
use evenkeel_zone::Millis;
use evenkeel_zone::roster::cell_object_name;
use std::collections::{BTreeMap, BTreeSet};

/// The status of policies is written at most this often.
const POLICY_STATUS_MS: u64 = 10_000;

/// A roster that is not seen within this time counts as not written: a write takes 10 s at most, and is seen
/// some seconds later.
const PLANNED_MS: u64 = 30_000;

/// For so long a new leader writes no roster of a zone that has cells: what its predecessor wrote last may
/// not be seen yet, and members of a cell that is not seen would get other cells.
pub(super) const NEW_TERM_MS: u64 = 3_000;

/// The members of a roster that was planned and has not been seen since.
///
/// Cells of a large zone are written one after the other, and seen so, while the planner goes on. By what it
/// has seen alone, members of cells that are on their way would be newcomers and get other cells.
#[derive(Debug)]
pub(super) struct Planned {
    version: i64,
    uids: BTreeSet<String>,
    since: Millis,
}

/// Everybody who can be a member of a zone's cells.
#[derive(Default)]
struct Candidates {
    members: Vec<RosterMember>,
    /// By node UID.
    racks: BTreeMap<String, String>,
}

impl Planner {
    /// Plans a write for every cell whose published roster differs from what its nodes and agents say, and
    /// tells agents which cell they belong to.
    pub(super) fn publish_cells(&mut self, cluster: &Cluster, now: Millis, plan: &mut Plan) {
        let mut zones: BTreeMap<String, Candidates> = BTreeMap::new();
        for node in cluster.nodes.values().filter(|node| eligible(&node.labels)) {
            let Some(zone) = zone_of(&node.labels, self.config.default_zone.as_deref()) else {
                continue;
            };
            let agent = cluster.agents.get(&node.name);
            match agent.map(|agent| member(&node.name, &node.uid, agent, &mut self.sound_keys)) {
                Some(Ok(member)) => {
                    let candidates = zones.entry(zone).or_default();
                    let rack = node.labels.get(RACK_LABEL).cloned().unwrap_or_default();
                    candidates.racks.insert(node.uid.clone(), rack);
                    candidates.members.push(member);
                }
                Some(Err(why)) => plan.complaints.push(why),
                None => {}
            }
        }
        self.sound_keys.bound(cluster.agents.len());
        let unseen = unseen_cells(cluster);
        self.keep_listed(cluster, &unseen, &mut zones);
        let mut published: BTreeMap<&str, BTreeMap<u32, &CellFacts>> = BTreeMap::new();
        for facts in cluster.cells.values() {
            let of_zone = published.entry(&facts.zone).or_default();
            of_zone.insert(facts.number, facts);
            zones.entry(facts.zone.clone()).or_insert_with(|| {
                plan.complaints.push(format!(
                    "ZoneHealth {}: no node with an agent is in zone {:?}; it is deleted when that has lasted for {} minutes",
                    cell_object_name(&facts.zone, facts.number),
                    facts.zone,
                    MOVES_WAIT_MS / 60_000
                ));
                Candidates::default()
            });
        }
        self.note_listed(cluster, &unseen, now);
        self.rosters
            .retain(|object, _| cluster.cells.contains_key(object));
        for (object, facts) in &cluster.cells {
            let progress = self.rosters.entry(object.clone()).or_default();
            progress.note(&facts.roster, now);
            let named = named_instead(cluster, object, facts);
            progress.note_named(facts.roster.version, named, now);
        }
        self.planned.retain(|(zone, number), planned| {
            let seen = cluster.cells.get(&cell_object_name(zone, *number));
            let seen = seen.map(|facts| facts.roster.version);
            seen.is_none_or(|seen| seen < planned.version) && now.since(planned.since) < PLANNED_MS
        });
        let is_new = self
            .leads_since
            .is_none_or(|since| now.since(since) < NEW_TERM_MS);
        for (zone, candidates) in zones {
            let published = published.remove(zone.as_str()).unwrap_or_default();
            if published.is_empty() || !is_new {
                self.publish_zone(cluster, (&zone, candidates), (&published, &unseen), now, plan);
            }
        }
    }

    /// A member that is listed stays where it is published until its incident is closed, whatever becomes of
    /// its labels and its AgentStatus. Its neighbours alone can say that it lives, and nobody is asked about
    /// a node that is in no roster. Where most of its cell goes, it goes by its own labels, as they do.
    fn keep_listed(&self, cluster: &Cluster, unseen: &Unseen<'_>, zones: &mut BTreeMap<String, Candidates>) {
        let seen = cluster.cells.values().map(|facts| (&facts.zone, &facts.roster));
        let gone = unseen.iter().map(|((zone, _), roster)| (zone, *roster));
        let mut homes: BTreeMap<&str, (&str, &RosterMember)> = BTreeMap::new();
        for (zone, roster) in seen.chain(gone) {
            let candidates = zones.get(zone);
            let has_come =
                |member: &RosterMember| candidates.is_some_and(|all| all.racks.contains_key(&member.uid));
            let members = || roster.members.iter();
            let kept: Vec<_> = members().filter(|member| self.is_kept(cluster, member)).collect();
            if kept.is_empty() {
                continue;
            }
            let come = members().filter(|member| has_come(member)).count();
            let others = kept.iter().filter(|member| !has_come(member)).count();
            if 2 * (come + others) <= roster.members.len() {
                continue;
            }
            for member in kept {
                // On its way from one zone to another it is published in both.
                if has_come(member) || !homes.contains_key(member.uid.as_str()) {
                    homes.insert(&member.uid, (zone, member));
                }
            }
        }
        if homes.is_empty() {
            return;
        }
        let mut fresh: BTreeMap<String, RosterMember> = BTreeMap::new();
        for (zone, candidates) in zones.iter_mut() {
            let leaves = |member: &mut RosterMember| {
                homes
                    .get(member.uid.as_str())
                    .is_some_and(|(home, _)| home != zone)
            };
            for member in candidates.members.extract_if(.., leaves) {
                candidates.racks.remove(&member.uid);
                fresh.insert(member.uid.clone(), member);
            }
        }
        for (uid, (zone, member)) in homes {
            let candidates = zones.entry(zone.to_owned()).or_default();
            if !candidates.racks.contains_key(uid) {
                let labels = cluster.nodes.get(&member.name).map(|node| &node.labels);
                let rack = labels.and_then(|labels| labels.get(RACK_LABEL)).cloned();
                candidates.racks.insert(uid.to_owned(), rack.unwrap_or_default());
                let member = fresh.remove(uid).unwrap_or_else(|| member.clone());
                candidates.members.push(member);
            }
        }
    }

    /// Whether a member is listed and cannot speak for itself. One that is Isolated renews its Lease: where
    /// its labels say that it is, others may reach it.
    fn is_kept(&self, cluster: &Cluster, member: &RosterMember) -> bool {
        let isolated = |known: &Known| matches!(known.latch, Latch::Isolated { .. });
        let is_there = |member: &RosterMember| {
            let node = cluster.nodes.get(&member.name);
            node.is_some_and(|node| node.uid == member.uid)
        };
        self.is_listed(&member.uid) && !self.nodes.get(&member.uid).is_some_and(isolated) && is_there(member)
    }

    /// Remembers since when members have been listed, and since when each cell has had, without a break, a
    /// member that came to be listed lately.
    fn note_listed(&mut self, cluster: &Cluster, unseen: &Unseen<'_>, now: Millis) {
        let seen = cluster
            .cells
            .values()
            .map(|facts| (&facts.zone, facts.number, &facts.roster));
        let gone = unseen
            .iter()
            .map(|((zone, number), roster)| (zone, *number, *roster));
        let (mut listed, mut lately) = (BTreeMap::new(), BTreeMap::new());
        for (zone, number, roster) in seen.chain(gone) {
            let members = roster.members.iter().map(|member| &member.uid);
            for uid in members.filter(|uid| self.is_listed(uid)) {
                let since = self.listed_since.get(uid).copied().unwrap_or(now);
                listed.insert(uid.clone(), since);
                if now.since(since) < MOVES_WAIT_MS {
                    let cell = (zone.clone(), number);
                    let began = self.listed_lately.get(&cell).copied().unwrap_or(now);
                    lately.insert(cell, began);
                }
            }
        }
        (self.listed_since, self.listed_lately) = (listed, lately);
    }

    fn publish_zone(
        &mut self,
        cluster: &Cluster,
        (zone, mut candidates): (&str, Candidates),
        (published, unseen): (&BTreeMap<u32, &CellFacts>, &Unseen<'_>),
        now: Millis,
        plan: &mut Plan,
    ) {
        let known: Vec<&RosterMember> = published
            .values()
            .flat_map(|facts| &facts.roster.members)
            .collect();
        plan.complaints
            .extend(with_own_keys(&known, &mut candidates.members));
        name_unchecked(zone, &candidates.members, plan);
        name_unable(zone, &candidates.members, cluster, plan);
        let all: BTreeMap<String, RosterMember> = candidates
            .members
            .into_iter()
            .map(|member| (member.uid.clone(), member))
            .collect();
        candidates.racks.retain(|uid, _| all.contains_key(uid));
        let division = divide(&self.state_of(zone, (published, unseen), candidates.racks, now));
        plan.without_cell += division.without_cell.len();
        if !division.without_cell.is_empty() {
            plan.complaints.push(format!(
                "zone {zone:?}: no cell has room for {} node(s) now, so that only Kubernetes cares for them; it has within {} minutes \
                 unless most members of full cells are down or cut off, or when three wait",
                division.without_cell.len(),
                MOVES_WAIT_MS / 60_000
            ));
        }
        let cells = division.cells.iter();
        let home: BTreeMap<&str, u32> = cells
            .flat_map(|(number, uids)| uids.iter().map(|uid| (uid.as_str(), *number)))
            .collect();
        for (number, uids) in &division.cells {
            let leaving = leaving(*number, &home, published);
            let uids: BTreeSet<&String> = uids.iter().chain(leaving).collect();
            let members = uids.into_iter().filter_map(|uid| all.get(uid).cloned()).collect();
            let facts = published.get(number).copied();
            let object = cell_object_name(zone, *number);
            let named = facts.map_or(&[][..], |facts| &facts.roster.contacts);
            let contacts = contacts((&object, *number), named, &division.cells, &all);
            self.publish_cell(cluster, (zone, *number), facts, ((members, contacts), now), plan);
        }
    }

    /// What a member of a cell says and shows.
    fn signs(&self, cluster: &Cluster, cell: (&str, &str), member: &RosterMember, now: Millis) -> Signs {
        let agent = cluster.agents.get(&member.name);
        let said = agent.and_then(|agent| agent.roster.as_ref());
        let renewed = cluster.nodes.get(&member.name).and_then(|node| node.life.renewed);
        let stale_after = self.config.timing.stale_after;
        Signs {
            acknowledged: Acknowledged::read(said, cell, &member.public_key),
            renews: renewed.is_some_and(|at| now.since(at) < stale_after),
            listed: self.is_listed(&member.uid),
        }
    }

    /// The zone's cells as they are published or on their way, with what keeps members where they are.
    fn state_of(
        &self,
        name: &str,
        (published, unseen): (&BTreeMap<u32, &CellFacts>, &Unseen<'_>),
        present: BTreeMap<String, String>,
        now: Millis,
    ) -> cells::Zone {
        let of_zone = |number: u32| (name.to_owned(), number);
        let uids = |roster: &RosterSpec| -> BTreeSet<String> {
            roster.members.iter().map(|member| member.uid.clone()).collect()
        };
        let seen = published
            .iter()
            .map(|(number, facts)| (*number, uids(&facts.roster)));
        let mut cells: cells::Cells = seen.collect();
        // Somebody deleted the object. Its members are at home there until they are seen in another cell.
        let unseen = unseen.range(of_zone(0)..=of_zone(u32::MAX));
        let unseen = unseen.map(|((_, number), roster)| {
            let mut uids = uids(roster);
            uids.retain(|uid| !cells.values().any(|seen| seen.contains(uid)));
            (*number, uids)
        });
        let unseen: Vec<_> = unseen.collect();
        cells.extend(unseen);
        let is_listed = |uid: &&String| self.listed_since.contains_key(*uid);
        let waits = |number: &u32| {
            let since = self.listed_lately.get(&of_zone(*number));
            since.is_some_and(|since| now.since(*since) < MOVES_WAIT_MS)
        };
        let listed: BTreeSet<String> = cells.values().flatten().filter(is_listed).cloned().collect();
        let waiting: BTreeSet<u32> = cells.keys().copied().filter(waits).collect();
        // A member that came to be listed after it was planned that its cell changes keeps the others there.
        let stay = waiting.iter().filter_map(|number| cells.get(number)).flatten();
        let stay: BTreeSet<String> = stay.chain(&listed).cloned().collect();
        for ((_, number), planned) in self.planned.range(of_zone(0)..=of_zone(u32::MAX)) {
            let seen = cells.remove(number).unwrap_or_default();
            let newcomers = planned.uids.iter().filter(|uid| !stay.contains(*uid));
            let remain = seen
                .iter()
                .filter(|uid| planned.uids.contains(*uid) || stay.contains(*uid));
            cells.insert(*number, newcomers.chain(remain).cloned().collect());
        }
        cells::Zone {
            cells,
            present,
            listed,
            waiting,
        }
    }

    fn publish_cell(
        &mut self,
        cluster: &Cluster,
        (zone, number): (&str, u32),
        published: Option<&CellFacts>,
        ((members, contacts), now): ((Vec<RosterMember>, Vec<RosterContact>), Millis),
        plan: &mut Plan,
    ) {
        let object = cell_object_name(zone, number);
        let last = cluster.last_rosters.get(&(zone.to_owned(), number));
        let current = published.map(|facts| &facts.roster);
        let current = current.filter(|roster| roster.has_version()).or(last);
        let shown = published.is_some_and(|facts| facts.shown == Shown::Roster);
        let version = current.map_or(0, |roster| roster.version);
        if version == RosterSpec::LAST_VERSION {
            plan.complaints.push(format!(
                "ZoneHealth {object}: its roster has the largest version there is, {version}, which somebody wrote by hand; \
                 its members can never change again. While no node of the zone is Disconnected or Dark \
                 (`evenkeel status`), delete its ZoneHealth, then restart the controllers and the zone's agents"
            ));
        }
        let unknown = Progress::default();
        let progress = self.rosters.get(&object).unwrap_or(&unknown);
        // The first cell stays for a while: the zone may come back.
        let is_over = |facts: &CellFacts| {
            let is_empty = facts.roster.members.is_empty() && members.is_empty();
            is_empty && (number > 0 || progress.version_age(now) >= MOVES_WAIT_MS)
        };
        if published.is_none() && members.is_empty() {
            return;
        }
        if let Some(facts) = published.filter(|facts| is_over(facts) || facts.shown == Shown::Foreign) {
            let uid = facts.uid.clone();
            plan.actions.push(Action::DeleteCell { object, uid });
            return;
        }
        // Who is published is told, so that an agent never looks for a cell that is not there yet.
        let told_as = if number == 0 { "" } else { object.as_str() };
        for member in published.into_iter().flat_map(|facts| &facts.roster.members) {
            let told = cluster.told_cells.get(&member.name);
            let stays = members.iter().any(|wanted| wanted.uid == member.uid);
            if stays && told.is_some_and(|told| told != told_as) {
                plan.actions.push(Action::TellCell {
                    node: member.name.clone(),
                    object: told_as.to_owned(),
                });
            }
        }
        let uid = published.map_or("", |facts| facts.uid.as_str());
        let signs = members.iter().map(|member| {
            let signs = self.signs(cluster, (&object, uid), member, now);
            (member.uid.clone(), signs)
        });
        let signs: BTreeMap<String, Signs> = signs.collect();
        let signs = |uid: &str| signs.get(uid).copied().unwrap_or_default();
        if let Some(roster) = current {
            name_stuck(&object, roster, (progress, now), &signs, plan);
        }
        if let Some(roster) = next((current, shown), (members, contacts), &signs, (progress, now)) {
            let (cell, version) = ((zone.to_owned(), number), roster.version);
            // It is planned again until its write succeeds.
            let before = self.planned.get(&cell).filter(|before| before.version == version);
            let since = before.map_or(now, |before| before.since);
            let uids = roster.members.iter().map(|member| member.uid.clone()).collect();
            self.planned.insert(cell, Planned { version, uids, since });
            plan.actions.push(Action::PublishCell {
                zone: zone.to_owned(),
                cell: number,
                roster,
            });
        }
    }

    /// A member with an open incident or a latch. About it the reporters must hold rounds, because silence
    /// about a member says nothing.
    fn is_listed(&self, uid: &str) -> bool {
        self.nodes
            .get(uid)
            .is_some_and(|known| known.latch != Latch::Open || known.incident.is_some())
    }

    pub(super) fn wanted(&self, members: &[RosterMember]) -> Vec<String> {
        let uids = members.iter().map(|member| &member.uid);
        uids.filter(|uid| self.is_listed(uid)).cloned().collect()
    }

    /// Plans the writes that say in a policy's status which nodes it selects and where a more cautious one
    /// overrules it.
    pub(super) fn save_policy_statuses(&mut self, cluster: &Cluster, now: Millis, plan: &mut Plan) {
        if self
            .policies_looked_at
            .is_some_and(|at| now.since(at) < POLICY_STATUS_MS)
        {
            return;
        }
        self.policies_looked_at = Some(now);
        let mut matched: BTreeMap<&str, i32> = BTreeMap::new();
        let mut conflicts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in cluster.nodes.values() {
            for policy in cluster
                .policies()
                .filter(|policy| selects(&policy.spec, &node.labels))
            {
                *matched.entry(&policy.name).or_default() += 1;
            }
            for overruled in effective(cluster.policies(), &node.labels, self.config.profile).1 {
                conflicts
                    .entry(overruled.policy)
                    .or_default()
                    .insert(overruled.text);
            }
        }
        for facts in cluster.policies.values() {
            let name = &facts.policy.name;
            let status = FailoverPolicyStatus {
                observed_generation: facts.policy.generation,
                matched_nodes: matched.get(name.as_str()).copied().unwrap_or_default(),
                conflicts: conflicts.remove(name).unwrap_or_default().into_iter().collect(),
                refused: refused(&facts.policy.spec),
            };
            if status != facts.status {
                plan.actions.push(Action::SavePolicyStatus {
                    policy: name.clone(),
                    status,
                });
            }
        }
    }
}

/// The last rosters of cells whose objects are gone.
type Unseen<'a> = BTreeMap<&'a (String, u32), &'a RosterSpec>;

fn unseen_cells(cluster: &Cluster) -> Unseen<'_> {
    let seen = cluster
        .cells
        .values()
        .map(|facts| (facts.zone.as_str(), facts.number));
    let seen: BTreeSet<(&str, u32)> = seen.collect();
    let all = cluster.last_rosters.iter();
    all.filter(|((zone, number), _)| !seen.contains(&(zone.as_str(), *number)))
        .collect()
}

/// The members of a cell that shall be in another one and are not published there yet: until then they stay,
/// so that at no time they stand in none. `home` is where each shall be.
fn leaving<'a>(
    number: u32,
    home: &BTreeMap<&str, u32>,
    published: &BTreeMap<u32, &'a CellFacts>,
) -> impl Iterator<Item = &'a String> {
    let members = |cell| {
        let facts = published.get(&cell).copied();
        facts
            .into_iter()
            .flat_map(|facts: &'a CellFacts| &facts.roster.members)
    };
    members(number).map(|member| &member.uid).filter(move |uid| {
        let to = home.get(uid.as_str()).copied().filter(|to| *to != number);
        to.is_some_and(|to| members(to).all(|member| member.uid != **uid))
    })
}

/// Learners that do not meet the others, and former voters that do not acknowledge the roster.
fn name_stuck(
    object: &str,
    roster: &RosterSpec,
    (progress, now): (&Progress, Millis),
    signs: &dyn Fn(&str) -> Signs,
    plan: &mut Plan,
) {
    let (learners, unsettled) = progress.stuck(now);
    let names = |uids: &[&str]| {
        let members = roster
            .members
            .iter()
            .filter(|member| uids.contains(&member.uid.as_str()));
        members
            .map(|member| member.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !learners.is_empty() {
        plan.complaints.push(format!(
            "ZoneHealth {object}: {} have no vote, because they have not met the others for minutes: see that UDP passes between \
             their agents and those of the other members, and delete Nodes that are gone for good",
            names(&learners)
        ));
    }
    if unsettled {
        let voters = roster.settled_voters.iter().map(String::as_str);
        let silent: Vec<&str> = voters.filter(|uid| signs(uid).acknowledged.is_none()).collect();
        plan.complaints.push(format!(
            "ZoneHealth {object}: its roster has not settled for minutes, so that its verdicts need members of which nothing was \
             heard ({}); delete Nodes that are gone for good",
            names(&silent)
        ));
    }
}

/// Members whose agents cannot make the checks that they are told to make: they abstain, or find nobody dead.
fn name_unable(zone: &str, members: &[RosterMember], cluster: &Cluster, plan: &mut Plan) {
    let problems = members.iter().filter_map(|member| {
        let agent = cluster.agents.get(&member.name)?;
        Some((member.name.as_str(), agent.check_problem.as_deref()?))
    });
    let problems: Vec<(&str, &str)> = problems.collect();
    plan.unable_to_check += problems.len();
    if let Some((name, problem)) = problems.first() {
        let others = match problems.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} other node(s) of this zone lack something)"),
        };
        plan.complaints.push(format!(
            "zone {zone:?}: the agent of {name}{others} cannot check suspects as --check says, and its votes find fewer nodes dead: \
             {problem}"
        ));
    }
}

/// Members without a kubelet that peers could check: no vote ever finds them dead (hazard 46).
fn name_unchecked(zone: &str, members: &[RosterMember], plan: &mut Plan) {
    let unchecked = members.iter().filter(|member| member.kubelet.is_none());
    let names: Vec<&str> = unchecked.map(|member| member.name.as_str()).collect();
    plan.unchecked += names.len();
    if !names.is_empty() {
        plan.complaints.push(format!(
            "zone {zone:?}: the agent of {} has shown no kubelet to check, so that no vote finds it dead and Kubernetes alone cares \
             for its death; see that the kubelet answers there, or give the agent --kubelet IP:PORT",
            names.join(", ")
        ));
    }
}

/// The version of another roster than the published one that two members at least name, in their reports or
/// where they acknowledge it. One alone may say what it likes.
fn named_instead(cluster: &Cluster, object: &str, facts: &CellFacts) -> Option<i64> {
    let published = cluster.published.get(object);
    let reported = cluster.reported.get(object);
    let reports = |member: &str| {
        let roster = reported?.get(member)?;
        (roster != published?).then(|| i64::try_from(roster.version).unwrap_or(i64::MAX))
    };
    let acknowledges = |member: &str| {
        let said = cluster.agents.get(member)?.roster.as_ref()?;
        let is_later = said.version > facts.roster.version;
        (said.cell == object && said.cell_uid == facts.uid && is_later).then_some(said.version)
    };
    let members = facts.roster.members.iter().map(|member| &*member.name);
    let mut versions: Vec<i64> = members
        .filter_map(|member| reports(member).max(acknowledges(member)))
        .collect();
    versions.sort_unstable();
    let second = versions.len().checked_sub(2)?;
    versions.get(second).copied()
}
