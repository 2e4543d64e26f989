//! What a flood of datagrams costs, and that it changes no verdict (hazard 49).

use super::net::Net;
use crate::Millis;
use crate::engine::{Config, Engine, Identity, Input, Met, Output};
use crate::fixture::Fixture;
use crate::keys::{PublicKey, Verifier};
use crate::wire::{
    Ack, Ballot, Body, ConfirmRequest, Edge, EdgeState, Edges, Facts, Header, Heartbeat, Nonce, RequestDigest,
};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOW: Millis = Millis(50_000);
const LIFE: u64 = 9;

/// Counts signatures that are checked.
#[derive(Debug)]
struct Counting(Arc<dyn Verifier>, Arc<AtomicUsize>);

impl Verifier for Counting {
    fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verifies(key, message, signature)
    }
}

/// The agent of node 1 of three, which knows the present life of node 2.
struct Agent {
    zone: Fixture,
    engine: Engine,
    checked: Arc<AtomicUsize>,
}

impl Agent {
    fn new() -> Self {
        let zone = Fixture::new(3);
        let identity = Identity {
            uid: Fixture::uid(1),
            key: zone.signer(1),
            incarnation: 77,
            sequence_base: 0,
            seed: [5; 32],
            uptime_ms: 3_600_000,
            met: Met::default(),
        };
        let checked = Arc::new(AtomicUsize::new(0));
        let verifier = Arc::new(Counting(zone.verifier(), Arc::clone(&checked)));
        let engine = Engine::new(Config::default(), identity, Arc::new(zone.roster()), NOW);
        let mut agent = Self {
            engine: engine.verifying_with(verifier),
            zone,
            checked,
        };
        let asked = agent.say(NOW, 1, Body::Heartbeat(Heartbeat::default()));
        let asked = asked.iter().find_map(|output| match output {
            Output::Send { bytes, .. } => agent
                .zone
                .open(bytes)
                .filter(|message| matches!(message.body, Body::Heartbeat(_))),
            _ => None,
        });
        let ack = Ack {
            echo_incarnation: 77,
            echo_sequence: asked.unwrap().header.sequence,
            ..Ack::default()
        };
        let outputs = agent.say(NOW, 2, Body::Ack(ack));
        assert!(outputs.contains(&Output::Met));
        agent
    }

    /// Node 2 says something.
    fn say(&mut self, now: Millis, sequence: u64, body: Body) -> Vec<Output> {
        let header = Header {
            from: Fixture::id(2),
            to: Fixture::id(1),
            incarnation: LIFE,
            sequence,
        };
        let bytes = self.zone.seal(self.zone.key(2), header, &body);
        self.engine.on(now, Input::Datagram(&bytes, Fixture::address(2)))
    }

    /// What becomes of so many different datagrams of node 2 within a second, by the kind of output.
    fn flood(&mut self, now: Millis, first: u64, count: u64, body: &Body) -> BTreeMap<&'static str, usize> {
        let mut became = BTreeMap::new();
        for sequence in first..first + count {
            for output in self.say(now, sequence, body.clone()) {
                let what = match output {
                    Output::Send { .. } => "sent",
                    Output::Refused(reason) => reason,
                    _ => continue,
                };
                *became.entry(what).or_default() += 1;
            }
        }
        became
    }
}

#[test]
fn what_was_seen_before_gets_no_answer() {
    let mut agent = Agent::new();
    let heartbeat = || Body::Heartbeat(Heartbeat::default());
    let sent = |outputs: &[Output]| {
        let sent = |output: &&Output| matches!(output, Output::Send { .. });
        outputs.iter().filter(sent).count()
    };
    assert_eq!(sent(&agent.say(NOW, 50, heartbeat())), 1);
    for _ in 0..3 {
        assert_eq!(agent.say(NOW, 50, heartbeat()), [Output::Refused("replay")]);
    }
    assert_eq!(sent(&agent.say(NOW, 49, heartbeat())), 1, "it was overtaken");
}

#[test]
fn what_a_member_sends_too_often_is_not_acted_on() {
    let mut agent = Agent::new();
    let body = Body::Heartbeat(Heartbeat::default());
    let became = agent.flood(NOW.plus(5_000), 100, 1_000, &body);
    assert_eq!(became, BTreeMap::from([("sent", 300), ("budget", 700)]));
    let became = agent.flood(NOW.plus(6_000), 2_000, 100, &body);
    assert_eq!(became, BTreeMap::from([("sent", 100)]), "a second later");
}

