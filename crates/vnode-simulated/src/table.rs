//! Nodes, pods and containers as they stand. Small: what an idle pod needs is its name, its address, and per
//! container a number, a time and a shape that all replicas share.

use super::address::{Cidr, Pool};
use super::identity;
use super::live::Live;
use super::log::Output;
use super::shape::Shape;
use evenkeel_vnode::provider::{Doing, Exit, Observed, PodId, Sandbox};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) nodes: HashMap<Arc<str>, Node>,
    pub(super) pods: HashMap<Arc<str>, Box<Record>>,
    indexes: BTreeSet<u32>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) boot: Arc<str>,
    pub(super) outages: u32,
    pub(super) pool: Pool,
    pub(super) since: Timestamp,
    /// Why its pings fail.
    pub(super) ailment: Option<String>,
    /// UIDs of its pods.
    pub(super) pods: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: PodId,
    pub(super) address: Option<IpAddr>,
    /// Of each name the newest, after the one before it.
    pub(super) containers: Vec<Instance>,
    /// What few pods have.
    pub(super) extra: Option<Box<Extra>>,
}

/// What few pods have.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Addresses beside the first.
    pub(super) more: Vec<IpAddr>,
    /// Starts that failed, by container: for the image, and otherwise.
    pub(super) failures: BTreeMap<Arc<str>, (u32, u32)>,
    /// Files that somebody looked at.
    pub(super) files: Option<Arc<super::fs::PodFiles>>,
    /// `spec.hostname`, where it is not the pod's name.
    pub(super) hostname: Option<String>,
}

/// A container, one of its lives.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) number: u64,
    pub(super) started: Timestamp,
    pub(super) shape: Arc<Shape>,
    /// Names of the volumes that it sees.
    pub(super) volumes: Arc<[Box<str>]>,
    pub(super) ended: Option<Box<Exit>>,
    /// What only containers that do something have.
    pub(super) live: Option<Box<Live>>,
}

impl Instance {
    /// A container that runs.
    pub(super) fn new(number: u64, started: Timestamp, shape: Arc<Shape>, volumes: Arc<[Box<str>]>) -> Self {
        Self {
            number,
            started,
            shape,
            volumes,
            ended: None,
            live: None,
        }
    }

    /// When it ends by itself.
    pub(super) fn end(&self) -> Option<Timestamp> {
        let after = SignedDuration::try_from(self.shape.plan.end.as_ref()?.after).ok()?;
        self.started.checked_add(after).ok()
    }

    /// How it ends by itself, once it is time.
    pub(super) fn own_exit(&self) -> Option<Exit> {
        let end = self.shape.plan.end.as_ref()?;
        Some(exit(end.code, &end.message, Some(self.started), self.end()?))
    }

    /// What it has written.
    pub(super) fn output<'a>(&'a self, pod: &'a str, now: Timestamp) -> Output<'a> {
        Output {
            shape: &self.shape,
            pod,
            started: self.started,
            until: self.ended.as_ref().map_or(now, |exit| exit.at),
            ring: self.live.as_ref().map(|live| &live.ring),
        }
    }

    /// What only containers that do something have.
    pub(super) fn live(&mut self) -> &mut Live {
        self.live.get_or_insert_default()
    }

    /// As the framework is told.
    pub(super) fn observed(&self, boot: &str) -> Observed {
        Observed {
            id: identity::container(boot, self.number),
            doing: match &self.ended {
                Some(exit) => Doing::Ended(exit.as_ref().clone()),
                None => Doing::Running { since: self.started },
            },
        }
    }
}

/// An exit with its reason.
pub(super) fn exit(code: i32, message: &str, started_at: Option<Timestamp>, at: Timestamp) -> Exit {
    Exit {
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: message.to_owned(),
        started_at,
        at,
    }
}

impl Record {
    /// A pod without containers.
    pub(super) fn new(id: PodId) -> Self {
        Self {
            id,
            address: None,
            containers: Vec::new(),
            extra: None,
        }
    }

