//! Rosters: which nodes of a cell watch each other. Made of Nodes and AgentStatus objects by the leader
//! alone.

use evenkeel_api::crd::AgentStatusSpec;
use evenkeel_api::names::kept_out_of_rosters;
use evenkeel_api::zone::{RosterMember, RosterSpec};
use evenkeel_zone::keys::{KeyError, PublicKey};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Whether a node can be in a roster at all: control-plane and virtual nodes are not.
pub fn eligible(labels: &BTreeMap<String, String>) -> bool {
    kept_out_of_rosters(labels).is_none()
}

/// Public keys that were looked at and hold. A look costs some 10 µs, and rosters are made twice a second.
#[derive(Debug, Default)]
pub struct SoundKeys(BTreeSet<String>);

impl SoundKeys {
    fn check(&mut self, key: &str) -> Result<(), KeyError> {
        if !self.0.contains(key) {
            PublicKey::from_base64(key)?;
            self.0.insert(key.to_owned());
        }
        Ok(())
    }

    /// Forgets all where most are of agents that are gone.
    pub fn bound(&mut self, agents: usize) {
        if self.0.len() > 2 * agents + 16 {
            self.0.clear();
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
        kubelet: agent.kubelet.clone(),
    })
}

/// The members whose key is their own. A key belongs to one agent: of several nodes that claim it, the one
/// that has it in a roster of `published` keeps it; if none has, none of them becomes a member. Otherwise one
/// agent would have two votes, and readers would refuse the roster.
pub fn with_own_keys(published: &[&RosterMember], members: &mut Vec<RosterMember>) {
    let mut claims: BTreeMap<String, usize> = BTreeMap::new();
    for member in &*members {
        *claims.entry(member.public_key.clone()).or_default() += 1;
    }
    let held = |member: &RosterMember| {
        let known = published.iter();
        known
            .into_iter()
            .any(|known| known.uid == member.uid && known.public_key == member.public_key)
    };
    members.retain(|member| claims.get(&member.public_key) == Some(&1) || held(member));
}

/// The roster to publish for `members`, if it differs from `current`: sorted by UID, its version above every
/// version that was ever seen (`floor`: a ZoneHealth that was deleted and made again must not go back).
///
/// A cell that never had a member gets no roster; one that lost its last member gets an empty one.
///
/// A version that readers refuse, or that went back, was written by hand and is replaced.
pub fn next(current: Option<&RosterSpec>, floor: i64, mut members: Vec<RosterMember>) -> Option<RosterSpec> {
    members.sort_by(|a, b| a.uid.cmp(&b.uid));
    match current {
        None if members.is_empty() => None,
        Some(roster) if roster.members == members && roster.has_version() && roster.version >= floor => None,
        _ => {
            let current = current.filter(|roster| roster.has_version());
            let version = current
                .map_or(0, |roster| roster.version)
                .max(floor)
                .saturating_add(1);
            let roster = RosterSpec { version, members };
            roster.has_version().then_some(roster)
        }
    }
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
