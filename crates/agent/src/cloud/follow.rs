//! What the controller says to this agent: the roster of its cell, what is asked of the cell, and which cell
//! it is.

use super::Cloud;
use super::back_off::{self, BackOff};
use super::error::CloudError;
use super::seen::{Asked, Seen};
use super::watched::{Step, Watched};
use crate::state::Learned;
use crate::zone::Event;
use evenkeel_api::crd::{ZoneChallenge, ZoneHealth};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// The longest wait after a failure of who reports as soon as it has a link. Nobody else may have its
/// evidence, and it is needed as soon as an outage is over.
pub(super) const REPORTER_WAITS: Duration = Duration::from_secs(5);
/// How often it is looked whether the API server was heard. Pings are answered every 5 s, and the engine
/// takes the link for cut after 8 s without contact: 2 s are left for the round trip of a ping.
const HEARD: Duration = Duration::from_secs(1);
/// Within this time a watch that begins anew has told the object, if there is one.
const TELLS: Duration = Duration::from_secs(1);

/// Watches ZoneHealth and ZoneChallenge of the agent's cell until shutdown. Follows the agent to another cell
/// when the controller moves it there.
pub(crate) struct Follower {
    pub(crate) cloud: Cloud,
    /// UID of the agent's Node.
    pub(crate) node_uid: String,
    /// Name of the ZoneHealth of the zone's first cell.
    pub(crate) first_cell: String,
    /// Name of the ZoneHealth of the agent's cell.
    pub(crate) cell: watch::Sender<String>,
    pub(crate) learned: mpsc::UnboundedSender<Learned>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Has Node and AgentStatus compared with what they should be.
    pub(crate) register: Arc<Notify>,
}

/// What is seen of one cell.
struct Sight {
    zone: Watched,
    challenge: Watched,
    /// Whether its roster holds this agent; nothing while that is not known.
    member: Option<bool>,
    /// When an agent that no roster holds looks next whether it was given another cell.
    look_at: Instant,
    looks: BackOff,
}

impl Sight {
    fn of(cloud: &Cloud, cell: &str) -> Self {
        Self {
            zone: Watched::new::<ZoneHealth>(cloud.client(), "watching ZoneHealth", cell),
            challenge: Watched::new::<ZoneChallenge>(cloud.client(), "watching ZoneChallenge", cell),
            member: None,
            look_at: Instant::now(),
            looks: BackOff::default(),
        }
    }

    fn look_later(&mut self) {
        self.look_at = Instant::now() + self.looks.next(back_off::LONGEST, rand::random());
    }
}

/// Whether the API server answers, for the log, and when it was last heard.
struct Link {
    silent: bool,
    heard: Instant,
}

impl Link {
    fn hears(&mut self, contact: bool) -> Option<Event> {
        if std::mem::replace(&mut self.silent, !contact) == contact {
            if contact {
                tracing::info!("the API server answers");
            } else {
                tracing::warn!("the API server does not answer");
            }
        }
        contact.then(|| {
            self.heard = Instant::now();
            Event::Contact
        })
    }

    /// A watch failed, while the other one stands or not.
    fn fails(&mut self, error: &CloudError, other_stands: bool) -> Option<Event> {
        let contact = error.is_contact();
        if contact {
            tracing::warn!(%error, "a watch is refused");
        } else {
            tracing::debug!(%error, "a watch failed");
        }
        (contact || !other_stands).then(|| self.hears(contact)).flatten()
    }
}