/// Of ten thousand datagrams that pose as ballots, none is checked that nobody asked for.
#[test]
fn ballots_that_nobody_asked_for_cost_no_signature() {
    let mut agent = Agent::new();
    let body = Body::Ballot(Ballot::default());
    let became = agent.flood(NOW.plus(5_000), 100, 10_000, &body);
    assert_eq!(became, BTreeMap::from([("unasked", 10_000)]));
    assert_eq!(agent.checked.load(Ordering::Relaxed), 0);
}

/// Somebody recorded a datagram of another life of a member, and sends it again and again to an agent that
/// has not seen it: after a restart, or after many lives. The member is heard all the same.
#[test]
fn recordings_of_another_life_silence_nobody() {
    let mut agent = Agent::new();
    let recorded = Header {
        from: Fixture::id(2),
        to: Fixture::id(1),
        incarnation: LIFE + 1,
        sequence: 7,
    };
    let body = Body::Heartbeat(Heartbeat::default());
    let bytes = agent.zone.seal(agent.zone.key(2), recorded, &body);
    let now = NOW.plus(5_000);
    let mut sent = 0;
    for _ in 0..1_000 {
        let outputs = agent
            .engine
            .on(now, Input::Datagram(&bytes, Fixture::address(99)));
        sent += outputs
            .iter()
            .filter(|output| matches!(output, Output::Send { .. }))
            .count();
    }
    assert!(sent < 30, "{sent} datagrams for a thousand");
    let became = agent.flood(now, 100, 20, &body);
    assert_eq!(became, BTreeMap::from([("sent", 20)]));
}

/// Somebody reads all traffic, and forges ballots for a round that is held. Of a member that announces a key,
/// each costs two checks.
#[rstest]
#[case::one_key(false, &[("signature", 2_000), ("budget", 1_000)])]
#[case::two_keys(true, &[("signature", 1_000), ("budget", 2_000)])]
fn forged_ballots_for_an_open_round_cost_a_bounded_number_of_checks(
    #[case] announces: bool,
    #[case] expected: &[(&'static str, usize)],
) {
    let mut net = Net::settled(7, 3);
    net.is_flooded = true;
    if announces {
        let keys = Fixture::new(14);
        for (member, next) in net.spec.members.iter_mut().zip(8..) {
            member.next_public_key = Some(keys.key(next).public().to_base64());
        }
        net.spec.version += 1;
        net.introduce();
    }
    net.kill(7);
    net.until("a round is held", 6_000, |net| !net.requests.is_empty());
    let ((reporter, _), request) = net.requests.first_key_value().unwrap();
    let (reporter, digest) = (*reporter, request.digest());
    let refused = forge(&mut net, reporter, digest);
    assert_eq!(refused, expected.iter().copied().collect());
}

/// The same for as long as it takes, for each round that is held. Voters prove themselves by a code before
/// their signatures are checked; so nobody who has no key uses up what these checks may cost.
#[test]
fn who_forges_ballots_without_end_holds_no_death_back() {
    let mut net = Net::settled(7, 3);
    assert!(finds_a_death_in_a_flood(&mut net));
}

/// Version 3.0 of the format has bare ballots alone.
#[test]
fn who_forges_ballots_holds_a_death_back_where_votes_carry_no_code() {
    let mut net = Net::settled(7, 3);
    for engine in &mut net.engines {
        *engine = engine.take().map(Engine::of_former_version);
    }
    assert!(!finds_a_death_in_a_flood(&mut net));
}

fn finds_a_death_in_a_flood(net: &mut Net) -> bool {
    net.is_flooded = true;
    net.kill(7);
    for _ in 0..80 {
        net.run(100);
        let requests = net.requests.iter();
        let requests: Vec<_> = requests
            .map(|((reporter, _), request)| (*reporter, request.digest()))
            .collect();
        for (reporter, digest) in requests {
            forge(net, reporter, digest);
        }
    }
    net.is_dead(7)
}

/// Somebody without a key sends this reporter 3,000 ballots of another member.
fn forge(net: &mut Net, reporter: usize, request: RequestDigest) -> BTreeMap<&'static str, usize> {
    let voter = (1..7).find(|voter| *voter != reporter).unwrap();
    let (zone, now) = (Fixture::new(7), Millis(net.now));
    let engine = net.engines[reporter - 1].as_mut().unwrap();
    let header = Header {
        from: Fixture::id(voter),
        to: Fixture::id(reporter),
        incarnation: 1,
        sequence: 1,
    };
    let ballot = Ballot {
        request,
        ..Ballot::default()
    };
    let bytes = zone.seal(zone.key(7), header, &Body::Ballot(ballot));
    let mut refused = BTreeMap::new();
    for _ in 0..3_000 {
        for output in engine.on(now, Input::Datagram(&bytes, Fixture::address(voter))) {
            if let Output::Refused(reason) = output {
                *refused.entry(reason).or_default() += 1;
            }
        }
    }
    refused
}

