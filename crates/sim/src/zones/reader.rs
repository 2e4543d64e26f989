//! What a reader concludes from the reports of zones, and which promises about that are looked at.

use super::rules::{self, Rules};
use crate::api::build::{node_of_uid, node_uid};
use crate::api::objects::{EPOCH, Object, cluster_key, renew_time};
use crate::event::{Delivery, Event};
use crate::found::unfound;
use crate::ledger::{MINORITY, UNFOUND};
use crate::promise::Fate;
use crate::script::SECOND;
use crate::sight::{honest_suffice, may_be_convicted};
use crate::sim::Sim;
use crate::watch::Client;
use evenkeel_api::crd::{ZoneChallengeSpec, ZoneReport};
use evenkeel_api::names::ZONE_LEASE_PREFIX;
use evenkeel_api::zone::{ListedNode, VerdictKind};
use evenkeel_failover_rules::world::{Kind, read};
use evenkeel_zone::Millis;
use evenkeel_zone::keys::Verifier;
use evenkeel_zone::roster::{Roster, cell_object_name};
use evenkeel_zone::verdict::{Book, Issued, Verdict};
use evenkeel_zone::wire::{Challenge, Nonce};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Evidence of life is worth 15 s after its contacts. The rest is for a contact that is late because
/// datagrams are, and for looking.
const LIFE_ENDS: u64 = 18 * SECOND;
/// After the last fault no living node is held dead for longer than this: acquittal takes 15 s of health, and
/// a change of reporters and slow writes come on top.
const ACQUITTED: u64 = 45 * SECOND;
/// A node that came back may be seen alive this long before the script says that it is back: never. This long
/// after, its death may still stand, or be told by votes that were cast before.
const JUST_BACK: u64 = 10 * SECOND;
/// With a hostile member, a node that dies is held dead after this time: p99 is 6 s, and as much again is
/// for a round that was in vain.
const CONVICTED: u64 = 12 * SECOND;
/// A planner takes this long from a report to its own write.
const ASKS_AFTER: u64 = 150;
/// A challenge and the one after it are replaced within 60 s each, and so are void after this time.
const HOARDED: u64 = 125 * SECOND;
/// What was written this long ago is needed by nobody.
const FORGETS: u64 = 120 * SECOND;

/// A reader of all zones, with what it concluded.
pub(crate) struct Reader {
    book: Book,
    pub(crate) rules: Rules,
    /// Nodes held dead, with the round that says so.
    dead: BTreeMap<usize, Nonce>,
    /// By Lease: what was seen of it last.
    leases: BTreeMap<String, Option<Timestamp>>,
    /// When it began to hold which node dead, and how often its word on each changed since the last reset.
    pub(crate) deaths: Vec<(u64, usize)>,
    pub(crate) changes: BTreeMap<usize, u64>,
    /// Verdicts that no majority can have reached; counted where the run goes on after them.
    pub(crate) false_deaths: u64,
    /// A false death is counted, and the run goes on.
    pub(crate) counts: bool,
    /// A clock of who measures, and the time that reading took by it. Nothing depends on either.
    pub(crate) clock: Option<fn() -> Duration>,
    pub(crate) spent: Duration,
    /// Reports that somebody keeps back, each until when.
    hoarded: Vec<(u64, ZoneReport)>,
}

impl Reader {
    pub(crate) fn new(verifier: Arc<dyn Verifier>) -> Self {
        Self {
            book: Book::verifying_with(verifier),
            rules: Rules::default(),
            dead: BTreeMap::new(),
            leases: BTreeMap::new(),
            deaths: Vec::new(),
            changes: BTreeMap::new(),
            false_deaths: 0,
            counts: false,
            clock: None,
            spent: Duration::ZERO,
            hoarded: Vec::new(),
        }
    }

    /// Lets the book take something in.
    fn read<T>(&mut self, work: impl FnOnce(&mut Book) -> T) -> T {
        let before = self.clock.map(|clock| clock());
        let done = work(&mut self.book);
        if let (Some(clock), Some(before)) = (self.clock, before) {
            self.spent += clock().saturating_sub(before);
        }
        done
    }

    /// Nodes that it holds dead.
    pub(crate) fn held_dead(&self) -> impl Iterator<Item = usize> {
        self.dead.keys().copied()
    }

    fn vouches(&self, node: usize, now: u64) -> bool {
        match self.book.verdict(&node_uid(node)) {
            Verdict::Alive(alive) => self.rules.life_never_ends || alive.until > Millis(now),
            _ => false,
        }
    }
}

