//! The book of verdicts, fed with the objects that carry them.

use super::read::renew_time;
use evenkeel_api::crd::{ZoneHealth, ZoneReportSpec};
use evenkeel_api::names;
use evenkeel_zone::Millis;
use evenkeel_zone::keys::Verifier;
use evenkeel_zone::roster::{Roster, cell_object_name};
use evenkeel_zone::verdict::{ALIVE_TTL_MS, Book, Deaths, Issued, Refusal};
use evenkeel_zone::wire::Renewal;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many reports of one reporter are held, first those of cells that are known. It writes one about its own
/// cell and one about each of the eight that it may carry; those of cells that it carried before stay in the
/// store. Without a bound one agent could fill the memory of all who read reports.
const REPORTS_OF_ONE: usize = 32;

/// The book, and which object speaks of which cell.
#[derive(Debug, Default)]
pub(super) struct Zones {
    book: Book,
    /// Cells by name of the ZoneHealth, which is also their key in the book.
    known: BTreeMap<String, Known>,
    /// Cells whose object is gone, and since when. What was signed before counts until it expires, because
    /// the planner makes the object again at once, and living nodes must not lose their evidence in between.
    gone: BTreeMap<String, (Known, Millis)>,
    /// Reports by object name: their cell, by name of its ZoneHealth, and their reporter.
    reports: BTreeMap<String, (String, String)>,
    /// Names of each reporter's reports, the one that was written longest ago first.
    reports_of: BTreeMap<String, Vec<String>>,
    /// What was last seen of each cell's Lease, by name of the ZoneHealth.
    heartbeats: BTreeMap<String, Heartbeat>,
}

#[derive(Debug)]
struct Known {
    zone: String,
    uid: Option<String>,
    roster_version: u64,
    /// UIDs of the roster's members.
    members: BTreeSet<String>,
    /// Whether anybody ever reported for the cell.
    reported: bool,
}

#[derive(Debug, PartialEq)]
struct Heartbeat {
    renew_time: Option<Timestamp>,
    holder: String,
}

/// What is known of a cell.
#[derive(Debug)]
pub(super) struct CellSeen<'a> {
    pub(super) zone: &'a str,
    /// UIDs of the roster's members.
    pub(super) members: &'a BTreeSet<String>,
    /// Whether anybody ever reported for it.
    pub(super) reported: bool,
    /// When it was last seen to advance.
    pub(super) advanced: Option<Millis>,
    pub(super) is_returning: bool,
    pub(super) deaths: Deaths,
}

impl Zones {
    pub(super) fn verifying_with(verifier: Arc<dyn Verifier>) -> Self {
        Self {
            book: Book::verifying_with(verifier),
            ..Self::default()
        }
    }

    /// A ZoneHealth as a watch delivered it at `now`, with its roster. Returns what was refused, for the log.
    ///
    /// An object that was made again goes on where the last one ended, if its roster is a newer one. Else
    /// whoever made it did not know the last one, and everything begins anew.
    pub(super) fn zone_health(&mut self, now: Millis, object: &ZoneHealth, roster: Roster) -> Vec<Refusal> {
        let zone = &object.spec.zone;
        let name = object.metadata.name.clone().unwrap_or_default();
        let uid = &object.metadata.uid;
        let roster_version = roster.reference().version;
        if self.known.get(&name).is_some_and(|known| known.uid != *uid) {
            self.gone(now, &name);
        }
        let last = self.gone.remove(&name).map(|(last, _)| last);
        if let Some(last) = &last
            && last.uid != *uid
            && last.roster_version >= roster_version
        {
            self.book.forget(&name);
        }
        let reported = last.is_some_and(|last| last.reported)
            || self.reports.values().any(|(cell, _)| *cell == name)
            || self.heartbeats.contains_key(&name);
        let known = self.known.entry(name.clone()).or_insert_with(|| Known {
            zone: zone.clone(),
            uid: uid.clone(),
            roster_version,
            members: BTreeSet::new(),
            reported: false,
        });
        known.roster_version = roster_version;
        let members = roster.members().iter();
        known.members = members.map(|member| member.uid.clone()).collect();
        known.reported |= reported;
        self.book.roster(now, &name, roster)
    }

    /// The renewal of a node that was seen last, by the node's UID; nothing once the node is gone.
    pub(super) fn renewed(&mut self, node_uid: &str, renewal: Option<Renewal>) {
        self.book.renewed(node_uid, renewal);
    }

    /// What ballots of a cell have to sign, by name of its ZoneHealth. Returns what was refused, for the log.
    pub(super) fn challenges(&mut self, now: Millis, cell: &str, issued: &[Issued]) -> Vec<Refusal> {
        self.book.challenges(now, cell, issued)
    }

