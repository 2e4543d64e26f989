//! Cells without a link, for which agents of other cells write (hazard 59).

mod lookups;

use super::{Engine, Input, Output};
use crate::Millis;
use crate::engine::{CheckResult, Config, Identity, Met, Question, ReportDraft};
use crate::fixture::Fixture;
use crate::keys;
use crate::roster::{CellRef, MemberId, Roster, RosterKeys, publish};
use crate::verdict::{Book, Health, Issued, Refusal, Verdict};
use crate::wire::{Body, Carried, Challenge, HandOver, Header, Part, Renewal};
use evenkeel_api::zone::{RosterContact, RosterSpec};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const STEP_MS: u64 = 10;
/// Members of each cell: the nodes 1 to 3, 4 to 6, …
const SIZE: usize = 3;

enum Event {
    Datagram(Vec<u8>, SocketAddr),
    Checked(Question, MemberId, CheckResult),
    LeaseRead(MemberId, Option<Renewal>),
    OtherLeaseRead(u32, MemberId, Option<Renewal>),
    Write(Option<u32>, Box<ReportDraft>),
    Follow(u32),
}

/// A zone of several cells of three.
struct Zone {
    fixture: Fixture,
    now: u64,
    engines: Vec<Option<Engine>>,
    /// By number of the cell, as the API server shows it.
    rosters: BTreeMap<u32, RosterSpec>,
    challenges: BTreeMap<u32, Challenge>,
    unlinked: BTreeSet<usize>,
    /// Nodes that nobody reaches.
    gone: BTreeSet<usize>,
    /// Nodes that hear nothing.
    deaf: BTreeSet<usize>,
    /// When who tried to write its own report, and could not.
    in_vain: Vec<(u64, usize)>,
    follows: BTreeMap<usize, BTreeSet<u32>>,
    book: Book,
    /// When who wrote about which cell, though it is not its own.
    carried: Vec<(u64, usize, u32)>,
    /// Whose objects about other cells list nobody.
    emptied: BTreeSet<(usize, u32)>,
    refused: Vec<(usize, &'static str)>,
    /// Nodes whose writes fail though they have a link.
    writes_fail: BTreeSet<usize>,
    /// Those that say all the same that they have written.
    lying: BTreeSet<usize>,
    /// Of a hundred datagrams so many are lost, and as many come twice.
    lost: u64,
    /// Each datagram takes up to so many milliseconds longer.
    jitter: u64,
    /// How long a reading of a Lease takes, and until the first answer of a watch.
    read_ms: u64,
    watch_ms: u64,
    flying: BTreeMap<(u64, u64), (usize, Event)>,
    events: u64,
}

/// So many cells, of which these have no link. Two of the first cell are dead: one agent has a link.
fn with_one_link(cells: u8, unlinked: std::ops::Range<u32>) -> Zone {
    let mut zone = Zone::new(cells, first);
    for cell in unlinked {
        zone.unlink(cell);
    }
    zone.stop(2);
    zone.stop(3);
    zone
}

fn cell_of(node: usize) -> u32 {
    u32::try_from((node - 1) / SIZE).unwrap()
}

fn nodes_of(cell: u32) -> Vec<usize> {
    let before = cell as usize * SIZE;
    (before + 1..=before + SIZE).collect()
}

fn name(cell: u32) -> String {
    crate::roster::cell_object_name("shore", cell)
}

impl Zone {
    /// Cells that have run for 30 s, each with these contacts.
    fn new(cells: u8, contacts: impl Fn(u32) -> Vec<usize>) -> Self {
        let fixture = Fixture::stand_in(cells * SIZE as u8);
        let all = fixture.spec().members;
        let contact = |node: usize| RosterContact {
            uid: Fixture::uid(node),
            address: Fixture::address(node).to_string(),
            public_key: fixture.key(node).public().to_base64(),
        };
        let spec = |cell: u32| RosterSpec {
            version: 1,
            cell: name(cell),
            cell_uid: format!("cell-{cell}"),
            members: nodes_of(cell)
                .into_iter()
                .map(|node| all[node - 1].clone())
                .collect(),
            contacts: contacts(cell).into_iter().map(contact).collect(),
            ..RosterSpec::default()
        };
        let numbers = 0..u32::from(cells);
        let mut zone = Self {
            now: 1_000_000,
            engines: all.iter().map(|_| None).collect(),
            rosters: numbers.clone().map(|cell| (cell, spec(cell))).collect(),
            challenges: numbers.clone().map(|cell| (cell, Challenge([1; 16]))).collect(),
            unlinked: BTreeSet::new(),
            gone: BTreeSet::new(),
            deaf: BTreeSet::new(),
            in_vain: Vec::new(),
            follows: BTreeMap::new(),
            book: Book::verifying_with(fixture.verifier()),
            carried: Vec::new(),
            emptied: BTreeSet::new(),
            refused: Vec::new(),
            writes_fail: BTreeSet::new(),
            lying: BTreeSet::new(),
            lost: 0,
            jitter: 0,
            read_ms: 50,
            watch_ms: 50,
            flying: BTreeMap::new(),
            events: 0,
            fixture,
        };
        for cell in numbers {
            zone.show(cell);
            zone.issue(cell, 2);
        }
        for node in 1..=zone.engines.len() {
            zone.start(node);
        }
        zone.run(30_000);
        zone
    }

