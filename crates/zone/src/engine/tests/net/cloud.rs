//! The cloud of a net: links to it, Leases, and what the controller asks for.

use super::{Net, ZONE};
use crate::Millis;
use crate::engine::Input;
use crate::fixture::Fixture;
use crate::verdict::{Health, Issued};
use crate::wire::{Challenge, Renewal};

impl Net {
    pub(in super::super) fn cut_cloud(&mut self, i: usize) {
        self.cut.insert((i, 0));
    }

    /// The link is back, and used at once.
    pub(in super::super) fn heal_cloud(&mut self, i: usize) {
        self.cut.remove(&(i, 0));
        self.feed(i, Input::CloudContact);
    }

    /// The controller needs rounds about these nodes. Everybody learns it with the next look at ZoneHealth.
    pub(in super::super) fn want(&mut self, nodes: &[usize]) {
        self.wanted = nodes.iter().copied().collect();
        self.told.clear();
    }

    /// The controller replaces its challenge.
    pub(in super::super) fn challenge(&mut self, number: u8) {
        self.challenges.truncate(1);
        self.challenges.insert(0, Challenge([number; 16]));
        self.issue();
        self.told.clear();
    }

    /// The reader learns the challenges.
    pub(super) fn issue(&mut self) {
        let issued: Vec<Issued> = self
            .challenges
            .iter()
            .map(|challenge| Issued {
                challenge: *challenge,
                drawn: None,
            })
            .collect();
        self.book.challenges(Millis(self.now), ZONE, &issued);
    }

    /// From now on nobody takes the cell's Lease.
    pub(in super::super) fn freeze_lease(&mut self) {
        if let Some((holder, _)) = self.lease.take() {
            self.feed(holder, Input::Leading(false));
        }
        self.lease_is_frozen = true;
    }

    pub(super) fn reaches_cloud(&self, i: usize) -> bool {
        self.engines[i - 1].is_some() && !self.cut.contains(&(i, 0))
    }

    pub(super) fn step_cloud(&mut self) {
        for i in 1..=self.count() {
            if !self.reaches_cloud(i) {
                continue;
            }
            if self.now.is_multiple_of(5_000) {
                self.feed(i, Input::CloudContact);
                let kubelet = if self.kubelets.contains(&i) {
                    Health::Ok
                } else {
                    Health::Failing
                };
                self.feed(
                    i,
                    Input::Facts {
                        kubelet,
                        runtime: Health::Ok,
                    },
                );
            }
            if self.told.insert(i) {
                let wanted = self.wanted.iter().map(|node| Fixture::id(*node)).collect();
                let challenge = self.challenges[0];
                self.feed(i, Input::Challenge { challenge, wanted });
            }
        }
        if self.now.is_multiple_of(10_000) {
            for i in self.kubelets.clone() {
                if !self.cut.contains(&(i, 0)) {
                    self.renewals.insert(i, Renewal(self.now));
                }
            }
        }
        // The Lease: 5 s to live, renewed every second by a holder that stands and reaches the cloud.
        if self.now.is_multiple_of(1_000) && !self.lease_is_frozen {
            match self.lease {
                Some((holder, _)) if self.standing.contains(&holder) && self.reaches_cloud(holder) => {
                    self.lease = Some((holder, self.now));
                    self.book
                        .heartbeat(Millis(self.now), ZONE, &format!("node-{holder}"));
                }
                Some((_, renewed)) if self.now - renewed <= 5_000 => {}
                _ => {
                    let next = self.standing.iter().copied().find(|i| self.reaches_cloud(*i));
                    if let Some((old, _)) = self.lease.take() {
                        self.feed(old, Input::Leading(false));
                    }
                    self.lease = next.map(|next| (next, self.now));
                    if let Some(next) = next {
                        self.feed(next, Input::Leading(true));
                    }
                }
            }
        }
    }
}
