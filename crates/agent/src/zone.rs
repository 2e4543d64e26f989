//! The datagram loop around the engine.

mod event;
#[cfg(test)]
mod tests;

use crate::args::Settings;
use crate::boot::Boot;
use crate::check::{Checks, Suspect};
use crate::cloud::{LastAsked, Leases, Seen, Statement};
use crate::key::Claims;
use crate::metrics::{Metrics, Reason, Result as Outcome};
use crate::readiness::Place;
use crate::reporter::Draft;
use crate::state::{Learned, SEQUENCE_BLOCK_BITS};
use evenkeel_api::zone::RosterAcknowledgement;
use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_zone::Millis;
use evenkeel_zone::engine::{
    CheckResult, Config, Engine, Identity, Input, Met, Note, Output, Question, ReportDraft,
};
use evenkeel_zone::keys::{PublicKey, SigningKey};
use evenkeel_zone::roster::{MemberId, Roster, RosterKeys};
use evenkeel_zone::verdict::Health;
use evenkeel_zone::wire::{MAX_FRAME, Renewal};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use event::Event;

/// Checks that run at the same time; more are answered with "unavailable". Three reporters may ask about a
/// whole cell of 64 at once.
const MOST_CHECKS: usize = 256;

/// The longest wait for the engine's deadline. An engine that waits for nothing has one for ever ahead.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// What the controller last said.
#[derive(Default)]
struct Known {
    zone: Option<Seen>,
    asked: LastAsked,
}

/// What the loop is made of.
pub(crate) struct ZoneLoop {
    pub(crate) settings: Settings,
    pub(crate) key: Arc<SigningKey>,
    /// Its next or its former one.
    pub(crate) other_key: Option<Arc<SigningKey>>,
    /// What the roster in force says of this agent.
    pub(crate) published: watch::Sender<Option<Claims>>,
    pub(crate) node_uid: String,
    pub(crate) roster: Arc<Roster>,
    pub(crate) roster_keys: RosterKeys,
    /// How suspects are checked now.
    pub(crate) checks: watch::Receiver<Checks>,
    pub(crate) boot: Boot,
    /// Whom the life before the present engine's had met.
    pub(crate) met: Met,
    pub(crate) sequence_base: u64,
    pub(crate) socket: UdpSocket,
    pub(crate) leases: Leases,
    /// Those of members of other cells, which hold nothing up.
    pub(crate) carried_leases: Leases,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) own_events: mpsc::Sender<Event>,
    pub(crate) drafts: mpsc::Sender<Draft>,
    /// Those of other cells, which hold nothing up.
    pub(crate) carried_drafts: mpsc::Sender<Draft>,
    pub(crate) statements: mpsc::Sender<Statement>,
    pub(crate) standing: watch::Sender<bool>,
    /// Whether this agent reports as soon as it has a link.
    pub(crate) ranked: watch::Sender<bool>,
    /// The cells for which this agent writes.
    pub(crate) carried: watch::Sender<BTreeSet<u32>>,
    pub(crate) learned: mpsc::UnboundedSender<Learned>,
    pub(crate) place: watch::Sender<Place>,
    /// Names of members that were met and that checks do not find.
    pub(crate) not_found: watch::Sender<BTreeSet<String>>,
    pub(crate) metrics: Metrics,
    /// What was last told of the node's own kubelet.
    pub(crate) kubelet: Health,
}

/// Milliseconds since boot, sleep included: a suspended agent must notice that time has passed.
pub(crate) fn now() -> Millis {
    let millis = SystemClock.boot().as_millis();
    Millis(u64::try_from(millis).expect("a machine is not up for 500 million years"))
}