    fn keys(&self) -> RosterKeys {
        let key = self.fixture.roster_key().public().clone();
        RosterKeys::new(vec![key]).verifying_with(self.fixture.verifier())
    }

    fn roster(&self, cell: u32) -> Roster {
        let spec = &self.rosters[&cell];
        let published = publish(spec, Some(&*self.fixture.roster_key()));
        let of = CellRef {
            name: &spec.cell,
            uid: &spec.cell_uid,
        };
        Roster::open(&published, of, &self.keys()).unwrap()
    }

    fn start(&mut self, node: usize) {
        let identity = Identity {
            uid: Fixture::uid(node),
            key: self.fixture.signer(node),
            incarnation: self.events + node as u64,
            sequence_base: self.events << 32,
            seed: [node as u8; 32],
            uptime_ms: 3_600_000,
            met: Met::default(),
        };
        let roster = Arc::new(self.roster(cell_of(node)));
        let engine = Engine::new(Config::default(), identity, roster, Millis(self.now));
        let engine = engine.verifying_with(self.fixture.verifier());
        self.engines[node - 1] = Some(engine.trusting(self.keys()));
        let (kubelet, runtime) = (Health::Ok, Health::Unknown);
        self.feed(node, Input::Facts { kubelet, runtime });
        if self.reaches(node) {
            let (challenge, wanted) = (self.challenges[&cell_of(node)], BTreeSet::new());
            self.feed(node, Input::Challenge { challenge, wanted });
        }
    }

    fn stop(&mut self, node: usize) {
        self.gone.insert(node);
        self.engines[node - 1] = None;
    }

    fn unlink(&mut self, cell: u32) {
        self.unlinked.extend(nodes_of(cell));
    }

    fn reaches(&self, node: usize) -> bool {
        !self.unlinked.contains(&node) && !self.gone.contains(&node)
    }

    /// The present roster of a cell becomes known to who reads and to members with a link.
    fn show(&mut self, cell: u32) {
        let roster = self.roster(cell);
        let refused = self.book.roster(Millis(self.now), &name(cell), roster.clone());
        assert_eq!(refused, vec![]);
        let roster = Arc::new(roster);
        for node in nodes_of(cell) {
            if self.reaches(node) {
                self.feed(node, Input::Roster(Arc::clone(&roster)));
            }
        }
        self.tell_followers(cell);
    }

    /// Another challenge.
    fn issue(&mut self, cell: u32, value: u8) {
        let before = self.challenges.insert(cell, Challenge([value; 16]));
        let issued = [Some(Challenge([value; 16])), before].into_iter().flatten();
        let issued: Vec<Issued> = issued
            .map(|challenge| Issued {
                challenge,
                drawn: Some(Millis(self.now)),
            })
            .collect();
        self.book.challenges(Millis(self.now), &name(cell), &issued);
        for node in nodes_of(cell) {
            if self.reaches(node) {
                let (challenge, wanted) = (self.challenges[&cell], BTreeSet::new());
                self.feed(node, Input::Challenge { challenge, wanted });
            }
        }
        self.tell_followers(cell);
    }

    fn tell_followers(&mut self, cell: u32) {
        let follows = |cells: &BTreeSet<u32>| cells.contains(&cell);
        let followers: Vec<usize> = self
            .follows
            .iter()
            .filter(|(_, cells)| follows(cells))
            .map(|(node, _)| *node)
            .collect();
        for node in followers {
            self.after(50, node, Event::Follow(cell));
        }
    }

    fn run(&mut self, ms: u64) {
        self.run_until(ms, |_| false);
    }

    fn run_until(&mut self, within: u64, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + within;
        while self.now < end && !done(self) {
            self.step();
        }
        done(self)
    }

