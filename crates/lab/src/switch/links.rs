//! The state of every link of the lab, and what becomes of traffic on it. Pure: no clock, no socket.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, time::Duration};

/// One end of a link. Nodes count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The API server's side, and everybody else on this machine.
    Cloud,
    Node(u8),
}

/// Which way a fault works, seen from the node it is declared on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Nothing passes in either direction.
    #[default]
    Both,
    /// What comes from the node is lost.
    From,
    /// What goes to the node is lost.
    To,
}

/// What is wrong with one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub cut: bool,
    /// Added to every datagram and every chunk of a connection.
    pub delay: Duration,
    /// Datagrams lost, 0 to 100. Connections are not affected: TCP repairs loss.
    pub drop_percent: u8,
}

impl Fault {
    pub const CUT: Self = Self {
        cut: true,
        delay: Duration::ZERO,
        drop_percent: 0,
    };
}

/// What becomes of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives, after the delay, unless the dice say otherwise.
    Deliver {
        /// Time on the way.
        delay: Duration,
        /// Chance that a datagram is lost.
        drop_percent: u8,
    },
    /// It is swallowed without any sign.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Power {
    on: bool,
    boot: u32,
    frozen: bool,
}

impl Power {
    const FIRST_BOOT: Self = Self {
        on: true,
        boot: 0,
        frozen: false,
    };

    /// Whether the machine does anything with what arrives.
    fn runs(self) -> bool {
        self.on && !self.frozen
    }
}

/// The table of links. A fresh one delivers everything at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    power: Vec<Power>,
    faults: BTreeMap<(End, End), Fault>,
}

impl Links {
    /// `nodes` nodes, all on, every link whole.
    pub fn new(nodes: u8) -> Self {
        Self {
            power: vec![Power::FIRST_BOOT; usize::from(nodes)],
            faults: BTreeMap::new(),
        }
    }

    /// What becomes of traffic from one end to the other. A node reaches itself as long as it is on. A node
    /// that the table does not hold is as good as switched off.
    pub fn verdict(&self, from: End, to: End) -> Verdict {
        if !self.runs(from) || !self.runs(to) {
            return Verdict::Silence;
        }
        self.on_the_way(from, to)
    }

    /// The same for a datagram. A frozen machine's network card takes datagrams in; the machine reads them
    /// once it goes on.
    pub fn verdict_of_datagram(&self, from: End, to: End) -> Verdict {
        if !self.runs(from) || !self.is_on(to) {
            return Verdict::Silence;
        }
        self.on_the_way(from, to)
    }

    fn on_the_way(&self, from: End, to: End) -> Verdict {
        match self.faults.get(&(from, to)) {
            Some(fault) if fault.cut => Verdict::Silence,
            Some(fault) => Verdict::Deliver {
                delay: fault.delay,
                drop_percent: fault.drop_percent,
            },
            None => Verdict::Deliver {
                delay: Duration::ZERO,
                drop_percent: 0,
            },
        }
    }

    /// Whether anything passes that way.
    pub fn passes(&self, from: End, to: End) -> bool {
        self.verdict(from, to) != Verdict::Silence
    }

    /// Whether a handshake between the two is possible, which takes both directions.
    pub fn both_ways(&self, a: End, b: End) -> bool {
        self.passes(a, b) && self.passes(b, a)
    }

    /// Whether no other end can open a connection to this node.
    pub fn is_unreachable(&self, node: u8) -> bool {
        self.ends()
            .filter(|end| *end != End::Node(node))
            .all(|end| !self.both_ways(end, End::Node(node)))
    }

    /// Whether this end has power; the cloud always has.
    pub fn is_on(&self, end: End) -> bool {
        match end {
            End::Cloud => true,
            End::Node(node) => self.power_of(node).is_some_and(|power| power.on),
        }
    }

    /// Whether a node has power and stands still.
    pub fn is_frozen(&self, node: u8) -> bool {
        self.power_of(node).is_some_and(|power| power.on && power.frozen)
    }