    /// What few pods have.
    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(super) fn sandbox(&self) -> Sandbox {
        let more = self.extra.iter().flat_map(|extra| extra.more.iter());
        Sandbox {
            addresses: self.address.iter().chain(more).copied().collect(),
        }
    }

    /// A container by its number.
    pub(super) fn instance(&mut self, number: u64) -> Option<&mut Instance> {
        self.containers
            .iter_mut()
            .find(|instance| instance.number == number)
    }

    /// The newest container of a name.
    pub(super) fn newest(&self, name: &str) -> Option<&Instance> {
        self.containers
            .iter()
            .rev()
            .find(|instance| instance.shape.name.as_ref() == name)
    }

    /// Adds a new life of a container; of the earlier ones the last is kept, for its output.
    pub(super) fn add(&mut self, instance: Instance) {
        let name = instance.shape.name.clone();
        let last = self.newest(&name).map(|last| last.number);
        self.containers
            .retain(|known| known.shape.name != name || Some(known.number) == last);
        // Room for what is there and no more: most pods never restart.
        self.containers.reserve_exact(1);
        self.containers.push(instance);
    }

    /// Its name in its network.
    pub(super) fn hostname(&self) -> &str {
        let own = self.extra.as_ref().and_then(|extra| extra.hostname.as_deref());
        own.unwrap_or(&self.id.name)
    }
}

impl Table {
    /// A node, made when it is first heard of. Its range: the one it was given, else by the number at the end
    /// of its name, so that each replica gives it the same; else the next free.
    pub(super) fn node(&mut self, name: &str, settings: &super::Settings, now: Timestamp) -> &mut Node {
        if !self.nodes.contains_key(name) {
            let own = settings.nodes.get(name);
            let range = own.and_then(|own| own.range).unwrap_or_else(|| {
                let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
                let wanted = name.get(digits..).and_then(|digits| digits.parse::<u32>().ok());
                let wanted = wanted.map_or(0, |number| number % 16_384);
                let free = (wanted..16_384)
                    .chain(0..wanted)
                    .find(|index| !self.indexes.contains(index));
                let index = free.unwrap_or(wanted);
                self.indexes.insert(index);
                Cidr::of(index)
            });
            let boot = own.and_then(|own| own.boot.clone());
            let node = Node {
                boot: boot.unwrap_or_else(|| identity::boot(name, 0)).into(),
                outages: 0,
                pool: Pool::new(range),
                since: now,
                ailment: None,
                pods: BTreeSet::new(),
            };
            self.nodes.insert(name.into(), node);
        }
        self.nodes
            .get_mut(name)
            .expect("it was just made if it was missing")
    }

    /// A pod and the boot of its node.
    pub(super) fn pod(&mut self, uid: &str) -> Option<(&mut Record, Arc<str>)> {
        let record = self.pods.get_mut(uid)?;
        let boot = self.nodes.get(&record.id.node)?.boot.clone();
        Some((record, boot))
    }

    pub(super) fn insert(&mut self, record: Record) {
        let uid = record.id.uid.clone();
        if let Some(node) = self.nodes.get_mut(&record.id.node) {
            for address in record.sandbox().addresses {
                node.pool.keep(address);
            }
            node.pods.insert(uid.clone());
        }
        self.pods.insert(uid, Box::new(record));
    }

    /// Takes a pod away; whoever waits for one of its containers is told.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Box<Record>> {
        let record = self.pods.remove(uid)?;
        if let Some(node) = self.nodes.get_mut(&record.id.node) {
            node.pods.remove(uid);
            for address in record.sandbox().addresses {
                node.pool.give(address);
            }
        }
        for live in record
            .containers
            .iter()
            .filter_map(|instance| instance.live.as_ref())
        {
            live.changed.notify_waiters();
        }
        Some(record)
    }
}