    fn step(&mut self) {
        self.now += STEP_MS;
        if self.now.is_multiple_of(1_000) {
            for node in 1..=self.engines.len() {
                if self.reaches(node) {
                    self.feed(node, Input::CloudContact);
                }
            }
        }
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (node, event) = entry.remove();
            self.happen(node, event);
        }
        for node in 1..=self.engines.len() {
            let engine = self.engines[node - 1].as_ref();
            if engine.is_some_and(|engine| engine.deadline() <= Millis(self.now)) {
                self.feed(node, Input::Tick);
            }
        }
    }

    fn happen(&mut self, node: usize, event: Event) {
        match event {
            Event::Datagram(bytes, source) => self.feed(node, Input::Datagram(&bytes, source)),
            Event::Checked(asked, suspect, result) => self.feed(
                node,
                Input::Checked {
                    asked,
                    suspect,
                    result,
                },
            ),
            Event::LeaseRead(member, renewal) => {
                let renewal = renewal.filter(|_| self.reaches(node));
                self.feed(node, Input::LeaseRead { member, renewal });
            }
            Event::OtherLeaseRead(cell, member, renewal) => self.feed(
                node,
                Input::OtherLeaseRead {
                    cell,
                    member,
                    renewal,
                },
            ),
            Event::Write(carried, draft) => {
                let cell = carried.unwrap_or_else(|| cell_of(node));
                let written = self.reaches(node) && !self.writes_fail.contains(&node);
                if written {
                    let now = Millis(self.now);
                    let reporter = format!("node-{node}");
                    let mut refused = self.book.report(now, &name(cell), &reporter, &draft.report);
                    // A round may decide about some of its suspects and not about others.
                    refused.retain(|refusal| !matches!(refusal, Refusal::NoMajority { refused: 0, .. }));
                    assert_eq!(refused, vec![], "what honest agents say is believed");
                    self.carried.extend(carried.map(|cell| (self.now, node, cell)));
                    if draft.report.nodes.is_empty() {
                        self.emptied.insert((node, cell));
                    } else {
                        self.emptied.remove(&(node, cell));
                    }
                }
                let written = written || self.lying.contains(&node);
                self.feed(
                    node,
                    match carried {
                        Some(cell) => Input::CarriedWritten {
                            cell,
                            sequence: draft.report.sequence,
                            written,
                        },
                        None => Input::ReportWritten { written },
                    },
                );
            }
            Event::Follow(cell) => {
                let follows = self.follows.get(&node).is_some_and(|cells| cells.contains(&cell));
                if follows && self.reaches(node) && self.rosters.contains_key(&cell) {
                    let roster = Arc::new(self.roster(cell));
                    self.feed(node, Input::OtherRoster { cell, roster });
                    let (challenge, wanted) = (self.challenges[&cell], BTreeSet::new());
                    self.feed(
                        node,
                        Input::OtherChallenge {
                            cell,
                            challenge,
                            wanted,
                        },
                    );
                }
            }
        }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.events += 1;
        let digest = keys::hash("carriers", &[&self.events.to_be_bytes()]);
        u64::from_be_bytes(keys::prefix(&digest)) % bound
    }

    fn after(&mut self, delay: u64, node: usize, event: Event) {
        self.events += 1;
        self.flying.insert((self.now + delay, self.events), (node, event));
    }