/// What ballots have to sign, drawn by this reader at times of its own clock, which begins with the run.
fn issued(spec: &ZoneChallengeSpec) -> Vec<Issued> {
    let (_, issued) = read::challenges(spec, "keeper");
    let here = |drawn: Millis| Millis(drawn.since(Millis(EPOCH)));
    let issued = issued.into_iter().map(|issued| Issued {
        drawn: issued.drawn.map(here),
        ..issued
    });
    issued.collect()
}

impl Sim {
    pub(crate) fn begin_reader(&mut self) {
        self.open_watches(
            Client::Reader,
            &[Kind::Zone, Kind::Challenge, Kind::Report, Kind::OwnLease],
        );
    }

    pub(crate) fn reader_sees(&mut self, delivery: Delivery) {
        let Delivery::Put(_, object) = delivery else {
            return;
        };
        match &*object {
            Object::Zone(zone) => {
                let name = zone.metadata.name.clone().unwrap_or_default();
                let now = Millis(self.now);
                if let Some(roster) = self.roster_of(zone) {
                    self.reader
                        .read(|book| book.roster(now, &name, Roster::clone(&roster)));
                }
            }
            Object::Challenge(challenge) => {
                let name = challenge.metadata.name.clone().unwrap_or_default();
                let issued = issued(&challenge.spec);
                let now = Millis(self.now);
                self.reader.read(|book| book.challenges(now, &name, &issued));
                // What waited for it may decide now.
                for node in self.nodes_of_cell(&name) {
                    self.reader_concludes(node, false);
                }
            }
            Object::Report(report) => {
                let accuses = |node: &ListedNode| node.verdict == VerdictKind::Dead;
                if self.reader.rules.hoards && report.spec.report.nodes.iter().any(accuses) {
                    self.reader.hoarded.push((self.now + HOARDED, (**report).clone()));
                } else {
                    self.reader_takes(report);
                }
            }
            Object::Lease(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let Some(zone) = name.strip_prefix(ZONE_LEASE_PREFIX).map(str::to_owned) else {
                    return;
                };
                let renewed = renew_time(&object);
                if self.reader.leases.insert(name, renewed) != Some(renewed) {
                    // A candidate's name is that of its node with a random end.
                    let holder = holder.unwrap_or_default();
                    let node = holder.split('_').next().unwrap_or_default();
                    self.reader.book.heartbeat(Millis(self.now), &zone, node);
                }
            }
            _ => {}
        }
    }

    /// Shows what was kept back for long enough.
    fn show_hoarded(&mut self) {
        let now = self.now;
        let due: Vec<ZoneReport> = self
            .reader
            .hoarded
            .extract_if(.., |(at, _)| *at <= now)
            .map(|(_, report)| report)
            .collect();
        for report in due {
            let cell = cell_object_name(&report.spec.zone, report.spec.cell);
            let any = self.reader.rules.any_challenge;
            if any {
                let signed = rules::signed(&report.spec.report);
                self.reader.book.challenges(Millis(now), &cell, &signed);
            }
            self.reader_takes(&report);
            if any
                && let Some(Object::Challenge(object)) = self
                    .store
                    .get(Kind::Challenge, &cluster_key(&cell))
                    .map(|object| &**object)
            {
                let issued = issued(&object.spec);
                self.reader.book.challenges(Millis(now), &cell, &issued);
            }
        }
    }

    fn reader_takes(&mut self, object: &ZoneReport) {
        let spec = &object.spec;
        let cell = cell_object_name(&spec.zone, spec.cell);
        let mut report = spec.report.clone();
        let object = self.store.get(Kind::Zone, &cluster_key(&cell)).cloned();
        if self.reader.rules.one_vote_less
            && let Some(Object::Zone(zone)) = object.as_deref()
            && let Some(roster) = self.roster_of(zone)
        {
            let challenge = self.store.get(Kind::Challenge, &cluster_key(&cell));
            let challenge = challenge.and_then(|object| match &**object {
                Object::Challenge(challenge) => Challenge::from_base64(&challenge.spec.current.value),
                _ => None,
            });
            let challenge = challenge.unwrap_or_default();
            rules::forge(&mut report, &roster, challenge, &self.machines);
        }
        let now = Millis(self.now);
        self.reader
            .read(|book| book.report(now, &cell, &spec.reporter, &report));
        let listed: BTreeSet<usize> = report
            .nodes
            .iter()
            .filter_map(|node| node_of_uid(&node.uid))
            .collect();
        let of_cell = self.nodes_of_cell(&cell);
        let held = self.reader.dead.keys().copied();
        let held: Vec<usize> = held.filter(|node| of_cell.contains(node)).collect();
        for node in listed.iter().copied().chain(held) {
            let believed = self.reader.rules.omission_is_health && !listed.contains(&node);
            self.reader_concludes(node, believed);
        }
    }