impl Follower {
    /// Until shutdown. `ranked`: whether this agent reports as soon as it has a link.
    pub(crate) async fn run(self, mut ranked: watch::Receiver<bool>, shutdown: CancellationToken) {
        let cell = self.cell.borrow().clone();
        let mut sight = Sight::of(&self.cloud, &cell);
        let mut link = Link {
            silent: false,
            heard: Instant::now(),
        };
        let mut look = interval(HEARD);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let stands = sight.zone.stands() || sight.challenge.stands();
            let longest = if *ranked.borrow_and_update() {
                REPORTER_WAITS
            } else {
                back_off::LONGEST
            };
            let is_lost = sight.zone.stands() && sight.member != Some(true);
            let told = tokio::select! {
                () = shutdown.cancelled() => return,
                changed = ranked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if *ranked.borrow() {
                        sight.zone.hurry(REPORTER_WAITS);
                        sight.challenge.hurry(REPORTER_WAITS);
                    }
                    [None, None]
                }
                step = sight.zone.next(longest) => self.take_zone(&mut sight, &mut link, step),
                // While the API server does not answer, one of the two asks for both.
                step = sight.challenge.next(longest), if stands => [take_challenge(&mut sight, &mut link, step), None],
                _ = look.tick(), if stands => {
                    let heard = |watched: &Watched| watched.is_heard_since(link.heard);
                    let contact = heard(&sight.zone) || heard(&sight.challenge);
                    [if contact { link.hears(true) } else { None }, None]
                }
                () = sleep_until(sight.look_at), if is_lost => {
                    self.look(&mut sight).await;
                    [None, None]
                }
            };
            for event in told.into_iter().flatten() {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    fn take_zone(&self, sight: &mut Sight, link: &mut Link, step: Step) -> [Option<Event>; 2] {
        match step {
            Step::Began { anew } => {
                if anew {
                    sight.member = None;
                    sight.look_at = Instant::now() + TELLS;
                }
                [link.hears(true), None]
            }
            Step::Put(object) => match Seen::read(&object) {
                Ok(None) => [None, None],
                Ok(Some(seen)) => {
                    self.take_membership(sight, seen.has_member(&self.node_uid));
                    [None, Some(Event::Seen(Box::new(seen)))]
                }
                Err(error) => {
                    tracing::warn!(%error, "a roster is passed over");
                    [None, None]
                }
            },
            Step::Gone => {
                self.take_membership(sight, false);
                [None, None]
            }
            Step::Failed(error) => [link.fails(&error, sight.challenge.stands()), None],
        }
    }

    /// The roster holds this agent, or not.
    fn take_membership(&self, sight: &mut Sight, member: bool) {
        let was = sight.member.replace(member);
        if !member && was != Some(false) {
            sight.looks.end();
            sight.look_at = Instant::now();
        }
        if !member && was == Some(true) {
            // Its Node may be in another zone now, or another one, or its AgentStatus may be gone.
            self.register.notify_one();
        }
    }

    /// Looks whether the controller has moved this agent to another cell than the one that is watched, whose
    /// roster does not hold it.
    async fn look(&self, sight: &mut Sight) {
        let cell = self.cell.borrow().clone();
        if sight.member.is_none() {
            tracing::debug!(cell, "no ZoneHealth yet: the controller makes it");
        }
        sight.look_later();
        let told = match self.cloud.told_cell().await {
            Ok(Some(told)) if told.is_empty() => self.first_cell.clone(),
            Ok(Some(told)) => told,
            Ok(None) => return self.register.notify_one(),
            Err(error) => {
                tracing::debug!(%error, "it is not known which cell this agent belongs to");
                return;
            }
        };
        if told == cell {
            return;
        }
        tracing::info!(from = cell, to = told, "the agent belongs to another cell");
        if self.learned.send(Learned::Cell(told.clone())).is_err() {
            tracing::debug!("nothing is remembered any more: the agent is ending");
        }
        *sight = Sight::of(&self.cloud, &told);
        self.cell.send_replace(told);
    }
}

fn take_challenge(sight: &mut Sight, link: &mut Link, step: Step) -> Option<Event> {
    match step {
        Step::Began { .. } => link.hears(true),
        Step::Put(object) => Some(Event::Asked(Box::new(Asked::read(&object)))),
        // What it asked last stays so: its ZoneHealth goes with it, or it is made again.
        Step::Gone => None,
        Step::Failed(error) => {
            // Until the next one a carrier may name another challenge, which only the present one replaces.
            sight.challenge.begin_anew();
            link.fails(&error, sight.zone.stands())
        }
    }
}

#[cfg(test)]
mod tests;