    fn feed(&mut self, node: usize, input: Input<'_>) {
        let Some(engine) = self.engines[node - 1].as_mut() else {
            return;
        };
        for output in engine.on(Millis(self.now), input) {
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        match output {
            Output::Send { to, address, bytes } => {
                let found = (1..=self.engines.len()).find(|other| Fixture::id(*other) == to);
                let reached = found.filter(|other| Fixture::address(*other) == address);
                if let Some(other) =
                    reached.filter(|other| !self.gone.contains(other) && !self.deaf.contains(other))
                {
                    // Nothing, once, or twice.
                    let fate = self.draw(100);
                    let times = 1 + u64::from(fate < 2 * self.lost) - 2 * u64::from(fate < self.lost).min(1);
                    for _ in 0..times {
                        let delay = 10 + self.draw(self.jitter + 1);
                        let event = Event::Datagram(bytes.to_vec(), Fixture::address(node));
                        self.after(delay, other, event);
                    }
                }
            }
            Output::Check { asked, suspect, .. } => {
                let found = (1..=self.engines.len()).find(|other| Fixture::id(*other) == suspect);
                let lives = found.is_some_and(|other| !self.gone.contains(&other));
                let result = if lives {
                    CheckResult::Identity
                } else {
                    CheckResult::Failed
                };
                self.after(30, node, Event::Checked(asked, suspect, result));
            }
            Output::ReadLease(member) => {
                let event = Event::LeaseRead(member, Some(Fixture::RENEWAL));
                self.after(self.read_ms, node, event);
            }
            Output::ReadOtherLease { cell, member, .. } => {
                let event = Event::OtherLeaseRead(cell, member, Some(Fixture::RENEWAL));
                self.after(self.read_ms, node, event);
            }
            Output::Report(draft) => {
                let in_vain = Some((self.now, node))
                    .filter(|_| !self.reaches(node) || self.writes_fail.contains(&node));
                self.in_vain.extend(in_vain);
                self.after(50, node, Event::Write(None, draft));
            }
            Output::Carry { cell, draft } => self.after(50, node, Event::Write(Some(cell), draft)),
            Output::Follow(cells) => {
                let before = self.follows.insert(node, cells.clone()).unwrap_or_default();
                // A watch that ends delivers nothing more.
                let ended = |cell: &u32| !cells.contains(cell);
                self.flying.retain(
                    |_, (to, event)| !matches!(event, Event::Follow(cell) if *to == node && ended(cell)),
                );
                for cell in cells.difference(&before) {
                    self.after(self.watch_ms, node, Event::Follow(*cell));
                }
            }
            Output::ProveLink => {
                let written = self.reaches(node);
                self.feed(node, Input::LinkProof { written });
            }
            // Several may hold the Lease here, which costs writes alone.
            Output::Stand(stands) => {
                let leading = stands && self.reaches(node);
                self.feed(node, Input::Leading(leading));
            }
            Output::Refused(reason) => self.refused.push((node, reason)),
            _ => {}
        }
    }

    fn is_alive(&self, node: usize) -> bool {
        let verdict = self.book.verdict(&Fixture::uid(node));
        matches!(verdict, Verdict::Alive(alive) if alive.until > Millis(self.now))
    }

    /// Whether all nodes of a cell are vouched for.
    fn is_vouched_for(&self, cell: u32) -> bool {
        nodes_of(cell).into_iter().all(|node| self.is_alive(node))
    }

    /// The same for so many seconds from now on.
    fn stays_vouched_for(&mut self, cell: u32, seconds: u64) {
        for _ in 0..seconds {
            self.run(1_000);
            assert!(self.is_vouched_for(cell), "at {}", self.now);
        }
    }

    fn version(&self, node: usize) -> u64 {
        let engine = self.engines[node - 1].as_ref().unwrap();
        engine.roster().reference().version
    }

    /// Somebody with a key of the fixture says this to a node as `from`.
    fn say(
        &mut self,
        (author, from): (usize, MemberId),
        to: usize,
        sequence: u64,
        body: &Body,
    ) -> Vec<Output> {
        let header = Header {
            from,
            to: Fixture::id(to),
            incarnation: 99,
            sequence,
        };
        let bytes = self.fixture.seal(self.fixture.key(author), header, body);
        let input = Input::Datagram(&bytes, Fixture::address(author));
        let engine = self.engines[to - 1].as_mut().unwrap();
        engine.on(Millis(self.now), input)
    }

    /// What node 1 has written when node 4 hands this over, each datagram twice.
    fn hands_over(&mut self, offer: &Body, text: &str) -> Vec<ReportDraft> {
        let from = (4, Fixture::id(4));
        self.say(from, 1, 1, offer);
        let (cell, roster) = (1, Arc::new(self.roster(1)));
        self.feed(1, Input::OtherRoster { cell, roster });
        self.say(from, 1, 2, offer);
        let part = Body::ReportPart(Part {
            version: 1,
            length: text.len() as u32,
            offset: 0,
            bytes: text.as_bytes().to_vec(),
        });
        let outputs = self.say(from, 1, 3, &part);
        assert_eq!(self.say(from, 1, 3, &part), [Output::Refused("replay")]);
        let drafts = outputs.into_iter().filter_map(|output| match output {
            Output::Carry { draft, .. } => Some(*draft),
            _ => None,
        });
        drafts.collect()
    }

    fn offer(&self, author: usize, cell: u32) -> Body {
        Body::HandOver(HandOver {
            key: *self.fixture.key(author).public().as_bytes(),
            cell,
            report: 1,
            age_ms: 0,
            spare: false,
        })
    }
}

/// All of them name an agent of the first cell.
fn first(cell: u32) -> Vec<usize> {
    if cell == 0 { vec![4] } else { vec![1] }
}

#[test]
fn a_cell_without_a_link_is_vouched_for_by_an_agent_of_another_cell() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    assert!(zone.run_until(20_000, |zone| zone.is_vouched_for(1)));
    // And it stays so.
    zone.stays_vouched_for(1, 300);
    assert!(
        zone.carried
            .iter()
            .all(|(_, node, cell)| (*node, *cell) == (1, 1))
    );
}