    fn runs(&self, end: End) -> bool {
        match end {
            End::Cloud => true,
            End::Node(node) => self.power_of(node).is_some_and(Power::runs),
        }
    }

    /// How often this end was switched on again; connections do not outlive a change.
    pub fn boot(&self, end: End) -> u32 {
        match end {
            End::Cloud => 0,
            End::Node(node) => self.power_of(node).map_or(0, |power| power.boot),
        }
    }

    /// Puts a fault on the link between `node` and `other`. The direction that `way` leaves out keeps what it
    /// has.
    pub fn set(&mut self, node: u8, other: End, way: Way, fault: Fault) {
        let node = End::Node(node);
        if way != Way::To {
            self.faults.insert((node, other), fault);
        }
        if way != Way::From {
            self.faults.insert((other, node), fault);
        }
    }

    /// Repairs every link of one node, or all links; power is left as it is.
    pub fn repair(&mut self, node: Option<u8>) {
        match node {
            None => self.faults.clear(),
            Some(node) => {
                let node = End::Node(node);
                self.faults.retain(|(from, to), _| *from != node && *to != node);
            }
        }
    }

    /// Switches a node off.
    pub fn power_off(&mut self, node: u8) {
        if let Some(power) = self.power_mut(node) {
            power.on = false;
            power.frozen = false;
        }
    }

    /// Freezes a node that is on: nothing gets an answer, and nothing is lost.
    pub fn freeze(&mut self, node: u8) {
        if let Some(power) = self.power_mut(node) {
            power.frozen = power.on;
        }
    }

    /// Lets a frozen node go on where it was: the same boot.
    pub fn thaw(&mut self, node: u8) {
        if let Some(power) = self.power_mut(node) {
            power.frozen = false;
        }
    }

    /// Switches a node on: a new boot. Does nothing to a node that is on.
    pub fn power_on(&mut self, node: u8) {
        if let Some(power) = self.power_mut(node)
            && !power.on
        {
            *power = Power {
                on: true,
                boot: power.boot + 1,
                frozen: false,
            };
        }
    }

    /// Numbers of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = u8> + use<> {
        // `new` takes the count as u8.
        1..=u8::try_from(self.power.len()).unwrap_or(u8::MAX)
    }

    /// The faults of one node's links, for people: the other end, the way as seen from the node, the fault.
    pub fn faults_of(&self, node: u8) -> Vec<(End, Way, Fault)> {
        let this = End::Node(node);
        let mut found = Vec::new();
        for other in self.ends().filter(|end| *end != this) {
            let (out, back) = (self.faults.get(&(this, other)), self.faults.get(&(other, this)));
            match (out, back) {
                (Some(out), Some(back)) if out == back => found.push((other, Way::Both, *out)),
                _ => {
                    found.extend(out.map(|fault| (other, Way::From, *fault)));
                    found.extend(back.map(|fault| (other, Way::To, *fault)));
                }
            }
        }
        found
    }

    fn ends(&self) -> impl Iterator<Item = End> + use<> {
        std::iter::once(End::Cloud).chain(self.nodes().map(End::Node))
    }

    fn power_of(&self, node: u8) -> Option<Power> {
        self.power.get(usize::from(node).checked_sub(1)?).copied()
    }

    fn power_mut(&mut self, node: u8) -> Option<&mut Power> {
        self.power.get_mut(usize::from(node).checked_sub(1)?)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "both ways",
            Self::From => "outgoing",
            Self::To => "incoming",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cut {
            return f.write_str("cut");
        }
        let mut parts = Vec::new();
        if !self.delay.is_zero() {
            parts.push(format!("delayed {} ms", self.delay.as_millis()));
        }
        if self.drop_percent > 0 {
            parts.push(format!("{} % lost", self.drop_percent));
        }
        f.write_str(if parts.is_empty() { "whole" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