impl ZoneLoop {
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> io::Result<()> {
        let mut engine = self.engine(self.roster.clone(), self.sequence_base);
        let mut known = Known::default();
        let running = Arc::new(Semaphore::new(MOST_CHECKS));
        // One byte more than any datagram of ours: a longer one is cut there, and refused for its length.
        let mut buffer = [0; MAX_FRAME + 1];
        let mut outputs = Vec::new();
        loop {
            let wait = Duration::from_millis(engine.deadline().since(now())).min(LONGEST_WAIT);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, source)) => {
                        self.metrics.received.inc();
                        let datagram = buffer.get(..length).unwrap_or_default();
                        engine.handle(now(), Input::Datagram(datagram, source), &mut outputs);
                    }
                    // On Linux, an ICMP error to an earlier datagram shows up here; it says nothing that
                    // counts.
                    Err(error) if is_of_a_peer(&error) => {}
                    Err(error) => return Err(error),
                },
                event = self.events.recv() => match event {
                    Some(event) => self.take(&mut engine, &mut known, event, &mut outputs),
                    None => return Ok(()),
                },
                () = pause(wait) => engine.handle(now(), Input::Tick, &mut outputs),
            }
            for output in outputs.drain(..) {
                self.carry_out(&engine, known.zone.as_ref(), &running, output);
            }
            // The next life begins a block above what is remembered: each block that this life enters is
            // written down.
            if engine.sequence() >> SEQUENCE_BLOCK_BITS != self.sequence_base >> SEQUENCE_BLOCK_BITS {
                self.sequence_base = engine.sequence();
                self.learn(Learned::Sequence(self.sequence_base));
            }
            self.measure(&engine);
        }
    }

    fn engine(&self, roster: Arc<Roster>, sequence_base: u64) -> Engine {
        let identity = Identity {
            uid: self.node_uid.clone(),
            key: self.key.clone(),
            incarnation: rand::random(),
            sequence_base,
            seed: rand::random(),
            uptime_ms: self.boot.uptime_ms(now()),
            met: self.met.clone(),
        };
        let config = Config {
            period_ms: u64::try_from(self.settings.period.as_millis()).unwrap_or(u64::MAX),
            ..Config::default()
        };
        let other = self.other_key.clone().map(|other| other as _);
        Engine::new(config, identity, roster, now())
            .trusting(self.roster_keys.clone())
            .accepting(other)
    }

    fn take(&mut self, engine: &mut Engine, known: &mut Known, event: Event, outputs: &mut Vec<Output>) {
        let input = match event {
            Event::Contact => Input::CloudContact,
            Event::Kubelet(kubelet) => {
                self.kubelet = kubelet;
                self.facts()
            }
            Event::Checked(asked, suspect, result) => Input::Checked {
                asked,
                suspect,
                result,
            },
            Event::Keys { key, other } => {
                (self.key, self.other_key) = (key.clone(), other.clone());
                let other = other.map(|other| other as _);
                Input::Keys { key, other }
            }
            Event::ChecksChanged => Input::ChecksChanged,
            Event::RosterKeys(keys) => {
                engine.trust(keys.clone());
                self.roster_keys = keys;
                // What was refused may count now.
                if let Some(seen) = known.zone.take() {
                    self.take_zone_health(engine, &mut known.zone, seen, outputs);
                }
                return ask(engine, known, outputs);
            }
            Event::Leading(leading) => {
                self.metrics.leading.set(i64::from(leading));
                Input::Leading(leading)
            }
            Event::ReportWritten { written } => Input::ReportWritten { written },
            Event::LinkProof { written } => Input::LinkProof { written },
            Event::Acknowledged { written } => Input::Acknowledged { written },
            Event::LeaseRead(member, renewal) => Input::LeaseRead { member, renewal },
            Event::OtherSeen(cell, seen) => {
                match Roster::open(&seen.published, seen.cell_ref(), &self.roster_keys) {
                    Ok(roster) => Input::OtherRoster {
                        cell,
                        roster: Arc::new(roster),
                    },
                    Err(error) => {
                        tracing::warn!(%error, cell, "the roster of a cell that is carried is refused");
                        return;
                    }
                }
            }
            Event::OtherAsked(cell, asked) => Input::OtherChallenge {
                cell,
                challenge: asked.challenge,
                wanted: asked.wanted_members(),
            },
            Event::OtherLeaseRead(cell, member, renewal) => Input::OtherLeaseRead {
                cell,
                member,
                renewal,
            },
            Event::CarriedWritten {
                cell,
                sequence,
                written,
            } => Input::CarriedWritten {
                cell,
                sequence,
                written,
            },
            Event::Seen(seen) => {
                self.take_zone_health(engine, &mut known.zone, *seen, outputs);
                return ask(engine, known, outputs);
            }
            Event::Asked(asked) => {
                known.asked.take(*asked, Instant::now());
                return ask(engine, known, outputs);
            }
        };
        engine.handle(now(), input, outputs);
    }

    /// What this agent knows of its own node.
    fn facts(&self) -> Input<'static> {
        Input::Facts {
            kubelet: self.kubelet,
            runtime: Health::Unknown,
        }
    }

    fn take_zone_health(
        &mut self,
        engine: &mut Engine,
        current: &mut Option<Seen>,
        seen: Seen,
        outputs: &mut Vec<Output>,
    ) {
        if current.as_ref() == Some(&seen) {
            return;
        }
        let is_older = current
            .as_ref()
            .is_some_and(|current| seen.is_older_than(current));
        match Roster::open(&seen.published, seen.cell_ref(), &self.roster_keys).map(Arc::new) {
            Ok(roster) => {
                // Versions of an object that was made anew are not those of the former one.
                let (new, known) = (roster.cell().uid, engine.roster().cell().uid);
                if is_older && new != known {
                    return;
                }
                if new != known && engine.roster().reference().version > 0 {
                    tracing::warn!(
                        ?roster,
                        "ZoneHealth was made anew: beginning anew with its roster"
                    );
                    self.met = engine.met().clone();
                    *engine = self.engine(Arc::clone(&roster), engine.sequence());
                    self.carry(BTreeSet::new());
                    // What is told only when it changes.
                    engine.handle(now(), self.facts(), outputs);
                    self.ranked.send_replace(false);
                    if self.standing.send_replace(false) {
                        engine.handle(now(), Input::Leading(false), outputs);
                    }
                }
                engine.handle(now(), Input::Roster(roster), outputs);
                self.learn_roster(engine, "the API server");
            }
            Err(error) => tracing::warn!(%error, "the roster in ZoneHealth is refused"),
        }
        if !is_older {
            *current = Some(seen);
        }
    }

    fn carry_out(
        &mut self,
        engine: &Engine,
        current: Option<&Seen>,
        running: &Arc<Semaphore>,
        output: Output,
    ) {
        match output {
            Output::Send { address, bytes, .. } => match self.socket.try_send_to(&bytes, address) {
                Ok(_) => {
                    self.metrics.sent.inc();
                    self.metrics.sent_bytes.inc_by(bytes.len() as u64);
                }
                Err(error) => {
                    // Lost, like any datagram.
                    self.metrics.send_errors.inc();
                    tracing::debug!(%address, %error, "datagram not sent");
                }
            },
            Output::Check {
                asked,
                suspect,
                within_ms,
            } => self.check(engine, running, asked, suspect, within_ms),
            Output::ReadLease(member) => {
                let node = engine.roster().get(member).map(|member| member.name.clone());
                self.read_lease(&self.leases, node, move |renewal| {
                    Event::LeaseRead(member, renewal)
                });
            }
            Output::Report(draft) => {
                if !self.write_report(current, None, *draft) {
                    self.not_written("a report", Event::ReportWritten { written: false });
                }
            }
            Output::Follow(cells) => self.carry(cells),
            Output::Carry { cell, draft } => {
                let failed = Event::CarriedWritten {
                    cell,
                    sequence: draft.report.sequence,
                    written: false,
                };
                if !self.write_report(current, Some(cell), *draft) {
                    self.not_written("a report of another cell", failed);
                }
            }
            Output::ReadOtherLease { cell, member, node } => {
                self.read_lease(&self.carried_leases, Some(node), move |renewal| {
                    Event::OtherLeaseRead(cell, member, renewal)
                });
            }
            Output::ProveLink => {
                if self.statements.try_send(Statement::Link).is_err() {
                    tracing::debug!("a proof of the link is being written already");
                }
            }
            Output::Acknowledge {
                version,
                met,
                met_voters,
            } => self.acknowledge(current, version, (met, met_voters)),
            Output::Roster(_) => self.learn_roster(engine, "another member"),
            Output::Stand(stand) => {
                tracing::info!(stand, "reporting for the zone");
                self.standing.send_replace(stand);
            }
            Output::Ranked(ranked) => {
                self.ranked.send_replace(ranked);
            }
            Output::Met => self.learn(Learned::Met(engine.met().clone())),
            Output::Note(note) => self.log(&note),
            Output::Refused(reason) => {
                self.metrics.refused.get_or_create(&Reason { reason }).inc();
            }
        }
    }

    /// A roster is in force.
    fn learn_roster(&mut self, engine: &Engine, from: &'static str) {
        let roster = engine.roster();
        if **roster != *self.roster {
            tracing::info!(?roster, settled = !roster.is_settling(), from, "roster");
            self.learn(Learned::Roster(Arc::clone(roster), engine.met().clone()));
            self.roster = Arc::clone(roster);
        }
    }

    /// Has a report of the agent's own cell written, or of another one. Returns whether that can be done now:
    /// the engine tries again.
    fn write_report(&self, current: Option<&Seen>, carried: Option<u32>, draft: ReportDraft) -> bool {
        current.is_some_and(|seen| {
            let draft = Draft {
                contents: draft,
                zone: seen.zone.clone(),
                cell: carried.unwrap_or(seen.cell),
                carried: carried.is_some(),
                at: Instant::now(),
            };
            let lane = if carried.is_some() {
                &self.carried_drafts
            } else {
                &self.drafts
            };
            lane.try_send(draft).is_ok()
        })
    }

    /// Writes for these cells from now on, and for no others but its own.
    fn carry(&self, cells: BTreeSet<u32>) {
        self.metrics.carried.set(cells.len() as i64);
        let changed = self.carried.send_if_modified(|known| {
            let differs = *known != cells;
            known.clone_from(&cells);
            differs
        });
        if changed {
            tracing::info!(?cells, "writing for other cells of the zone, which have no link");
        }
    }

    /// Tells the engine that what it wanted written was not handed over.
    fn not_written(&self, what: &'static str, event: Event) {
        tracing::debug!(
            what,
            "has to wait: the cell is not known yet, or one is being written"
        );
        if let Err(error) = self.own_events.try_send(event) {
            tracing::debug!(what, %error, "the engine gives it up by itself");
        }
    }

    /// Has an acknowledgement written. What cannot be written now is told to the engine, which tries again.
    fn acknowledge(&self, current: Option<&Seen>, version: u64, (met, met_voters): (usize, usize)) {
        let count = |count| i32::try_from(count).unwrap_or(i32::MAX);
        // Under the key by which the roster knows this agent.
        let known = self.published.borrow().as_ref().map(|known| known.key.clone());
        let ours = |key: &PublicKey| self.other_key.as_ref().is_some_and(|other| other.public() == key);
        let key = known.filter(ours).unwrap_or_else(|| self.key.public().clone());
        let handed_over = current.is_some_and(|seen| {
            let acknowledged = RosterAcknowledgement {
                cell: seen.version.name.clone(),
                cell_uid: seen.version.uid.clone(),
                public_key: key.to_base64(),
                version: i64::try_from(version).unwrap_or(i64::MAX),
                met: count(met),
                met_voters: count(met_voters),
            };
            self.statements.try_send(Statement::Roster(acknowledged)).is_ok()
        });
        if !handed_over {
            self.not_written("an acknowledgement", Event::Acknowledged { written: false });
        }
    }

    fn check(
        &self,
        engine: &Engine,
        running: &Arc<Semaphore>,
        asked: Question,
        suspect: MemberId,
        within_ms: u64,
    ) {
        let member = engine.roster().get(suspect);
        let moved = engine.moved_to(suspect);
        let known = member.and_then(|member| Suspect::new(member, moved, self.settings.source));
        let checks = self.checks.borrow().clone();
        let (events, metrics) = (self.own_events.clone(), self.metrics.clone());
        let permit = running.clone().try_acquire_owned();
        tokio::spawn(async move {
            let result = match known.filter(|_| permit.is_ok()) {
                Some(known) => checks.check(&known, Duration::from_millis(within_ms)).await,
                None => CheckResult::Unavailable,
            };
            drop(permit);
            let name = match result {
                CheckResult::Identity => "identity",
                CheckResult::Failed => "failed",
                CheckResult::Inconclusive => "inconclusive",
                CheckResult::Unavailable => "unavailable",
            };
            metrics.checks.get_or_create(&Outcome { result: name }).inc();
            if events.send(Event::Checked(asked, suspect, result)).await.is_err() {
                tracing::debug!("a check ended after the agent");
            }
        });
    }

    fn read_lease(
        &self,
        leases: &Leases,
        node: Option<String>,
        told: impl FnOnce(Option<Renewal>) -> Event + Send + 'static,
    ) {
        let (leases, events) = (leases.clone(), self.own_events.clone());
        tokio::spawn(async move {
            let renewal = match node {
                Some(node) => leases.last_renewal(&node).await,
                None => None,
            };
            if events.send(told(renewal)).await.is_err() {
                tracing::debug!("a Lease was read after the agent");
            }
        });
    }

    fn log(&self, note: &Note) {
        match note {
            Note::Edge { subject, state } => tracing::info!(node = subject, ?state, "edge changed"),
            Note::Suspect { subject, down, live } => tracing::info!(node = subject, down, live, "suspect"),
            Note::Round {
                subject,
                outcome,
                votes: (yes, no, abstain),
                of,
            } => {
                self.metrics
                    .rounds
                    .get_or_create(&Outcome { result: outcome })
                    .inc();
                tracing::info!(node = subject, outcome, yes, no, abstain, of, "confirm round");
            }
            Note::Paused(gap_ms) => tracing::warn!(
                gap_ms,
                "this process did not run; its votes have no weight for a while"
            ),
            Note::Doubt(true) => tracing::warn!("{note}"),
            Note::Doubt(false) => tracing::info!("{note}"),
            Note::NewerRoster(version) => tracing::info!(version, "a peer has a newer roster"),
        }
    }

    fn measure(&self, engine: &Engine) {
        let (within, watched) = engine.reach();
        self.metrics.members.set(engine.roster().len() as i64);
        self.metrics.within_reach.set(within as i64);
        let own = engine.roster().get(MemberId::of(&self.node_uid));
        let own = own.map(Claims::of);
        if *self.published.borrow() != own {
            self.published.send_replace(own);
        }
        let name = |id| Some(engine.roster().get(id)?.name.clone());
        let not_found: BTreeSet<String> = engine.not_found().filter_map(name).collect();
        if *self.not_found.borrow() != not_found {
            if self.not_found.borrow().is_empty() {
                tracing::warn!(
                    nodes = ?not_found,
                    "checks do not find nodes whose agents answer, so that this agent votes none of them dead"
                );
            }
            self.not_found.send_replace(not_found);
        }
        let admitted = engine.roster().contains(MemberId::of(&self.node_uid));
        let had_met = !engine.met().seen_alive.is_empty();
        self.place
            .send_if_modified(|place| place.look(admitted, had_met, (within, watched)));
    }

    fn learn(&self, learned: Learned) {
        if self.learned.send(learned).is_err() {
            tracing::debug!("nothing is remembered any more: the agent is ending");
        }
    }
}

/// A sleep of no time at all ends with the next millisecond, and so never beside a socket that has a datagram
/// each time: a flood would keep the agent from sending heartbeats.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

/// Tells the engine what is asked of its cell. What is asked of another one, to or from which the agent moves
/// in this moment, is kept until the cell is known.
fn ask(engine: &mut Engine, known: &Known, outputs: &mut Vec<Output>) {
    let (Some(zone), Some(asked)) = (&known.zone, known.asked.get()) else {
        return;
    };
    if zone.version.name != asked.version.name {
        return;
    }
    let wanted = asked.wanted_members();
    let challenge = asked.challenge;
    engine.handle(now(), Input::Challenge { challenge, wanted }, outputs);
}

fn is_of_a_peer(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::Interrupted
    )
}