/// Without the carrier's readings of its Lease nobody could say so.
#[test]
fn a_death_in_such_a_cell_is_found() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.run(30_000);
    zone.stop(5);
    let is_dead = |zone: &Zone| matches!(zone.book.verdict(&Fixture::uid(5)), Verdict::Dead(_));
    assert!(
        zone.run_until(10_000, is_dead),
        "{:?}",
        zone.book.verdict(&Fixture::uid(5))
    );
    assert!(zone.is_alive(4) && zone.is_alive(6));
}

#[test]
fn challenges_and_rosters_come_back_from_the_carrier() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.run(30_000);
    // Readers accept the present challenge and the one before: evidence that signs an old one runs out.
    for value in 10..20 {
        zone.issue(1, value);
        zone.run(10_000);
        assert!(zone.is_vouched_for(1), "challenge {value}");
    }
    zone.rosters.get_mut(&1).unwrap().version = 2;
    zone.show(1);
    assert!(zone.run_until(30_000, |zone| {
        nodes_of(1).iter().all(|node| zone.version(*node) == 2)
    }));
    zone.run(20_000);
    assert!(zone.is_vouched_for(1));
}

/// Cell 1 knows only cell 2, whose link is cut as well, and so on: each hop is one cell further.
#[rstest]
#[case(3, true)]
#[case(6, true)]
#[case(7, false)]
fn contacts_without_a_link_refer_to_others_for_six_hops(#[case] hops: u32, #[case] found: bool) {
    let cells = u8::try_from(hops + 1).unwrap();
    let next = move |cell: u32| vec![nodes_of((cell + 1) % (hops + 1))[0]];
    let mut zone = Zone::new(cells, next);
    // The last cell alone has a link; the first asks the second, which knows the third.
    for cell in 0..hops {
        zone.unlink(cell);
    }
    let carried = |zone: &Zone| zone.carried.iter().any(|(_, _, cell)| *cell == 0);
    assert_eq!(zone.run_until(60_000, carried), found);
}

#[test]
fn an_agent_carries_eight_cells_and_refers_others_to_whom_it_knows() {
    let mut zone = with_one_link(11, 1..11);
    zone.run(90_000);
    let cells = |zone: &Zone| (1..11).filter(|cell| zone.is_vouched_for(*cell)).count();
    assert_eq!(cells(&zone), 8);
    assert!(zone.refused.contains(&(1, "carries-enough")));
    // With a second one all are carried.
    zone.gone.remove(&2);
    zone.start(2);
    zone.run(90_000);
    assert_eq!(cells(&zone), 10);
}

#[test]
fn another_contact_takes_over_from_a_carrier_that_dies_or_loses_its_link() {
    for dies in [true, false] {
        let mut zone = Zone::new(3, |cell| if cell == 2 { vec![1, 4] } else { vec![] });
        zone.unlink(2);
        // Challenges are a minute old by then, and so would be whatever comes in a new object.
        zone.run(70_000);
        let carrier = zone.carried.last().unwrap().1;
        if dies {
            zone.stop(carrier);
        } else {
            zone.unlinked.insert(carrier);
        }
        for _ in 0..30 {
            zone.run(1_000);
            assert!(zone.is_vouched_for(2), "dies: {dies}, at {}", zone.now);
        }
        assert!(zone.carried.last().unwrap().1 != carrier);
        zone.run(20_000);
        assert!(zone.is_vouched_for(2));
    }
}

#[test]
fn with_its_link_back_a_cell_writes_for_itself_and_is_forgotten() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.run(30_000);
    assert_eq!(zone.follows[&1], BTreeSet::from([1]));
    zone.unlinked.clear();
    zone.run(5_000);
    zone.carried.clear();
    zone.run(40_000);
    // The object that it leaves lists nobody.
    assert_eq!(zone.carried.len(), 1);
    assert!(zone.emptied.contains(&(1, 1)));
    assert_eq!(zone.follows[&1], BTreeSet::new());
}

/// The only member with a link begins a new life: until it has met the others, they do not rely on it.
#[test]
fn a_cell_is_carried_on_until_its_own_link_bears() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.unlinked.remove(&5);
    zone.run(60_000);
    assert!(zone.is_alive(4) && zone.is_alive(6));
    zone.stop(5);
    zone.run(2_000);
    zone.gone.remove(&5);
    zone.start(5);
    for _ in 0..60 {
        zone.run(1_000);
        let verdicts = [4, 6].map(|node| zone.book.verdict(&Fixture::uid(node)));
        assert!(
            zone.is_alive(4) && zone.is_alive(6),
            "at {}: {verdicts:?}",
            zone.now
        );
    }
}

