//! What ZoneHealth shall say, and who writes it when.
//!
//! The holder of the zone's Lease writes at once. Another reporter writes only what a majority signed and the
//! holder has not published for as many seconds as the reporter's rank. So the death of the holder costs one
//! second, and a lying holder cannot keep a verdict back. A holder that has just come within reach of a
//! majority has no opinion of every member yet, and writes like a reporter that is not the holder. If it
//! waited instead, evidence of life would run out wherever all agents restart at once, because they would
//! wait for one another.

use super::reporter::{Case, Held};
use super::{Engine, Output, ZoneReport};
use crate::Millis;
use crate::roster::MemberId;
use crate::verdict::{Link, check, is_newer_report};
use evenkeel_api::zone::{NodeVerdict, VerdictKind, ZoneHealthStatus};
use std::collections::{BTreeMap, BTreeSet};

/// How much longer each rank waits before it writes in the holder's place.
const STEP_MS: u64 = 1_000;
/// A report that was given to the caller is not given again for this long, unless the object has changed
/// since.
const WRITING_MS: u64 = 1_000;
/// Published evidence of life this old should have been renewed by the holder.
const OVERDUE_ALIVE_MS: u64 = 8_000;

/// The zone's published report as last seen, and whether a new one is being written.
#[derive(Debug, Default)]
pub(super) struct Publication {
    published: Option<Published>,
    handed_out: Option<Millis>,
    /// Newest sequence ever seen: readers have seen it too, whatever the object says now.
    newest: Option<i64>,
}

#[derive(Debug)]
struct Published {
    status: ZoneHealthStatus,
    at: Millis,
    /// By node UID.
    seen: BTreeMap<String, Seen>,
}

/// Published evidence as this agent first saw it.
#[derive(Debug)]
struct Seen {
    evidence: Vec<String>,
    at: Millis,
    /// The evidence suffices for the verdict that it was published with.
    holds: bool,
}

impl Publication {
    /// Whether the published report lists a node, whatever it says of it.
    pub(super) fn lists(&self, uid: &str) -> bool {
        let published = self.published.as_ref();
        published.is_some_and(|published| published.status.nodes.iter().any(|node| node.uid == uid))
    }
}

impl Engine {
    pub(super) fn take_published(&mut self, status: &ZoneHealthStatus) {
        let now = self.now;
        let before = self.reporter.publication.published.take();
        // Nobody knows the age of what is found at the start. It is taken for overdue.
        let found_at = if before.is_some() {
            now
        } else {
            Millis(now.0.saturating_sub(OVERDUE_ALIVE_MS))
        };
        let mut before = before.map(|before| before.seen).unwrap_or_default();
        let mut seen = BTreeMap::new();
        for node in &status.nodes {
            let known = before
                .remove(&node.uid)
                .filter(|seen| seen.evidence == node.evidence);
            let look = || Seen {
                evidence: node.evidence.clone(),
                at: found_at,
                holds: node.verdict != VerdictKind::None
                    && check(&*self.verifier, &self.council(), node, |_, _, _| true).is_ok(),
            };
            seen.insert(node.uid.clone(), known.unwrap_or_else(look));
        }
        let newest = match self.reporter.publication.newest {
            Some(newest) if !is_newer_report(status.sequence, newest) => Some(newest),
            _ => Some(status.sequence),
        };
        let published = Some(Published {
            status: status.clone(),
            at: now,
            seen,
        });
        self.reporter.publication = Publication {
            published,
            handed_out: None,
            newest,
        };
    }

    pub(super) fn tick_publication(&mut self) {
        let sees_the_zone = !self.doubting && !self.on_smaller_side;
        // The first time in a life an agent stands at once. Later it waits until it is settled, so that the
        // zone's Lease does not change hands each time a link flickers.
        let may_stand = self.reporter.standing || !self.reporter.stood || self.is_settled();
        let stands =
            self.reporter.rank.is_some() && sees_the_zone && may_stand && self.facts.cloud == Link::Up;
        self.reporter.stood |= stands;
        if stands != self.reporter.standing {
            self.reporter.standing = stands;
            self.out.push(Output::Stand(stands));
        }
        if !stands {
            return;
        }
        self.adopt_the_dead();
        let Some(published) = &self.reporter.publication.published else {
            return;
        };
        if self
            .reporter
            .publication
            .handed_out
            .is_some_and(|at| self.now.since(at) < WRITING_MS)
        {
            return;
        }
        let leads = self.reporter.leading && self.is_settled();
        let patience = STEP_MS * (self.reporter.rank.unwrap_or_default() as u64).max(1);
        if !leads && !self.is_held_back(published, patience) {
            return;
        }
        let report = self.draft(published, leads);
        if !leads || differs(&report.status, &published.status) {
            self.reporter.publication.handed_out = Some(self.now);
            self.out.push(Output::Report(Box::new(report)));
        }
    }