    /// A ZoneReport of that name as a watch delivered it at `now`. Returns what was refused in it, for the
    /// log. Where its reporter has too many, the one that was written longest ago counts no more.
    pub(super) fn report(&mut self, now: Millis, name: &str, spec: &ZoneReportSpec) -> Vec<Refusal> {
        let cell = cell_object_name(&spec.zone, spec.cell);
        if let Some(known) = self.known.get_mut(&cell) {
            known.reported = true;
        }
        let of = (cell.clone(), spec.reporter.clone());
        self.reports.insert(name.to_owned(), of);
        // Before one is left out, which may be this one.
        let refused = self.book.report(now, &cell, &spec.reporter, &spec.report);
        let names = self.reports_of.entry(spec.reporter.clone()).or_default();
        names.retain(|other| other != name);
        names.push(name.to_owned());
        if names.len() > REPORTS_OF_ONE {
            // A list has them in the order of their names.
            let is_of_none = |name: &String| {
                let cell = self.reports.get(name).map(|(cell, _)| cell);
                cell.is_none_or(|cell| !self.known.contains_key(cell))
            };
            let least = names.iter().position(is_of_none).unwrap_or(0);
            let least = names.remove(least);
            self.report_gone(&least);
        }
        refused
    }

    /// A ZoneReport is gone, by object name.
    pub(super) fn report_gone(&mut self, name: &str) {
        if let Some((cell, reporter)) = self.reports.remove(name) {
            self.book.forget_report(&cell, &reporter);
            if let Some(names) = self.reports_of.get_mut(&reporter) {
                names.retain(|other| other != name);
                if names.is_empty() {
                    self.reports_of.remove(&reporter);
                }
            }
        }
    }

    /// All ZoneReports there are: of the others is known that they are gone.
    pub(super) fn reports_listed(&mut self, is_there: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self
            .reports
            .keys()
            .filter(|name| !is_there(name))
            .cloned()
            .collect();
        for name in gone {
            self.report_gone(&name);
        }
    }

    /// A ZoneHealth is gone, by object name.
    pub(super) fn gone(&mut self, now: Millis, name: &str) {
        if let Some(known) = self.known.remove(name) {
            self.gone.insert(name.to_owned(), (known, now));
        }
    }

    /// Forgets cells whose object has been gone for longer than any evidence in it is worth something.
    pub(super) fn forget_gone(&mut self, now: Millis) {
        self.gone.retain(|name, (_, since)| {
            let may_hold = now.since(*since) < ALIVE_TTL_MS;
            if !may_hold {
                self.book.forget(name);
                self.heartbeats.remove(name);
            }
            may_hold
        });
    }

    /// Names of the objects that are known.
    pub(super) fn names(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    /// A Lease of Evenkeel's namespace as a watch delivered it at `now`. Leases that are no cell's, and the
    /// same Lease again, are no heartbeat.
    pub(super) fn lease(&mut self, now: Millis, lease: &Lease) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let Some(object) = name.strip_prefix(names::ZONE_LEASE_PREFIX) else {
            return;
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let seen = Heartbeat {
            renew_time: renew_time(lease),
            holder: holder.unwrap_or_default(),
        };
        if self.heartbeats.get(object) == Some(&seen) {
            return;
        }
        if let Some(known) = self.known.get_mut(object) {
            known.reported = true;
            self.book.heartbeat(now, object, node_of(&seen.holder));
        }
        self.heartbeats.insert(object.to_owned(), seen);
    }

    /// All cells, also those whose objects are gone for a moment.
    fn cells(&self) -> impl Iterator<Item = (&String, &Known)> {
        let gone = self.gone.iter().map(|(name, (known, _))| (name, known));
        self.known.iter().chain(gone)
    }

    /// What is known of each cell.
    pub(super) fn look(&self, now: Millis) -> BTreeMap<String, CellSeen<'_>> {
        let seen = self.cells().map(|(name, known)| {
            let seen = CellSeen {
                zone: &known.zone,
                members: &known.members,
                reported: known.reported,
                advanced: self.book.advanced(name),
                is_returning: self.book.is_returning(name, now),
                deaths: self.book.deaths(name, now),
            };
            (name.clone(), seen)
        });
        seen.collect()
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }
}

/// The node of an agent by its name in the election: `NODE_RANDOM`, one per life of the agent. Names of nodes
/// hold no underscore.
fn node_of(holder: &str) -> &str {
    holder.rsplit_once('_').map_or(holder, |(node, _)| node)
}

#[cfg(test)]
#[path = "zones_tests.rs"]
mod tests;