/// One that has a link and hears nobody trusts its own view too little to report.
#[test]
fn a_member_that_has_a_link_and_writes_nothing_keeps_no_cell_from_being_carried() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.unlinked.remove(&5);
    zone.deaf.insert(5);
    let vouched = |zone: &Zone| zone.is_alive(4) && zone.is_alive(6);
    assert!(zone.run_until(45_000, vouched));
    for _ in 0..120 {
        zone.run(1_000);
        assert!(vouched(&zone), "at {}", zone.now);
    }
}

/// It says again and again that it has written what the others hold.
#[test]
fn a_member_that_has_a_link_and_lies_about_its_writes_keeps_no_cell_from_being_carried() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.unlinked.remove(&5);
    (zone.writes_fail, zone.lying) = (BTreeSet::from([5]), BTreeSet::from([5]));
    let vouched = |zone: &Zone| zone.is_alive(4) && zone.is_alive(6);
    assert!(zone.run_until(45_000, vouched));
    for _ in 0..120 {
        zone.run(1_000);
        assert!(vouched(&zone), "at {}", zone.now);
    }
}

/// A search that finds nobody makes the next ones rarer, in this outage and not in the next one.
#[test]
fn a_later_outage_is_not_searched_more_slowly() {
    let mut zone = Zone::new(2, first);
    for cell in [0, 1] {
        zone.unlink(cell);
    }
    zone.run(240_000);
    zone.unlinked.clear();
    zone.run(60_000);
    for cell in [0, 1] {
        zone.unlink(cell);
    }
    zone.run(20_000);
    zone.unlinked = nodes_of(1).into_iter().collect();
    assert!(zone.run_until(25_000, |zone| zone.is_vouched_for(1)));
}

/// While nobody is known who carries, no report goes into the link that is cut: the next search begins when
/// it is due.
#[test]
fn nothing_is_written_in_vain_while_nobody_carries() {
    let mut zone = Zone::new(2, first);
    for cell in [0, 1] {
        zone.unlink(cell);
    }
    let cut = zone.now;
    zone.run(120_000);
    let late: Vec<_> = zone
        .in_vain
        .iter()
        .filter(|(at, node)| cell_of(*node) == 1 && at - cut > 10_000)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}

/// A write that fails is not taken for one that was made.
#[test]
fn what_the_api_server_does_not_take_is_handed_over_again() {
    let mut zone = Zone::new(2, first);
    zone.writes_fail = (1..=3).collect();
    zone.unlink(1);
    zone.run(40_000);
    assert!(!zone.is_vouched_for(1));
    zone.writes_fail.clear();
    assert!(zone.run_until(60_000, |zone| zone.is_vouched_for(1)));
}

/// An API server that is overloaded would be kept so by the reporters of 79 cells that try each second.
#[test]
fn an_api_server_that_refuses_reports_is_tried_less_and_less() {
    let mut zone = Zone::new(1, |_| vec![]);
    zone.writes_fail = (1..=3).collect();
    zone.unlinked.insert(3);
    zone.run(60_000);
    let mut tried: Vec<u64> = zone
        .in_vain
        .iter()
        .filter(|(_, node)| *node == 1)
        .map(|(at, _)| *at)
        .collect();
    assert!((10..=20).contains(&tried.len()), "{tried:?}");
    zone.writes_fail.clear();
    assert!(
        zone.run_until(8_000, |zone| zone.is_alive(3)),
        "evidence of life counts for 15 s"
    );
    // A success ends the longer waits.
    zone.writes_fail = (1..=3).collect();
    let from = zone.now;
    zone.run(20_000);
    tried = zone
        .in_vain
        .iter()
        .filter(|(at, node)| *at > from && *node == 1)
        .map(|(at, _)| *at)
        .collect();
    assert!(tried[1] - tried[0] < 2_000, "{tried:?}");
}

/// Contacts that answer and write nothing: each reporter has begun with one of them.
#[test]
fn who_does_not_write_is_left() {
    let mut zone = Zone::new(5, |cell| if cell == 4 { vec![1, 4, 7, 10] } else { vec![] });
    zone.unlink(4);
    zone.writes_fail = (1..=9).collect();
    assert!(zone.run_until(40_000, |zone| zone.is_vouched_for(4)));
    zone.stays_vouched_for(4, 120);
}

/// One that says that it has written keeps one reporter, and the others write.
#[test]
fn one_carrier_that_lies_hides_nothing() {
    let mut zone = Zone::new(5, |cell| if cell == 4 { vec![1, 4, 7, 10] } else { vec![] });
    zone.unlink(4);
    zone.writes_fail = nodes_of(0).into_iter().collect();
    zone.lying = zone.writes_fail.clone();
    assert!(zone.run_until(40_000, |zone| zone.is_vouched_for(4)));
    zone.stays_vouched_for(4, 120);
}