    /// Deaths that are published and hold, of nodes this agent has no contact with, are this agent's own from
    /// now on: a change of reporters forgets nobody.
    fn adopt_the_dead(&mut self) {
        let Some(published) = &self.reporter.publication.published else {
            return;
        };
        let age = self.now.since(published.at);
        let mut adopted: Vec<(MemberId, Held)> = Vec::new();
        for node in published
            .status
            .nodes
            .iter()
            .filter(|node| node.verdict == VerdictKind::Dead)
        {
            let id = MemberId::of(&node.uid);
            let judged = self
                .reporter
                .cases
                .get(&id)
                .is_some_and(|case| case.held.is_some());
            let here = id == self.me || self.peers.get(&id).is_some_and(|peer| self.is_live(peer));
            if judged || here || !published.seen.get(&node.uid).is_some_and(|seen| seen.holds) {
                continue;
            }
            let round_age = node
                .round_age_ms
                .and_then(|age| u64::try_from(age).ok())
                .unwrap_or_default();
            let round_began = Millis(self.now.0.saturating_sub(age.saturating_add(round_age)));
            let held = Held {
                kind: VerdictKind::Dead,
                since: published.at,
                known_since: round_began,
                round_began,
                made: published.at,
                evidence: node.evidence.clone(),
                reason: node.reason.clone(),
            };
            adopted.push((id, held));
        }
        for (id, held) in adopted {
            let case: &mut Case = self.reporter.cases.entry(id).or_default();
            case.held = Some(held);
        }
    }

    /// A majority signed something that the published report does not say for too long.
    fn is_held_back(&self, published: &Published, patience: u64) -> bool {
        self.reporter.cases.iter().any(|(id, case)| {
            let Some(held) = case.held.as_ref().filter(|held| held.kind != VerdictKind::None) else {
                return false;
            };
            let Some(member) = self.roster.get(*id) else {
                return false;
            };
            let said = published.status.nodes.iter().find(|node| node.uid == member.uid);
            if said.is_none_or(|node| node.verdict != held.kind) {
                return !published.is_newer(&member.uid, held) && self.now.since(held.since) >= patience;
            }
            let seen = published
                .seen
                .get(&member.uid)
                .map_or(published.at, |seen| seen.at);
            held.kind == VerdictKind::Alive
                && self.now.since(seen) >= OVERDUE_ALIVE_MS + patience
                && held.made > seen
        })
    }

    fn draft(&self, published: &Published, leads: bool) -> ZoneReport {
        let mut held_for_ms = BTreeMap::new();
        let mut nodes = Vec::new();
        for (id, case) in &self.reporter.cases {
            let (Some(member), Some(held)) = (self.roster.get(*id), case.held.as_ref()) else {
                continue;
            };
            if published.is_newer(&member.uid, held) {
                continue;
            }
            held_for_ms.insert(member.uid.clone(), self.now.since(held.since));
            nodes.push(NodeVerdict {
                name: member.name.clone(),
                uid: member.uid.clone(),
                verdict: held.kind,
                reason: held.reason.clone(),
                since: None,
                round_age_ms: Some(self.now.since(held.round_began) as i64),
                evidence: held.evidence.clone(),
            });
        }
        // What others published stands, unless this agent leads and knows better: the node is here, and well.
        let own: BTreeSet<String> = nodes.iter().map(|node| node.uid.clone()).collect();
        for node in published
            .status
            .nodes
            .iter()
            .filter(|node| !own.contains(&node.uid))
        {
            let id = MemberId::of(&node.uid);
            let here = id == self.me || self.peers.get(&id).is_some_and(|peer| self.is_live(peer));
            // A case without a verdict is one that this agent has only just begun to look into.
            let open = self.reporter.cases.contains_key(&id);
            let acquitted = leads
                && match node.verdict {
                    VerdictKind::Alive => here && !open,
                    VerdictKind::Dead => here,
                    VerdictKind::None => !open,
                };
            if self.roster.contains(id) && !acquitted {
                let written = self.now.since(published.at) as i64;
                let round_age_ms = node.round_age_ms.map(|age| age.saturating_add(written));
                nodes.push(NodeVerdict {
                    round_age_ms,
                    ..node.clone()
                });
            }
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let reference = self.roster.reference();
        let status = ZoneHealthStatus {
            reporter: self.name(self.me),
            roster_version: reference.version as i64,
            epoch: reference.epoch.to_string(),
            sequence: self
                .reporter
                .publication
                .newest
                .unwrap_or_default()
                .wrapping_add(1),
            members: self.roster.len() as i32,
            summary: summary(&nodes),
            nodes,
        };
        ZoneReport { status, held_for_ms }
    }
}

impl Published {
    /// Another reporter's evidence on that node holds, and is newer than ours.
    fn is_newer(&self, uid: &str, held: &Held) -> bool {
        self.seen
            .get(uid)
            .is_some_and(|seen| seen.holds && seen.at > held.made && seen.evidence != held.evidence)
    }
}

/// Whether a report says something new: ages and wall-clock times are not news.
fn differs(ours: &ZoneHealthStatus, theirs: &ZoneHealthStatus) -> bool {
    let same_node = |(a, b): (&NodeVerdict, &NodeVerdict)| {
        a.uid == b.uid && a.verdict == b.verdict && a.evidence == b.evidence && a.reason == b.reason
    };
    let same_nodes =
        ours.nodes.len() == theirs.nodes.len() && ours.nodes.iter().zip(&theirs.nodes).all(same_node);
    !same_nodes || ours.epoch != theirs.epoch
}

fn summary(nodes: &[NodeVerdict]) -> String {
    let word = |node: &NodeVerdict| {
        let kind = match node.verdict {
            VerdictKind::None => "undecided",
            VerdictKind::Alive => "alive",
            VerdictKind::Dead => return format!("{} dead", node.name),
        };
        format!("{} {kind} ({})", node.name, node.reason)
    };
    nodes.iter().map(word).collect::<Vec<_>>().join(", ")
}
