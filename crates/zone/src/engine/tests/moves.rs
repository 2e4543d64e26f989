//! Rosters that come from other members, and members that are no longer where the roster says (hazards 4, 48
//! and 53).

use super::net::Net;
use super::{Engine, Input, Output};
use crate::Millis;
use crate::fixture::Fixture;
use crate::wire::{Body, Header, Heartbeat, Part, PartAsked};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A cell of which one node, the last one, is cut off from the cloud; rosters are signed.
fn with_one_cut(count: u8, seed: u64) -> Net {
    let mut net = Net::signed(count, seed);
    net.run(20_000);
    net.cut_cloud(usize::from(count));
    net.run(20_000);
    net
}

/// The engine of node 1 of a cell of three that has run, alone with what others say to it.
struct Listener {
    engine: Engine,
    zone: Fixture,
    began: u64,
    incarnations: BTreeMap<usize, u64>,
    sequence: u64,
}

impl Listener {
    fn of(mut net: Net) -> Self {
        Self {
            engine: net.engines[0].take().unwrap(),
            zone: Fixture::new(3),
            began: net.now,
            incarnations: net.incarnations,
            sequence: 1 << 60,
        }
    }

    fn tick(&mut self, at: u64) -> Vec<Output> {
        self.engine.on(Millis(self.began + at), Input::Tick)
    }

    /// What follows when a node says this, from its own address.
    fn hear(&mut self, at: u64, from: usize, body: Body) -> Vec<Output> {
        self.hear_at(Fixture::address(from), at, from, body)
    }

    fn hear_at(&mut self, source: SocketAddr, at: u64, from: usize, body: Body) -> Vec<Output> {
        self.sequence += 1;
        let header = Header {
            from: Fixture::id(from),
            to: Fixture::id(1),
            incarnation: self.incarnations[&from],
            sequence: self.sequence,
        };
        let bytes = self.zone.seal(self.zone.key(from), header, &body);
        let input = Input::Datagram(&bytes, source);
        self.engine.on(Millis(self.began + at), input)
    }

    /// The questions for a roster among outputs, with whom they are for.
    fn asks(&self, outputs: &[Output]) -> Vec<(SocketAddr, PartAsked)> {
        let asked = |output: &Output| match output {
            Output::Send { address, bytes, .. } => match self.zone.open(bytes)?.body {
                Body::RosterAsked(asked) => Some((*address, asked)),
                _ => None,
            },
            _ => None,
        };
        outputs.iter().filter_map(asked).collect()
    }

    fn version(&self) -> u64 {
        self.engine.roster().reference().version
    }
}

/// A heartbeat of a member that has this version of the roster.
fn has(roster: u64) -> Body {
    Body::Heartbeat(Heartbeat {
        roster,
        ..Heartbeat::default()
    })
}

/// All but node `cut` learn the present roster from the API server.
fn publish_to_all_but(net: &mut Net, cut: usize) {
    net.spec.version += 1;
    for i in (1..=net.count()).filter(|i| *i != cut) {
        net.teach(i, net.roster());
    }
}

fn version_of(net: &Net, i: usize) -> u64 {
    net.engines[i - 1].as_ref().unwrap().roster().reference().version
}

fn elsewhere(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 9, 9, u8::try_from(i).unwrap()], 7959))
}

/// Seconds after the change, and not when its link is back.
#[test]
fn who_is_cut_off_gets_the_roster_from_its_neighbours() {
    for (count, loss, within) in [(3, 0, 8_000), (5, 30, 15_000), (64, 0, 20_000), (64, 30, 40_000)] {
        let mut net = with_one_cut(count, 71);
        net.loss_percent = loss;
        let cut = usize::from(count);
        publish_to_all_but(&mut net, cut);
        net.until("the roster has come", within, |net| version_of(net, cut) == 2);
        assert_eq!(net.passed_on, [(cut, 2)], "nobody else needed it");
    }
}

/// Node 1 gets another key while node 3 is cut off: what the two say to each other counts again at once.
#[test]
fn another_key_of_a_neighbour_is_known_to_who_is_cut_off() {
    let mut net = with_one_cut(3, 72);
    net.rekey(1, 200);
    publish_to_all_but(&mut net, 3);
    net.start(1);
    net.until("they hear each other", 15_000, |net| net.reaches_all(3));
    net.run_checking(60_000, |net| assert!(!net.is_dead(1) && !net.is_dead(3)));
    assert!(net.is_alive(3), "it is vouched for all the same");
}

#[test]
fn without_a_key_nobody_takes_a_roster_from_another_member() {
    let mut net = Net::settled(3, 73);
    net.cut_cloud(3);
    publish_to_all_but(&mut net, 3);
    net.run(60_000);
    assert_eq!((version_of(&net, 3), net.passed_on.len()), (1, 0));
}