    /// The word on one node changed, or not.
    fn reader_concludes(&mut self, node: usize, omission: bool) {
        let now = self.now;
        let round = match self.reader.book.verdict(&node_uid(node)) {
            Verdict::Dead(death) if !omission => Some(death.round),
            _ => None,
        };
        let before = self.reader.dead.get(&node).copied();
        match round {
            Some(round) => self.reader.dead.insert(node, round),
            None => self.reader.dead.remove(&node),
        };
        if round.is_some() != before.is_some() {
            *self.reader.changes.entry(node).or_default() += 1;
            self.after(ASKS_AFTER, Event::Wanted(self.cell_key(node)));
            self.note(|| {
                format!(
                    "reader: node {node} is {}",
                    if round.is_some() { "dead" } else { "not dead" }
                )
            });
        }
        if round.is_some() && before.is_none() {
            self.reader.deaths.push((now, node));
            let several = self.cells_of(self.script.zone_of(node)).count() > 1;
            let cell = several.then(|| self.cells.get(&self.cell_key(node))).flatten();
            let cell = cell.map(|nodes| nodes.iter().copied().collect());
            if !may_be_convicted(&self.script, cell.as_ref(), node, now) {
                if self.reader.counts {
                    self.reader.false_deaths += 1;
                } else {
                    self.ledger.breaks(now, MINORITY, format!("node {node}"));
                }
            }
        }
        let fate = Fate::of(&self.script, node);
        if round.is_none() && before.is_some() && !self.reader.counts {
            let is_dead = fate.death_before(now).is_some_and(|died| died + JUST_BACK < now);
            if is_dead {
                self.ledger.breaks(
                    now,
                    "40: a death is dropped without evidence of life",
                    format!("node {node}"),
                );
            }
        }
    }

    /// Looks at what the reader holds.
    pub(crate) fn look_at_reader(&mut self) {
        let now = self.now;
        self.store.forget(now.saturating_sub(FORGETS));
        self.show_hoarded();
        if self.reader.counts {
            return;
        }
        let off = |node: &usize| {
            let fate = Fate::of(&self.script, *node);
            fate.death_before(now).is_some_and(|died| died + LIFE_ENDS < now)
        };
        let outlived = (1..=self.machines.len())
            .filter(off)
            .find(|node| self.reader.vouches(*node, now));
        if let Some(node) = outlived {
            let text = format!(
                "node {node} has been off for longer than {} s",
                LIFE_ENDS / SECOND
            );
            self.ledger
                .breaks(now, "1: evidence of life outlives its node", text);
        }
        if self.script.group.is_hostile() {
            self.look_beside_malice();
        }
    }

    /// What is promised besides where one member is hostile: who dies is convicted in time where the honest
    /// members suffice for that, and who lives is acquitted in time.
    fn look_beside_malice(&mut self) {
        let now = self.now;
        for node in 1..=self.machines.len() {
            let fate = Fate::of(&self.script, node);
            let held = self.reader.dead.contains_key(&node);
            let ended = fate.stalls.iter().chain(&fate.dead).map(|(_, to)| *to).max();
            let late = match fate.death_before(now) {
                Some(died) => !held && died + CONVICTED < now && honest_suffice(&self.script, node),
                None => held && ended.unwrap_or_default() + ACQUITTED < now,
            };
            if late {
                let text = format!(
                    "node {node} is {} for too long",
                    if held { "dead" } else { "not dead" }
                );
                self.ledger
                    .breaks(now, "39: a hostile member delays a verdict", text);
            }
        }
    }

    /// The run is over: nobody who lives is held dead.
    pub(crate) fn finish_reader(&mut self) {
        let now = self.now;
        let since = self.script.last_fault_ends();
        if self.level != crate::script::Level::Zones || self.ledger.is_broken() || now < since + ACQUITTED {
            return;
        }
        let dead = self
            .reader
            .dead
            .keys()
            .copied()
            .find(|node| !Fate::of(&self.script, *node).is_dead(now));
        if let Some(node) = dead {
            let text = format!("node {node} lives and is held dead");
            self.ledger
                .breaks(now, "L1: not converged after the last fault", text);
            return;
        }
        let deaths = &self.reader.deaths;
        let is_found = |node: usize, from: u64, to: u64| {
            let mut of_node = deaths.iter().filter(|(_, dead)| *dead == node);
            of_node.any(|(at, _)| (from..=to).contains(at))
        };
        if let Some(text) = unfound(&self.script, is_found) {
            self.ledger.breaks(now, UNFOUND, text);
        }
    }
}
