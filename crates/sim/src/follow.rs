//! How an agent follows its cell: a watch of ZoneHealth and ZoneChallenge, whose connection is pinged.

use crate::api::Change;
use crate::api::objects::Object;
use crate::event::{AgentDue, Call, Source};
use crate::sim::Sim;
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::engine::Input;
use evenkeel_zone::roster::Roster;
use std::rc::Rc;
use std::sync::Arc;

/// A connection is pinged after so much silence. It is taken for lost when a request is not answered.
const PING_AFTER: u64 = 5_000;
/// The server ends a watch after so long and up to as much again.
const LASTS: u64 = 300_000;
/// The longest wait after the first failure; it doubles up to `LONGEST`, for a reporter up to
/// `REPORTER_WAITS`. Half of each is random.
const FIRST_WAIT: u64 = 1_500;
const LONGEST: u64 = 30_000;
const REPORTER_WAITS: u64 = 5_000;
/// What is under way when a link fails is sent again this often.
const AGAIN: u64 = 500;

impl Sim {
    /// Begins a watch after `delay`; one that stands or waits ends.
    pub(crate) fn follow_later(&mut self, node: usize, life: u64, delay: u64) {
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        agent.following.epoch += 1;
        agent.following.stands = false;
        let epoch = agent.following.epoch;
        self.agent_later(node, life, delay, AgentDue::Follow(epoch));
    }

    pub(crate) fn follow(&mut self, node: usize, life: u64, epoch: u64) {
        let cell = self.cell_of(node);
        let following = self.agent_of(node, life).map(|agent| &mut agent.following);
        if let Some(following) = following.filter(|following| following.epoch == epoch) {
            following.cell = cell;
            self.request(Source::Agent(node, life), Call::WatchCell { epoch });
        }
    }

    /// A watch stands, and told the objects as they are.
    pub(crate) fn follows(&mut self, node: usize, life: u64, epoch: u64, objects: [Option<Rc<Object>>; 2]) {
        let ends = self.now + LASTS + self.rng.below(LASTS);
        let following = self.agent_of(node, life).map(|agent| &mut agent.following);
        let Some(following) = following.filter(|following| following.epoch == epoch) else {
            return;
        };
        if !std::mem::replace(&mut following.stands, true) {
            self.agent_later(node, life, PING_AFTER, AgentDue::Ping(epoch));
        }
        if let Some(agent) = self.agent_of(node, life) {
            agent.following.ends = ends;
            agent.following.failures = 0;
        }
        self.feed(node, life, Input::CloudContact);
        for object in objects.into_iter().flatten() {
            self.agent_reads(node, life, object);
        }
    }

    pub(crate) fn ping(&mut self, node: usize, life: u64, epoch: u64) {
        let following = self.agent_of(node, life).map(|agent| &mut agent.following);
        if following.is_some_and(|following| following.stands && following.epoch == epoch) {
            self.request(Source::Agent(node, life), Call::Ping { epoch });
        }
    }

    /// The connection answers. A watch whose time is over, or whose cell is no longer the agent's, is begun
    /// anew.
    pub(crate) fn pong(&mut self, node: usize, life: u64, epoch: u64) {
        let (now, cell) = (self.now, self.cell_of(node));
        let following = self.agent_of(node, life).map(|agent| &agent.following);
        let Some(following) = following.filter(|following| following.epoch == epoch) else {
            return;
        };
        let over = now >= following.ends || following.cell != cell;
        self.feed(node, life, Input::CloudContact);
        if over {
            self.follow_later(node, life, 0);
        } else {
            self.agent_later(node, life, PING_AFTER, AgentDue::Ping(epoch));
        }
    }

    /// No watch begins, or the one that stood is lost.
    pub(crate) fn follows_no_more(&mut self, node: usize, life: u64, epoch: u64) {
        let random = self.rng.below(1_000);
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        if agent.following.epoch != epoch {
            return;
        }
        let longest = if agent.ranked { REPORTER_WAITS } else { LONGEST };
        let wait = (FIRST_WAIT << agent.following.failures.min(8)).min(longest);
        agent.following.failures += 1;
        self.follow_later(node, life, wait / 2 + wait / 2 * random / 1_000);
    }

    /// An agent that reports as soon as it has a link asks soon, if it is waiting.
    pub(crate) fn rank(&mut self, node: usize, life: u64, ranked: bool) {
        let wait = self.rng.below(REPORTER_WAITS);
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        agent.ranked = ranked;
        if ranked && !agent.following.stands {
            self.follow_later(node, life, wait);
        }
    }

    /// The API server has taken the watch, and tells all changes from now on, some of them before the agent
    /// has heard that it stands.
    pub(crate) fn watch_is_taken(&mut self, node: usize, life: u64, epoch: u64) {
        if let Some(agent) = self.agent_of(node, life) {
            agent.following.taken = epoch;
        }
    }

    /// Life and connection of an agent whose watch of such a cell the API server has taken.
    fn standing(&self, node: usize, of: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
        let machine = self.machines.get(node - 1)?;
        let following = &machine.agent.as_ref()?.following;
        let stands = following.taken == following.epoch && of(&following.cell);
        stands.then_some((machine.agent_life, following.epoch))
    }

    /// The API server ends all connections.
    pub(crate) fn break_agents_watches(&mut self) {
        for node in 1..=self.machines.len() {
            if let Some((life, epoch)) = self.standing(node, |_| true).filter(|_| self.has_link(node)) {
                self.follows_no_more(node, life, epoch);
            }
        }
    }

    /// Sends what was written about a cell to its agents.
    pub(crate) fn tell_agents(&mut self, change: &Change) {
        let Some(object) = &change.object else {
            return;
        };
        if !matches!(change.kind, Kind::Zone | Kind::Challenge) {
            return;
        }
        self.tell_carriers(change);
        for node in 1..=self.machines.len() {
            if let Some((life, epoch)) = self.standing(node, |cell| *cell == change.key.1) {
                let delay = self.rng.between(2, 60);
                self.agent_later(node, life, delay, AgentDue::Sees(epoch, Rc::clone(object)));
            }
        }
    }

    pub(crate) fn agent_sees(&mut self, node: usize, life: u64, epoch: u64, object: Rc<Object>) {
        let following = self.agent_of(node, life).map(|agent| &agent.following);
        if following.is_none_or(|following| following.epoch != epoch) {
            return;
        }
        if !self.has_link(node) {
            return self.agent_later(node, life, AGAIN, AgentDue::Sees(epoch, object));
        }
        self.agent_reads(node, life, object);
    }

    /// Versions of another object than the one whose roster is in force are not compared: the agent begins
    /// anew.
    pub(crate) fn moves(&mut self, node: usize, life: u64, roster: &Arc<Roster>) {
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        let (known, sequence) = (agent.engine.roster(), agent.engine.sequence());
        if known.reference().version == 0 || known.cell().uid == roster.cell().uid {
            return;
        }
        let Some(engine) = self.engine(node, Arc::clone(roster), sequence) else {
            return;
        };
        if let Some(agent) = self.agent_of(node, life) {
            agent.engine = engine;
            agent.others.clear();
            agent.ranked = false;
            let stands = std::mem::take(&mut agent.standing);
            if stands {
                self.stand(node, life, false);
            }
            // The object was read just now.
            self.feed(node, life, Input::CloudContact);
        }
    }
}