/// A member that claims to have a newer roster and sends something else is not asked again for a minute.
#[test]
fn what_is_no_roster_of_the_cell_is_refused_and_its_author_left_alone() {
    let mut net = Net::signed(3, 74);
    net.run(20_000);
    net.cut_cloud(1);
    let mut listener = Listener::of(net);
    let asks = |listener: &mut Listener, at| {
        let outputs = listener.hear(at, 2, has(9));
        listener.asks(&outputs)
    };
    assert_eq!(asks(&mut listener, 0), []);
    assert_eq!(asks(&mut listener, 2_000), [], "its own watch may have it");
    let asked = PartAsked {
        version: 9,
        offset: 0,
    };
    assert_eq!(asks(&mut listener, 3_100), [(Fixture::address(2), asked)]);
    let refused = |outputs: &[Output]| outputs.contains(&Output::Refused("roster"));
    let part = |length, offset, bytes: &[u8]| {
        Body::RosterPart(Part {
            version: 9,
            length,
            offset,
            bytes: bytes.to_vec(),
        })
    };
    for odd in [
        part(u32::MAX, 0, &[0; 1_024]),
        part(100, 50, &[0; 50]),
        part(3_000, 0, &[0; 100]),
    ] {
        assert!(refused(&listener.hear(3_110, 2, odd)));
    }
    let forged = listener.hear(3_120, 2, part(100, 0, &[7; 100]));
    assert!(refused(&forged), "its signature is nobody's");
    assert_eq!(listener.version(), 1);
    for later in [4_000, 30_000, 60_000] {
        assert_eq!(asks(&mut listener, later), []);
    }
    assert_eq!(asks(&mut listener, 63_200).len(), 1);
}

/// The roster of an object that was made anew has its own versions.
#[test]
fn a_roster_of_another_object_is_not_taken_from_a_neighbour() {
    let mut net = with_one_cut(3, 75);
    net.spec.cell_uid = "another".into();
    publish_to_all_but(&mut net, 3);
    net.run(60_000);
    assert_eq!((version_of(&net, 3), net.passed_on.len()), (1, 0));
}

/// A machine that is cut off gets another address, by DHCP for one: its neighbours find it where it is
/// heard, and it goes on voting.
#[test]
fn a_node_that_moves_while_it_is_cut_off_is_reached_where_it_is() {
    for (count, reboots) in [(3, false), (3, true), (12, false), (12, true)] {
        let mut net = with_one_cut(count, 76);
        let cut = usize::from(count);
        net.moved.insert(cut, elsewhere(cut));
        if reboots {
            net.start(cut);
        }
        net.until("it answers there", 10_000, |net| net.reaches_all(cut));
        net.run_checking(60_000, |net| assert!(!net.is_dead(cut)));
        assert!(net.is_alive(cut));
        // Its kubelet is where it is, and speaks for the machine.
        net.stop_agent(cut);
        net.run_checking(30_000, |net| assert!(!net.is_dead(cut)));
        // Whoever begins anew knows only where it was.
        for i in 1..cut {
            net.stop_agent(i);
            net.start(i);
        }
        net.run_checking(30_000, |net| assert!(!net.is_dead(cut)));
        net.start(cut);
        net.until("it answers again", 10_000, |net| net.reaches_all(cut));
        net.run(10_000);
        net.kill(cut);
        net.until("and its death is found", 8_000, |net| net.is_dead(cut));
    }
}

/// The new address is in the roster before the machine has it, or never comes true.
#[test]
fn a_node_that_is_not_where_the_roster_says_is_reached_where_it_is() {
    let mut net = Net::settled(5, 77);
    net.spec.members[4].address = elsewhere(5).to_string();
    net.spec.version += 1;
    net.introduce();
    net.run(6_000);
    net.run_checking(60_000, |net| assert!(!net.is_dead(5)));
    assert!(net.reaches_all(5));
}

/// In a cell in which a node is watched by ten of the others alone.
#[test]
fn a_node_of_a_large_cell_that_moves_is_found_within_seconds() {
    for seed in 80..84 {
        let mut net = with_one_cut(64, seed);
        net.moved.insert(64, elsewhere(64));
        net.run(15_000);
        net.run_checking(30_000, |net| assert!(net.is_alive(64), "seed {seed}"));
        net.moved.remove(&64);
        net.run(15_000);
        net.run_checking(30_000, |net| assert!(net.is_alive(64), "and back, seed {seed}"));
    }
}

/// An engine of a cell of twelve, and what somebody outside has recorded of a member that it does not watch.
fn eavesdropped(former_life: bool) -> (Net, usize, Vec<u8>) {
    let mut net = Net::settled(12, 78);
    let watched: Vec<usize> = (2..=12).filter(|i| net.observers_of(*i).contains(&1)).collect();
    let node = (2..=12).find(|i| !watched.contains(i)).unwrap_or(2);
    let incarnation = net.incarnations[&node];
    if former_life {
        net.start(node);
        net.run(120_000);
    }
    let header = Header {
        from: Fixture::id(node),
        to: Fixture::id(1),
        incarnation,
        sequence: 1,
    };
    let zone = Fixture::new(12);
    let bytes = zone.seal(zone.key(node), header, &Body::Heartbeat(Default::default()));
    (net, node, bytes)
}