/// On a network that loses, doubles and reorders.
#[test]
fn a_bad_network_between_cells_is_no_reason_to_lose_a_cell() {
    let mut zone = Zone::new(3, |cell| if cell == 2 { vec![1, 4] } else { vec![] });
    (zone.lost, zone.jitter) = (30, 60);
    zone.unlink(2);
    assert!(zone.run_until(40_000, |zone| zone.is_vouched_for(2)));
    let mut vouched = 0;
    for _ in 0..200 {
        zone.run(1_000);
        vouched += usize::from(zone.is_vouched_for(2));
    }
    assert!(vouched >= 198, "{vouched} of 200 seconds");
    zone.rosters.get_mut(&2).unwrap().version = 2;
    zone.show(2);
    let known = |zone: &Zone| nodes_of(2).iter().all(|node| zone.version(*node) == 2);
    assert!(zone.run_until(60_000, known));
}

/// Evidence is never younger than it is, however long it was on its way.
#[test]
fn what_was_long_on_its_way_is_as_old_as_it_is() {
    let mut zone = Zone::new(2, first);
    let Body::HandOver(offer) = zone.offer(4, 1) else {
        panic!("it is an offer")
    };
    let offer = Body::HandOver(HandOver {
        age_ms: 9_000,
        ..offer
    });
    let text =
        r#"{"report":{"nodes":[],"rounds":[{"ageMs":700,"request":"","ballots":[]}]},"heldForMs":{"x":5}}"#;
    let drafts = zone.hands_over(&offer, text);
    let [draft] = &drafts[..] else {
        panic!("{drafts:?}")
    };
    assert_eq!(
        (draft.report.rounds[0].age_ms, draft.held_for_ms["x"]),
        (9_700, 9_005)
    );
}

/// A reporter begins to count its reports anew in each life.
#[test]
fn a_reporter_that_restarts_is_served_from_its_first_report_on() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.run(120_000);
    let seconds = zone.carried.len();
    assert!(seconds > 15, "{seconds}");
    for node in nodes_of(1) {
        zone.start(node);
    }
    zone.run(25_000);
    zone.stays_vouched_for(1, 60);
}

#[test]
fn a_slow_link_of_the_carrier_hides_no_death() {
    let mut zone = Zone::new(2, first);
    zone.unlink(1);
    zone.run(30_000);
    zone.read_ms = 450;
    zone.stop(5);
    let is_dead = |zone: &Zone| matches!(zone.book.verdict(&Fixture::uid(5)), Verdict::Dead(_));
    assert!(zone.run_until(15_000, is_dead));
}

