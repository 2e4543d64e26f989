//! What holds whatever an engine is told, by members that sign what they like.

use super::heard;
use crate::Millis;
use crate::engine::{CheckResult, Config, Engine, Identity, Input, Met, Output, Question};
use crate::fixture::Fixture;
use crate::roster::{MemberId, RosterRef};
use crate::verdict::{Health, Link};
use crate::wire::{
    self, Ack, Answer, Ballot, Body, Challenge, ConfirmRequest, Edge, EdgeState, Edges, Facts, Frame, Header,
    Heartbeat, MAX_FRAME, MAX_LIST, MAX_SUSPECTS, Nonce, Published, PublishedVerdict, Relay, Renewal,
    RequestDigest, Said, Suspect,
};
use evenkeel_api::zone::VerdictKind;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Members of the zone; the engine is node 1.
const MEMBERS: usize = 4;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A member signs this.
    Says(usize, Header, Body),
    /// A member signs bytes.
    SaysBytes(usize, u8, Vec<u8>),
    /// Nobody signed these bytes.
    Bytes(Vec<u8>),
    /// A member answers every heartbeat that the engine sends from now on, or ceases to.
    Answers(usize, bool),
    Tick,
    Facts(Health, Health),
    CloudContact,
    Checked(Question, MemberId, CheckResult),
    /// Members that join, and the nodes that are wanted.
    Roster(i64),
    Challenge(Challenge, Vec<MemberId>),
    LeaseRead(MemberId, Option<Renewal>),
    /// Nodes that the report lists: dead, with these voters.
    ReportWritten(bool),
    Leading(bool),
    LinkProof(bool),
}

fn member() -> impl Strategy<Value = MemberId> {
    prop_oneof![
        9 => (1..=MEMBERS).prop_map(Fixture::id),
        1 => any::<[u8; 8]>().prop_map(MemberId),
    ]
}

fn nonce() -> impl Strategy<Value = Nonce> {
    (0_u8..4).prop_map(|byte| Nonce([byte; 16]))
}

fn challenge() -> impl Strategy<Value = Challenge> {
    (0_u8..3).prop_map(|byte| Challenge([byte; 16]))
}

fn renewal() -> impl Strategy<Value = Option<Renewal>> {
    prop_oneof![Just(None), number().prop_map(|version| Some(Renewal(version)))]
}

fn suspect() -> impl Strategy<Value = Suspect> {
    (member(), renewal()).prop_map(|(member, renewal)| Suspect { member, renewal })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..100, any::<u64>(), Just(u64::MAX)]
}

fn health() -> impl Strategy<Value = Health> {
    select(vec![Health::Unknown, Health::Ok, Health::Failing])
}

fn facts() -> impl Strategy<Value = Facts> {
    let link = select(vec![Link::Unknown, Link::Up, Link::Down]);
    (link, health(), health()).prop_map(|(cloud, kubelet, runtime)| Facts {
        cloud,
        kubelet,
        runtime,
    })
}

fn roster() -> impl Strategy<Value = RosterRef> {
    prop_oneof![
        Just(zone().roster().reference()),
        number().prop_map(|version| RosterRef {
            version,
            ..RosterRef::default()
        }),
    ]
}

fn edge() -> impl Strategy<Value = Edge> {
    let state = select(vec![
        EdgeState::Up,
        EdgeState::Degraded,
        EdgeState::OneWay,
        EdgeState::Down,
    ]);
    (member(), state, facts()).prop_map(|(subject, state, facts)| Edge {
        subject,
        state,
        facts,
    })
}

