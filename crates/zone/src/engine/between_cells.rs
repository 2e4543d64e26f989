//! What passes between agents of different cells: see `hand_over` for a cell without a link, and `carrier`
//! for those who write for it.

use super::carrier::Stand;
use super::context::Context;
use super::hand_over::{News, Standing, is_needed};
use super::ranking::Ranking;
use super::reach::Reach;
use super::{Engine, Input};
use crate::roster::REPORTERS;
use crate::verdict::Link;
use crate::wire::{Frame, MAX_REFERRED, Referred};
use std::net::SocketAddr;

impl Engine {
    /// Whether a datagram is of an agent of another cell.
    pub(super) fn is_from_outside(&self, frame: &Frame<'_>) -> bool {
        let from = frame.from();
        let speaks = || self.hand_over.partner(from).is_some() || self.carrier.asker(from).is_some();
        frame.is_between_cells() || !self.cx.roster().contains(from) && speaks()
    }

    /// Takes such a datagram, or refuses it with a reason for metrics.
    pub(super) fn receive_outside(
        &mut self,
        frame: &Frame<'_>,
        source: SocketAddr,
    ) -> Result<(), &'static str> {
        let from = frame.from();
        if frame.claimed_key().is_some() {
            let Self {
                cx,
                own,
                contacts,
                watches,
                edges,
                carrier,
                ..
            } = self;
            let stand = |cx: &Context| {
                let ranking = Ranking {
                    cx,
                    own,
                    reach: Reach::new(cx, contacts, watches),
                    edges,
                };
                Stand {
                    linked: own.facts().cloud == Link::Up,
                    others: others(cx, ranking),
                }
            };
            return carrier.take_offer(cx, frame, source, stand);
        }
        if let Some(partner) = self.hand_over.partner(from) {
            let message = self.cx.open_from(frame, partner)?;
            if !is_needed(&self.cx, &self.own) {
                return Err("unasked");
            }
            for news in self.hand_over.take(&mut self.cx, &message)? {
                self.take_news(news);
            }
            return Ok(());
        }
        let asker = self.carrier.asker(from).ok_or("stranger")?;
        let message = self.cx.open_from(frame, asker)?;
        self.carrier.take(&mut self.cx, &message)
    }

    /// What the API server would be asked for in vain is asked of others.
    pub(super) fn divert(&mut self) {
        if is_needed(&self.cx, &self.own) {
            let (rank, told) = (self.reporter.rank(), self.publication.is_told(self.cx.now()));
            let standing = Standing {
                rank: rank.unwrap_or_default(),
                spare: told && rank != Some(0),
            };
            if self.hand_over.divert(&mut self.cx, standing) {
                self.take_written(false);
            }
        }
        self.own.be_carried(self.hand_over.is_carried());
    }

    /// What the API server says of a cell that this agent carries.
    pub(super) fn take_of_other_cell(&mut self, input: Input<'_>) {
        let Self { cx, carrier, .. } = self;
        match input {
            Input::OtherRoster { cell, roster } => carrier.take_roster(cx, cell, roster),
            Input::OtherChallenge {
                cell,
                challenge,
                wanted,
            } => carrier.take_challenge(cx, cell, (challenge, wanted)),
            Input::CarriedWritten {
                cell,
                sequence,
                written,
            } => carrier.take_written(cx, cell, sequence, written),
            Input::OtherLeaseRead {
                cell,
                member,
                renewal,
            } => carrier.take_renewal(cx, cell, (member, renewal)),
            // All others are about the agent's own cell.
            _ => {}
        }
    }

    pub(super) fn step_between_cells(&mut self) {
        if let Some(news) = self.hand_over.step(&mut self.cx, &self.own) {
            self.take_news(news);
        }
        let linked = self.own.facts().cloud == Link::Up;
        self.carrier.step(&mut self.cx, linked);
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::Report { written } => self.take_written(written),
            News::Challenge(carried) => {
                self.take_challenge(carried.challenge, carried.wanted.into_iter().collect());
            }
            News::Roster(roster) => self.take_passed_on(roster),
            News::Renewal(member, renewal) => self.reporter.take_renewal(&self.cx, member, renewal),
        }
    }
}

/// Agents that may carry, or know who does: members of the own cell that have a link, or else the one that
/// reports first and may know one, and the contacts of its roster.
fn others(cx: &Context, ranking: Ranking<'_>) -> Vec<Referred> {
    let most = if ranking.nobody_is_up() { 1 } else { REPORTERS };
    let reporters = ranking.reporters().into_iter().filter(|index| !cx.is_me(*index));
    let reporters = reporters.take(most);
    let members = reporters.filter_map(|index| {
        let member = cx.roster().member(index)?;
        Some(Referred {
            id: member.id,
            address: cx.address(index)?,
            key: *member.key.as_bytes(),
        })
    });
    let contacts = cx.roster().contacts().iter().map(|contact| Referred {
        id: contact.id,
        address: contact.address,
        key: *contact.key.as_bytes(),
    });
    members.chain(contacts).take(MAX_REFERRED).collect()
}
