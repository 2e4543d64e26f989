//! What Nodes record: left by earlier processes, written by other replicas.

use super::merge::Claims;
use super::{Change, Event, Refused, Registry};
use crate::core::Base;
use std::sync::Arc;

impl Registry {
    /// A Node is there.
    pub(super) fn node(
        &mut self,
        node: &Arc<str>,
        record: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let identity = record.identity.clone();
        if let Some(other) = self.nodes.get(node).filter(|other| **other != identity) {
            return Err(Refused::SameNode {
                node: node.clone(),
                identity,
                other: other.clone(),
            });
        }
        let (address, socket) = (record.endpoint.address, record.socket());
        if !self.bases.contains_key(&identity) && self.doomed.contains_key(node) {
            return Ok(());
        }
        let Some(entry) = self.bases.get_mut(&identity) else {
            let claims = Claims::record(&record, self.now);
            self.add(&identity, claims, Some((node, record)), None, out)?;
            self.rename(&identity, address, socket, out);
            return Ok(());
        };
        if entry.node != *node {
            return Err(Refused::TwoNodes {
                identity,
                node: entry.node.clone(),
                other: node.clone(),
            });
        }
        entry.seen = true;
        let news = entry.record.as_ref() != Some(&record) && *entry.base != record;
        entry.record = Some(record.clone());
        if !news {
            return Ok(());
        }
        // Other replicas write down what they hear; of a base that we serve we judge it like an announcement.
        if entry.ours && entry.deactivated.is_none() && entry.base.endpoint != record.endpoint {
            self.may_announce(&identity, address, None)?;
            let now = self.now;
            self.revived(&identity, |claims| claims.put_record(&record, now), out);
        } else {
            if entry.base.endpoint != record.endpoint {
                entry.heard = self.now;
            }
            entry.claims.put_record(&record, self.now);
            self.refresh(&identity, out);
        }
        self.rename(&identity, address, socket, out);
        Ok(())
    }

    /// A Node is there no more.
    pub(super) fn node_gone(&mut self, node: &Arc<str>, out: &mut Vec<Event>) {
        self.doomed.remove(node);
        let Some(identity) = self.nodes.get(node).cloned() else {
            return;
        };
        let Some(entry) = self.bases.get_mut(&identity) else {
            return;
        };
        entry.seen = false;
        entry.record = None;
        // One that we serve is registered anew by who serves it.
        if !entry.ours {
            self.remove(&identity, Change::Left, out);
        }
    }
}