fn body() -> impl Strategy<Value = Body> {
    let heartbeat = (0_u64..4, any::<u8>(), facts(), any::<u16>(), member());
    let ack = (number(), number(), 0_u64..4, any::<u8>(), facts());
    let answer = select(vec![Answer::Abstain, Answer::Yes, Answer::No]);
    let said = (any::<u8>(), answer, any::<u32>(), facts());
    let kind = select(vec![VerdictKind::None, VerdictKind::Alive, VerdictKind::Dead]);
    prop_oneof![
        heartbeat.prop_map(
            |(roster, doubt, facts, cloud_age, via)| Body::Heartbeat(Heartbeat {
                roster,
                doubt,
                facts,
                cloud_age,
                via,
            })
        ),
        ack.prop_map(
            |(echo_incarnation, echo_sequence, roster, doubt, facts)| Body::Ack(Ack {
                echo_incarnation,
                echo_sequence,
                roster,
                doubt,
                facts,
                cloud_age: 0,
            })
        ),
        (member(), vec(any::<u8>(), 0..200)).prop_map(|(target, inner)| Body::Relay(Relay { target, inner })),
        (0_u8..2, vec(edge(), 0..=MAX_LIST)).prop_map(|(doubt, edges)| Body::Edges(Edges { doubt, edges })),
        (
            nonce(),
            roster(),
            challenge(),
            any::<u16>(),
            vec(suspect(), 0..=MAX_SUSPECTS)
        )
            .prop_map(|(round, roster, challenge, budget, suspects)| {
                Body::Confirm(ConfirmRequest {
                    round,
                    roster,
                    challenge,
                    budget,
                    suspects,
                    ..ConfirmRequest::default()
                })
            }),
        (any::<[u8; 32]>(), roster(), vec(said, 0..=MAX_LIST)).prop_map(|(digest, roster, said)| {
            let said = said.into_iter().map(|(index, answer, contact_age, facts)| Said {
                index,
                answer,
                contact_age,
                facts,
            });
            Body::Ballot(Ballot {
                request: RequestDigest(digest),
                roster,
                uptime: 7,
                said: said.collect(),
            })
        }),
        vec((member(), kind), 0..=MAX_LIST).prop_map(|verdicts| {
            let verdicts = verdicts
                .into_iter()
                .map(|(subject, kind)| PublishedVerdict { subject, kind });
            Body::Published(Published {
                verdicts: verdicts.collect(),
            })
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let header = (2..=MEMBERS, member(), 0_u64..4, number());
    let says = (header, body()).prop_map(|((from, to, incarnation, sequence), body)| {
        // Mostly addressed to the engine.
        let to = if sequence % 8 == 0 { to } else { Fixture::id(1) };
        let header = Header {
            from: Fixture::id(from),
            to,
            incarnation,
            sequence,
        };
        Step::Says(from, header, body)
    });
    let result = select(vec![
        CheckResult::Identity,
        CheckResult::Failed,
        CheckResult::Inconclusive,
        CheckResult::Unavailable,
    ]);
    prop_oneof![
        8 => says,
        2 => (2..=MEMBERS, 0_u8..9, vec(0_u8..4, 0..300)).prop_map(|(from, kind, tail)| Step::SaysBytes(from, kind, tail)),
        1 => vec(any::<u8>(), 0..300).prop_map(Step::Bytes),
        2 => (2..=MEMBERS, any::<bool>()).prop_map(|(i, on)| Step::Answers(i, on)),
        6 => Just(Step::Tick),
        1 => (health(), health()).prop_map(|(kubelet, runtime)| Step::Facts(kubelet, runtime)),
        1 => Just(Step::CloudContact),
        2 => (member(), nonce(), member(), result).prop_map(|(asker, round, suspect, result)| {
            Step::Checked(Question { asker, round }, suspect, result)
        }),
        1 => (1_i64..6).prop_map(Step::Roster),
        1 => (challenge(), vec(member(), 0..4)).prop_map(|(challenge, wanted)| Step::Challenge(challenge, wanted)),
        2 => (member(), renewal()).prop_map(|(member, renewal)| Step::LeaseRead(member, renewal)),
        1 => any::<bool>().prop_map(Step::ReportWritten),
        1 => any::<bool>().prop_map(Step::Leading),
        1 => any::<bool>().prop_map(Step::LinkProof),
    ]
}

fn later() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..400, 2 => 0_u64..12_000, 1 => any::<u64>()]
}

fn zone() -> Fixture {
    Fixture::stand_in(4)
}

/// The engine of node 1, and the members that answer it.
struct Stage {
    zone: Fixture,
    engine: Engine,
    now: u64,
    sequence: u64,
    answering: BTreeSet<usize>,
}

impl Stage {
    fn new() -> Self {
        let zone = zone();
        let identity = Identity {
            uid: Fixture::uid(1),
            key: zone.signer(1),
            incarnation: 77,
            sequence_base: 0,
            seed: [5; 32],
            uptime_ms: 3_600_000,
            met: Met::default(),
        };
        let engine = Engine::new(
            Config::default(),
            identity,
            Arc::new(zone.roster()),
            Millis(50_000),
        );
        Self {
            engine: engine.verifying_with(zone.verifier()),
            zone,
            now: 50_000,
            sequence: 1_000,
            answering: BTreeSet::new(),
        }
    }

    fn take(&mut self, later: u64, step: Step) {
        self.now = self.now.saturating_add(later);
        match step {
            Step::Says(from, header, body) => {
                let bytes = self.zone.seal(self.zone.key(from), header, &body);
                self.feed(heard(&bytes));
            }
            Step::SaysBytes(from, kind, tail) => {
                let mut body = Fixture::id(from).0.to_vec();
                body.extend(Fixture::id(1).0);
                body.extend(tail);
                let key = self.zone.key(from);
                let shared = key.shared_with(self.zone.key(1).public());
                let bytes = wire::seal_body(kind, &body, key, &*shared);
                self.feed(heard(&bytes));
            }
            Step::Bytes(bytes) => self.feed(heard(&bytes)),
            Step::Answers(i, true) => drop(self.answering.insert(i)),
            Step::Answers(i, false) => drop(self.answering.remove(&i)),
            Step::Tick => self.feed(Input::Tick),
            Step::Facts(kubelet, runtime) => self.feed(Input::Facts { kubelet, runtime }),
            Step::CloudContact => self.feed(Input::CloudContact),
            Step::Checked(asked, suspect, result) => self.feed(Input::Checked {
                asked,
                suspect,
                result,
            }),
            Step::Roster(version) => {
                let mut zone = zone();
                (1..version).for_each(|_| zone.reissue());
                self.feed(Input::Roster(Arc::new(zone.roster())));
            }
            Step::Challenge(challenge, wanted) => self.feed(Input::Challenge {
                challenge,
                wanted: wanted.into_iter().collect(),
            }),
            Step::LeaseRead(member, renewal) => self.feed(Input::LeaseRead { member, renewal }),
            Step::ReportWritten(written) => self.feed(Input::ReportWritten { written }),
            Step::Leading(leading) => self.feed(Input::Leading(leading)),
            Step::LinkProof(written) => self.feed(Input::LinkProof { written }),
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        let outputs = self.engine.on(Millis(self.now), input);
        self.engine.deadline();
        for output in outputs {
            let Output::Send { to, bytes, .. } = output else {
                continue;
            };
            assert!(bytes.len() <= MAX_FRAME, "a datagram of {} bytes", bytes.len());
            let frame = Frame::parse(&bytes).unwrap();
            if frame.from() != Fixture::id(1) {
                // Passed on for somebody else.
                continue;
            }
            let message = self.zone.open(&bytes).unwrap();
            let answering = self.answering.iter().find(|i| Fixture::id(**i) == to).copied();
            if let (Body::Heartbeat(_), Some(from)) = (&message.body, answering) {
                let ack = Body::Ack(Ack {
                    echo_incarnation: message.header.incarnation,
                    echo_sequence: message.header.sequence,
                    ..Ack::default()
                });
                self.sequence += 1;
                let header = Header {
                    from: to,
                    to: Fixture::id(1),
                    incarnation: 1,
                    sequence: self.sequence,
                };
                let bytes = self.zone.seal(self.zone.key(from), header, &ack);
                self.feed(heard(&bytes));
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_that_members_sign_makes_an_engine_panic_or_send_what_nobody_can_read(
        steps in vec((later(), step()), 0..60),
    ) {
        let mut stage = Stage::new();
        for (later, step) in steps {
            stage.take(later, step);
        }
    }
}