/// One that always has a next report keeps no other one's back, whoever comes first by its name.
#[rstest]
#[case(4, 6)]
#[case(6, 4)]
fn reporters_of_one_cell_are_served_in_turn(#[case] eager: usize, #[case] other: usize) {
    let mut zone = Zone::new(2, first);
    let offer = |zone: &Zone, author: usize, report: u64| match zone.offer(author, 1) {
        Body::HandOver(offer) => Body::HandOver(HandOver { report, ..offer }),
        body => body,
    };
    let text =
        |author: usize, report: u64| format!(r#"{{"report":{{}},"heldForMs":{{"{author}-{report}":1}}}}"#);
    let part = |author: usize, report: u64| {
        let text = text(author, report);
        Body::ReportPart(Part {
            version: report,
            length: text.len() as u32,
            offset: 0,
            bytes: text.into_bytes(),
        })
    };
    let written = |outputs: &[Output]| -> Vec<String> {
        let drafts = outputs.iter().filter_map(|output| match output {
            Output::Carry { draft, .. } => draft.held_for_ms.keys().next().cloned(),
            _ => None,
        });
        drafts.collect()
    };
    let id = |author: usize| (author, Fixture::id(author));
    let first_offer = offer(&zone, eager, 1);
    zone.say(id(eager), 1, 1, &first_offer);
    let (cell, roster) = (1, Arc::new(zone.roster(1)));
    zone.feed(1, Input::OtherRoster { cell, roster });
    // The first report of one is written; meanwhile the other one's comes, and then the first one's next.
    zone.say(id(eager), 1, 2, &first_offer);
    let outputs = zone.say(id(eager), 1, 3, &part(eager, 1));
    assert_eq!(written(&outputs), [format!("{eager}-1")]);
    for (author, report, sequence) in [(other, 1, 1), (eager, 2, 4)] {
        let offer = offer(&zone, author, report);
        zone.say(id(author), 1, sequence, &offer);
        let outputs = zone.say(id(author), 1, sequence + 1, &part(author, report));
        assert_eq!(written(&outputs), Vec::<String>::new(), "one at a time");
    }
    let engine = zone.engines[0].as_mut().unwrap();
    let done = Input::CarriedWritten {
        cell,
        sequence: 2,
        written: true,
    };
    engine.on(Millis(zone.now), done);
    let outputs = engine.on(Millis(zone.now + 600), Input::Tick);
    assert_eq!(written(&outputs), [format!("{other}-1")]);
}

/// Ages that no clock has, texts that are no report, and other reports than were offered.
#[rstest]
#[case("{}", false)]
#[case("no report", false)]
#[case(
    r#"{"report":{"nodes":[{"name":"x","uid":"x","verdict":"None"}],"rounds":[{"ageMs":9223372036854775807,
    "request":"","ballots":[]},{"ageMs":-9223372036854775808,"request":"","ballots":[]}]},
    "heldForMs":{"x":18446744073709551615}}"#,
    true
)]
fn what_a_hostile_member_hands_over_is_bounded(#[case] text: &str, #[case] taken: bool) {
    let mut zone = Zone::new(2, first);
    let offer = zone.offer(4, 1);
    let drafts = zone.hands_over(&offer, text);
    assert_eq!(drafts.len(), usize::from(taken), "{drafts:?}");
    for draft in drafts {
        assert_eq!(draft.report.sequence, 2, "by the carrier's own count");
        assert!(draft.held_for_ms.values().all(|held| *held <= 1 << 41));
        let ages = draft.report.rounds.iter().map(|round| round.age_ms);
        assert!(
            ages.clone().all(|age| (0..=1 << 41).contains(&age)),
            "{:?}",
            ages.collect::<Vec<_>>()
        );
    }
}

/// One who is no member, or not under that key, is not served, and learns nothing of the cell.
#[test]
fn who_is_not_in_the_roster_of_its_cell_is_not_served() {
    let mut zone = Zone::new(3, first);
    let follows = |outputs: &[Output]| outputs.iter().any(|output| matches!(output, Output::Follow(_)));
    // Node 7 is of cell 2 and speaks for cell 1; then it speaks in the name of node 4.
    for from in [Fixture::id(7), Fixture::id(4)] {
        let offer = zone.offer(7, 1);
        zone.say((7, from), 1, 1, &offer);
        let outputs = zone.say((7, from), 1, 2, &offer);
        assert!(!follows(&outputs));
        // The roster is there by now.
        let (cell, roster) = (1, Arc::new(zone.roster(1)));
        zone.feed(1, Input::OtherRoster { cell, roster });
        let outputs = zone.say((7, from), 1, 3, &offer);
        assert_eq!(outputs, [Output::Refused("stranger")]);
    }
    zone.run(6_000);
    assert_eq!(zone.follows.get(&1).cloned().unwrap_or_default(), BTreeSet::new());
}

#[test]
fn a_hand_over_counts_once_and_with_the_right_code() {
    let mut zone = Zone::new(2, first);
    let offer = zone.offer(4, 1);
    let from = (4, Fixture::id(4));
    let outputs = zone.say(from, 1, 5, &offer);
    let answer = |outputs: &[Output]| {
        let opened = outputs.iter().find_map(|output| match output {
            Output::Send { bytes, .. } => zone.fixture.open(bytes),
            _ => None,
        });
        opened.map(|message| message.body)
    };
    let wait = Carried {
        incarnation: 99,
        ..Carried::default()
    };
    assert_eq!(answer(&outputs), Some(Body::Carried(wait)), "not known yet");
    let (cell, roster) = (1, Arc::new(zone.roster(1)));
    zone.feed(1, Input::OtherRoster { cell, roster });
    let outputs = zone.say(from, 1, 6, &offer);
    assert!(outputs.iter().any(|output| matches!(output, Output::Send { .. })));
    assert_eq!(zone.say(from, 1, 6, &offer), [Output::Refused("replay")]);
    // It is forgotten, and what it once said counts no more than before.
    zone.run(40_000);
    assert_eq!(zone.follows.get(&1).cloned().unwrap_or_default(), BTreeSet::new());
    assert_eq!(zone.say(from, 1, 6, &offer), [Output::Refused("replay")]);
    // Node 5 says that it has node 4's key.
    let outputs = zone.say((5, Fixture::id(4)), 1, 7, &offer);
    assert_eq!(outputs, [Output::Refused("code")]);
}