fn sent_to(outputs: &[Output], address: SocketAddr) -> Vec<&[u8]> {
    let sends = outputs.iter().filter_map(|output| match output {
        Output::Send {
            address: to, bytes, ..
        } if *to == address => Some(&**bytes),
        _ => None,
    });
    sends.collect()
}

/// Who repeats a datagram from another address draws nothing there: not of a life that has ended, and not of
/// the present one.
#[test]
fn a_datagram_that_is_repeated_from_elsewhere_moves_nobody() {
    for former_life in [false, true] {
        let (mut net, node, bytes) = eavesdropped(former_life);
        let mut engine = net.engines[0].take().unwrap();
        let there = elsewhere(node);
        for at in 0..1_000 {
            let outputs = engine.on(Millis(net.now + at), Input::Datagram(&bytes, there));
            assert_eq!(
                sent_to(&outputs, there),
                [] as [&[u8]; 0],
                "former life: {former_life}"
            );
        }
    }
}

/// Somebody between the two passes on a fresh heartbeat as its own and the answer back: as long as the member
/// answers where the roster says, that is where it is asked.
#[test]
fn who_passes_datagrams_on_does_not_come_between_two_members() {
    let mut listener = Listener::of(Net::settled(3, 81));
    let there = elsewhere(2);
    // Once its answers are lost for some seconds: then both places are asked, and both answer.
    let mut astray = Vec::new();
    for step in 0..600_u64 {
        let at = step * 100;
        let is_lost = (10_000..14_000).contains(&at);
        let mut outputs = listener.tick(at);
        if step.is_multiple_of(5) {
            outputs.extend(listener.hear_at(there, at, 2, has(0)));
        }
        for address in [Fixture::address(2), there] {
            for bytes in sent_to(&outputs, address) {
                let message = listener.zone.open(bytes).unwrap();
                let Body::Heartbeat(_) = message.body else {
                    continue;
                };
                if address == there {
                    astray.push(at);
                } else if is_lost {
                    continue;
                }
                let ack = Body::Ack(crate::wire::Ack {
                    echo_incarnation: message.header.incarnation,
                    echo_sequence: message.header.sequence,
                    ..Default::default()
                });
                listener.hear_at(address, at + 1, 2, ack);
            }
        }
    }
    assert!(!astray.is_empty(), "it was looked for where it was heard");
    let needless = astray.iter().find(|at| !(10_000..16_500).contains(*at));
    assert_eq!(needless, None, "{astray:?}");
}

/// A member passes on a genuine roster of earlier as if it were a newer one.
#[test]
fn an_old_roster_under_a_new_number_is_refused_and_its_author_left_alone() {
    let mut net = Net::signed(3, 82);
    let old = net.roster().to_bytes().unwrap();
    net.spec.version = 7;
    net.introduce();
    net.run(20_000);
    let mut listener = Listener::of(net);
    listener.hear(0, 2, has(u64::MAX));
    listener.hear(3_100, 2, has(u64::MAX));
    let mut outputs = Vec::new();
    for (place, part) in old.chunks(1_024).enumerate() {
        let part = Body::RosterPart(Part {
            version: u64::MAX,
            length: u32::try_from(old.len()).unwrap(),
            offset: u32::try_from(place * 1_024).unwrap(),
            bytes: part.to_vec(),
        });
        outputs.extend(listener.hear(3_110, 2, part));
    }
    assert!(outputs.contains(&Output::Refused("roster")), "{outputs:?}");
    let taken = |output: &Output| matches!(output, Output::Roster(_));
    assert!(!outputs.iter().any(taken));
    assert_eq!(listener.version(), 7);
}

/// It sends one part after the other of something that has no end, and each of them twice.
#[test]
fn who_never_ends_a_roster_keeps_nobody_from_taking_it_from_others() {
    let mut net = Net::signed(3, 83);
    net.run(20_000);
    net.cut_cloud(1);
    let mut listener = Listener::of(net);
    let mut asked_of_3 = None;
    for at in (0..60_000).step_by(250) {
        let place = at / 500 * 1_024;
        let mut outputs = listener.hear(at, 2, has(u64::MAX));
        outputs.extend(listener.tick(at));
        let part = Body::RosterPart(Part {
            version: u64::MAX,
            length: 128 * 1_024,
            offset: u32::try_from(place).unwrap(),
            bytes: vec![0; 1_024],
        });
        outputs.extend(listener.hear(at, 2, part));
        outputs.extend(listener.hear(at, 3, has(2)));
        let asked = listener.asks(&outputs);
        let asks = asked.iter().any(|(whom, _)| *whom == Fixture::address(3));
        if asks {
            asked_of_3 = asked_of_3.or(Some(at));
        }
    }
    assert!(asked_of_3.is_some_and(|at| at < 40_000), "{asked_of_3:?}");
}

#[test]
fn a_roster_that_is_in_force_is_passed_on_as_it_was_published() {
    let net = Net::signed(3, 79);
    let roster = net.roster();
    let engine = net.engines[0].as_ref().unwrap();
    assert_eq!(engine.roster().published(), roster.published());
    assert!(!roster.published().signature.is_empty());
}