/// A member asks about all others without end: each of them sends for it what the searches of each ten
/// seconds cost, and no more.
#[rstest]
fn who_asks_without_end_has_a_bounded_number_of_members_looked_for(#[values(5, 64)] count: u8) {
    let mut net = Net::settled(count, 17);
    let (victim, hostile) = (1, 2);
    let suspects = net.count() - 2;
    let mut asked = 0;
    let mut sends = |is_flooded: bool| {
        net.sent_bytes.clear();
        net.is_flooded = is_flooded;
        for number in 0..200_u64 {
            if is_flooded {
                let request = ConfirmRequest {
                    round: Nonce([number as u8; 16]),
                    roster: net.roster().reference(),
                    challenge: Fixture::CHALLENGE,
                    budget: 1_000,
                    suspects: (3..=net.count()).map(Fixture::suspect).collect(),
                    ..ConfirmRequest::default()
                };
                asked += net.says(hostile, victim, &Body::Confirm(request));
            }
            net.run(100);
        }
        net.sent_bytes[&victim]
    };
    let (calm, flooded) = (sends(false), sends(true));
    println!(
        "{count} members: {} B/s of requests make another member send {} B/s instead of {} B/s",
        asked / 20,
        flooded / 20,
        calm / 20
    );
    // Two or three times ten seconds: a heartbeat for each suspect, and a ballot for each request.
    let looked_for = 3 * 64.max(8 * net.count());
    let bound = looked_for * 75 + looked_for / suspects * 500;
    assert!(
        flooded > calm + 1_000 && flooded - calm <= bound,
        "{calm} {flooded} {bound}"
    );
}

/// A member that watches the first candidate says without end that it has lost it. That begins one search in
/// 30 s, in which those who would step in are asked once; who does not watch the candidate begins none.
#[rstest]
fn who_says_that_a_reporter_is_lost_has_few_members_asked(#[values(false, true)] watches: bool) {
    let mut net = Net::settled(64, 19);
    let order = net.rendezvous();
    let (lost, victim) = (order[0], order[63]);
    let (is_observer, watched_by) = (net.observers_of(lost), |i| net.observers_of(i));
    let next: Vec<usize> = order[4..8]
        .iter()
        .copied()
        .filter(|i| !watched_by(*i).contains(&victim))
        .collect();
    assert!(!is_observer.contains(&victim) && !next.is_empty());
    let mut others = order[8..63].iter().copied();
    let hostile = others
        .find(|i| is_observer.contains(i) == watches)
        .expect("one of 55");
    let says = Body::Edges(Edges {
        edges: vec![Edge {
            subject: Fixture::id(lost),
            state: EdgeState::Down,
            facts: Facts::default(),
        }],
        ..Edges::default()
    });
    let (began, mut asked) = (net.now, BTreeSet::new());
    for _ in 0..250 {
        net.says(hostile, victim, &says);
        net.run(100);
        for i in &next {
            let last = net.heartbeats.get(&(victim, *i)).copied();
            asked.extend(last.filter(|at| *at > began).map(|at| (at, *i)));
        }
    }
    let of_search = |at: u64| next.iter().all(|i| asked.contains(&(at, *i)));
    let searches: BTreeSet<u64> = asked
        .iter()
        .map(|(at, _)| *at)
        .filter(|at| of_search(*at))
        .collect();
    assert_eq!(searches.len(), usize::from(watches), "{asked:?}");
    // Each is asked once in 63 periods in any case.
    assert!(
        asked.len() <= next.len() * (1 + usize::from(watches)),
        "{asked:?}"
    );
}

/// A member says ten times a second that it has lost everybody: each of those is looked at once more in a
/// period, directly and through another member, and not whenever it has not just answered.
#[rstest]
fn who_raises_alarms_without_end_costs_one_more_look_in_a_period(#[values(5, 64)] count: u8) {
    let mut net = Net::settled(count, 18);
    let (victim, hostile) = (1, 2);
    let edges = (3..=net.count()).map(|subject| Edge {
        subject: Fixture::id(subject),
        state: EdgeState::Down,
        facts: Facts::default(),
    });
    let lost = Body::Edges(Edges {
        edges: edges.collect(),
        ..Edges::default()
    });
    let mut sends = |is_flooded: bool| {
        net.sent_bytes.clear();
        for _ in 0..200 {
            if is_flooded {
                net.says(hostile, victim, &lost);
            }
            net.run(100);
        }
        net.sent_bytes[&victim]
    };
    let (calm, flooded) = (sends(false), sends(true));
    assert!(flooded > calm + 1_000 && flooded < 4 * calm, "{calm} {flooded}");
}
