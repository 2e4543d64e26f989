use super::*;
use crate::fixture::Fixture;
use crate::wire::{self, Answer, Facts, Frame};
use evenkeel_api::zone::NodeVerdict;
use rstest::rstest;

const CUT: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

struct Reader {
    book: Book,
    zone: Fixture,
}

impl Reader {
    /// A reader for whom the zone has been seen to advance.
    fn of(members: u8) -> Self {
        let mut reader = Self {
            book: Book::new(),
            zone: Fixture::new(members),
        };
        reader.report(Millis(0), vec![]);
        reader.report(Millis(1), vec![]);
        reader
    }

    fn report(&mut self, now: Millis, nodes: Vec<NodeVerdict>) -> Vec<(String, Refusal)> {
        let status = self.zone.report(nodes);
        self.book.observe(now, "shore", &self.zone.spec(), &status)
    }

    fn of_node(&self, node: usize, at: u64) -> Verdict {
        self.book.verdict(&Fixture::uid(node), Millis(at))
    }
}

fn none(reason: NoVerdict) -> Verdict {
    Verdict::None(reason)
}

fn alive(facts: Facts) -> Verdict {
    Verdict::Alive {
        cloud: facts.cloud,
        kubelet: facts.kubelet,
        runtime: facts.runtime,
    }
}

fn dead(at: u64) -> Verdict {
    Verdict::Dead {
        round_began: Millis(at),
    }
}

#[test]
fn a_death_signed_by_a_majority_is_believed_with_its_age() {
    let mut reader = Reader::of(5);
    let verdict = reader.zone.dead(5, &[1, 2, 3], 1);
    assert_eq!(reader.report(Millis(9_000), vec![verdict]), vec![]);
    assert_eq!(reader.of_node(5, 9_000), dead(8_000));
    assert_eq!(reader.of_node(4, 9_000), none(NoVerdict::NotListed));
    assert_eq!(
        reader.book.verdict("uid-77", Millis(9_000)),
        none(NoVerdict::NotAMember)
    );
}

#[rstest]
#[case::minority(&[1, 2])]
#[case::same_voter_thrice(&[1, 1, 1])]
#[case::nobody(&[])]
#[case::the_suspect_itself(&[1, 2, 5])]
fn a_minority_convicts_nobody(#[case] voters: &[usize]) {
    let mut reader = Reader::of(5);
    let verdict = reader.zone.dead(5, voters, 1);
    assert!(matches!(
        reader.report(Millis(9), vec![verdict])[..],
        [(_, Refusal::NoMajority { .. })]
    ));
    assert_eq!(reader.of_node(5, 9), none(NoVerdict::Refused));
}

#[test]
fn a_statement_signed_with_another_key_does_not_count() {
    let mut reader = Reader::of(3);
    let mut verdict = reader.zone.dead(3, &[1], 1);
    let vote = reader.zone.vote(2, 3, 1, Answer::No);
    // Node 1 votes in the name of node 2.
    verdict.evidence.push(reader.zone.sign(1, vote));
    let refused = reader.report(Millis(9), vec![verdict]);
    assert!(
        refused[0].1.to_string().contains("signature is not the sender's"),
        "{refused:?}"
    );
    assert_eq!(reader.of_node(3, 9), none(NoVerdict::Refused));
}

#[rstest]
#[case::alive_for_dead(VerdictKindCase::NoAsAlive)]
#[case::dead_for_alive(VerdictKindCase::YesAsDead)]
#[case::of_another_node(VerdictKindCase::OtherNode)]
#[case::nonsense(VerdictKindCase::Nonsense)]
fn a_reporter_cannot_make_the_statements_say_something_else(#[case] lie: VerdictKindCase) {
    use evenkeel_api::zone::VerdictKind;
    let mut reader = Reader::of(3);
    let verdict = match lie {
        VerdictKindCase::NoAsAlive => NodeVerdict {
            verdict: VerdictKind::Alive,
            ..reader.zone.dead(3, &[1, 2], 1)
        },
        VerdictKindCase::YesAsDead => NodeVerdict {
            verdict: VerdictKind::Dead,
            ..reader.zone.alive(3, &[1, 2], 1, CUT)
        },
        VerdictKindCase::OtherNode => NodeVerdict {
            uid: Fixture::uid(2),
            ..reader.zone.dead(3, &[1, 2], 1)
        },
        VerdictKindCase::Nonsense => NodeVerdict {
            evidence: vec!["%%%".into(), "AAAA".into(), "A".repeat(9999)],
            ..reader.zone.dead(3, &[], 1)
        },
    };
    let uid = verdict.uid.clone();
    assert_eq!(reader.report(Millis(9), vec![verdict]).len(), 1);
    assert_eq!(reader.book.verdict(&uid, Millis(9)), none(NoVerdict::Refused));
}

#[derive(Clone, Copy)]
enum VerdictKindCase {
    NoAsAlive,
    YesAsDead,
    OtherNode,
    Nonsense,
}

#[test]
fn evidence_of_life_decays_unless_the_contacts_are_renewed() {
    let mut reader = Reader::of(3);
    let first = reader.zone.alive(3, &[1, 2], 1, CUT);
    reader.report(Millis(1_000), vec![first.clone()]);
    assert_eq!(reader.of_node(3, 1_000), alive(CUT));
    // The same statements again, and heartbeats of the Lease, renew nothing.
    reader.report(Millis(10_000), vec![first.clone()]);
    for at in 10..17 {
        reader.book.heartbeat(Millis(at * 1000), "shore");
    }
    assert_eq!(reader.of_node(3, 15_999), alive(CUT));
    assert_eq!(reader.of_node(3, 16_000), none(NoVerdict::Expired));
    let renewed = reader.zone.alive(3, &[1, 2], 2, CUT);
    reader.report(Millis(16_500), vec![renewed]);
    assert_eq!(reader.of_node(3, 31_499), alive(CUT));
    assert_eq!(reader.of_node(3, 31_500), none(NoVerdict::ZoneSilent));
}

#[test]
fn the_age_of_the_contacts_shortens_the_life_of_a_verdict() {
    let mut reader = Reader::of(3);
    let mut votes: Vec<_> = [1, 2]
        .map(|voter| reader.zone.vote(voter, 3, 1, Answer::Yes))
        .into();
    votes[1].ballot.contact_age = 4_000;
    let evidence = vec![reader.zone.sign(1, votes[0]), reader.zone.sign(2, votes[1])];
    let mut verdict = reader.zone.alive(3, &[], 1, CUT);
    (verdict.evidence, verdict.round_age_ms) = (evidence, Some(1_000));
    reader.report(Millis(1_000), vec![verdict]);
    assert!(matches!(reader.of_node(3, 10_999), Verdict::Alive { .. }));
    assert_eq!(reader.of_node(3, 11_000), none(NoVerdict::Expired));
}

#[test]
fn death_stays_until_evidence_of_life() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death.clone()]);
    // Silence of the zone, "no majority" and nonsense are no evidence of life.
    assert_eq!(reader.of_node(3, 500_000), dead(4_000));
    reader.report(Millis(500_000), vec![Fixture::undecided(3)]);
    assert_eq!(reader.of_node(3, 500_000), dead(4_000));
    let minority = reader.zone.alive(3, &[1], 2, CUT);
    reader.report(Millis(500_100), vec![minority]);
    assert_eq!(reader.of_node(3, 500_100), dead(4_000));
    let life = reader.zone.alive(3, &[1, 2], 3, CUT);
    reader.report(Millis(500_200), vec![life]);
    assert_eq!(reader.of_node(3, 500_200), alive(CUT));
    // And the old death cannot be told again.
    assert_eq!(reader.report(Millis(500_300), vec![death]).len(), 1);
    assert_eq!(reader.of_node(3, 500_300), alive(CUT));
}

#[test]
fn a_node_that_an_advancing_report_no_longer_lists_is_well() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death]);
    reader.report(Millis(6_000), vec![]);
    assert_eq!(reader.of_node(3, 6_000), none(NoVerdict::NotListed));
}

#[test]
fn a_death_confirmed_again_gets_the_time_of_the_later_round() {
    let mut reader = Reader::of(3);
    let one = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![one.clone()]);
    reader.report(Millis(6_000), vec![one]);
    assert_eq!(reader.of_node(3, 6_000), dead(4_000));
    let again = reader.zone.dead(3, &[1, 2], 2);
    reader.report(Millis(20_000), vec![again]);
    assert_eq!(reader.of_node(3, 20_000), dead(19_000));
}

#[test]
fn what_was_written_before_the_reader_began_is_void_until_somebody_reports() {
    let mut zone = Fixture::new(3);
    let death = zone.dead(3, &[1, 2], 1);
    let status = zone.report(vec![death.clone()]);
    let mut book = Book::new();
    book.heartbeat(Millis(10), "shore");
    book.observe(Millis(10), "shore", &zone.spec(), &status);
    book.observe(Millis(20), "shore", &zone.spec(), &status);
    let verdict = |book: &Book, at| book.verdict("uid-3", Millis(at));
    assert_eq!(verdict(&book, 30), none(NoVerdict::ZoneSilent));
    assert!(!book.reports("shore", Millis(30)));
    // Somebody renews the Lease: the report stands, and its age is unknown.
    book.heartbeat(Millis(1_010), "shore");
    assert!(book.reports("shore", Millis(1_010)));
    assert_eq!(verdict(&book, 1_010), dead(0));
    let again = zone.dead(3, &[1, 2], 2);
    book.observe(Millis(9_000), "shore", &zone.spec(), &zone.report(vec![again]));
    assert_eq!(verdict(&book, 9_000), dead(8_000));
}

#[test]
fn evidence_of_life_from_before_the_reader_began_is_worth_nothing() {
    let mut zone = Fixture::new(3);
    let life = zone.alive(3, &[1, 2], 1, CUT);
    let mut book = Book::new();
    book.observe(Millis(10), "shore", &zone.spec(), &zone.report(vec![life]));
    book.heartbeat(Millis(10), "shore");
    book.heartbeat(Millis(1_000), "shore");
    assert_eq!(book.verdict("uid-3", Millis(1_000)), none(NoVerdict::Expired));
    let renewed = zone.alive(3, &[1, 2], 2, CUT);
    book.observe(Millis(5_000), "shore", &zone.spec(), &zone.report(vec![renewed]));
    assert_eq!(book.verdict("uid-3", Millis(5_000)), alive(CUT));
}

#[test]
fn a_zone_without_heartbeats_is_silent_after_15_seconds() {
    let mut reader = Reader::of(3);
    reader.book.heartbeat(Millis(100), "shore");
    reader.book.heartbeat(Millis(1_000), "shore");
    assert_eq!(reader.of_node(3, 15_999), none(NoVerdict::NotListed));
    assert_eq!(reader.of_node(3, 16_000), none(NoVerdict::ZoneSilent));
    reader.book.heartbeat(Millis(17_000), "shore");
    assert_eq!(reader.of_node(3, 17_000), none(NoVerdict::NotListed));
}

#[test]
fn reports_that_do_not_grow_are_ignored() {
    let mut reader = Reader::of(3);
    let old = reader.zone.report(vec![]);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death]);
    reader
        .book
        .observe(Millis(6_000), "shore", &reader.zone.spec(), &old);
    assert_eq!(reader.of_node(3, 6_000), dead(4_000));
}

#[test]
fn a_voter_that_is_cut_off_keeps_its_vote_with_the_roster_it_has() {
    let mut reader = Reader::of(3);
    // Nodes 1 and 3 are cut off from the cloud while two nodes join: they never learn of it.
    let old: Vec<_> = [1, 3]
        .map(|voter| reader.zone.vote(voter, 3, 1, Answer::Yes))
        .into();
    reader.zone.grow();
    reader.zone.grow();
    reader.report(Millis(10_000), vec![]);
    let new = reader.zone.vote(2, 3, 1, Answer::Yes);
    let evidence = vec![
        reader.zone.sign(1, old[0]),
        reader.zone.sign(3, old[1]),
        reader.zone.sign(2, new),
    ];
    let mut verdict = reader.zone.alive(3, &[], 1, CUT);
    verdict.evidence.clone_from(&evidence);
    assert_eq!(reader.report(Millis(60_000), vec![verdict]), vec![]);
    assert!(matches!(reader.of_node(3, 60_000), Verdict::Alive { .. }));
    // Two of five are no majority, whatever roster they know.
    let mut minority = reader.zone.alive(3, &[], 1, CUT);
    minority.evidence = evidence[..2].to_vec();
    assert_eq!(reader.report(Millis(90_000), vec![minority]).len(), 1);
    assert_eq!(reader.of_node(3, 90_000), none(NoVerdict::Refused));
}

#[test]
fn a_vote_for_a_roster_that_the_reader_has_not_seen_does_not_count() {
    let mut reader = Reader::of(3);
    reader.zone.reissue();
    let ahead = reader.zone.dead(3, &[1, 2], 1);
    let mut status = reader.zone.report(vec![ahead]);
    status.sequence = 3;
    let known = Fixture::new(3).spec();
    assert!(
        !reader
            .book
            .observe(Millis(9_000), "shore", &known, &status)
            .is_empty()
    );
    assert!(!matches!(reader.of_node(3, 9_000), Verdict::Dead { .. }));
}

#[test]
fn the_highest_of_all_sequences_does_not_silence_the_zone() {
    let mut reader = Reader::of(3);
    let mut last = reader.zone.report(vec![]);
    last.sequence = i64::MAX;
    reader
        .book
        .observe(Millis(5_000), "shore", &reader.zone.spec(), &last);
    let death = reader.zone.dead(3, &[1, 2], 1);
    let mut next = reader.zone.report(vec![death]);
    next.sequence = i64::MIN;
    reader
        .book
        .observe(Millis(6_000), "shore", &reader.zone.spec(), &next);
    assert_eq!(reader.of_node(3, 6_000), dead(5_000));
}

#[rstest]
#[case::none(None)]
#[case::negative(Some(-1))]
fn evidence_of_unknown_age_is_as_old_as_can_be(#[case] age: Option<i64>) {
    let mut reader = Reader::of(3);
    let mut death = reader.zone.dead(3, &[1, 2], 1);
    let mut life = reader.zone.alive(2, &[1, 3], 1, CUT);
    (death.round_age_ms, life.round_age_ms) = (age, age);
    reader.report(Millis(9_000), vec![death, life]);
    assert_eq!(reader.of_node(3, 9_000), dead(0));
    assert_eq!(reader.of_node(2, 9_000), none(NoVerdict::Expired));
}

#[test]
fn statements_of_another_round_neither_freshen_nor_colour_a_verdict() {
    let mut reader = Reader::of(5);
    let mut verdict = reader.zone.alive(5, &[], 1, CUT);
    for voter in 1..=3 {
        let mut vote = reader.zone.vote(voter, 5, 1, Answer::Yes);
        (vote.ballot.facts, vote.ballot.contact_age) = (CUT, 4_000);
        verdict.evidence.push(reader.zone.sign(voter, vote));
    }
    let other = Facts {
        kubelet: Health::Failing,
        ..CUT
    };
    let stray = reader.zone.alive(5, &[4, 5], 2, other);
    verdict.evidence.extend(stray.evidence.clone());
    assert_eq!(reader.report(Millis(1_000), vec![verdict]), vec![]);
    assert_eq!(reader.of_node(5, 11_999), alive(CUT));
    assert_eq!(reader.of_node(5, 12_000), none(NoVerdict::Expired));
    // And they are not used up.
    let mut round = reader.zone.alive(5, &[1], 2, other);
    round.evidence.extend(stray.evidence);
    assert_eq!(reader.report(Millis(13_000), vec![round]), vec![]);
}

#[test]
fn a_voter_with_a_new_key_counts_from_where_it_likes() {
    let mut reader = Reader::of(3);
    for round in 1..=9 {
        let death = reader.zone.dead(3, &[1, 2], round);
        reader.report(Millis(u64::from(round) * 1_000), vec![death]);
    }
    // Node 1 is set up anew: another key, and its clock has stopped, so its sequences are small.
    let mut anew = Fixture::new(3);
    anew.rekey(1, 101);
    anew.reissue();
    let small = anew.vote(1, 3, 20, Answer::No);
    let small = anew.sign(1, small);
    let high = anew.vote(2, 3, 20, Answer::No);
    let high = reader.zone.sign(2, high);
    let mut death = anew.dead(3, &[], 20);
    death.evidence = vec![small, high];
    let mut status = anew.report(vec![death]);
    status.sequence = 100;
    let refused = reader
        .book
        .observe(Millis(50_000), "shore", &anew.spec(), &status);
    assert_eq!(refused, vec![]);
    assert_eq!(reader.of_node(3, 50_000), dead(49_000));
}

#[test]
fn newcomers_do_not_convict_founders_while_the_roster_settles() {
    let mut reader = Reader::of(3);
    for _ in 0..4 {
        reader.zone.grow();
    }
    let unjust = reader.zone.dead(1, &[4, 5, 6, 7], 1);
    reader.report(Millis(10_000), vec![unjust]);
    assert_eq!(reader.of_node(1, 10_000), none(NoVerdict::Refused));
}

#[test]
fn another_roster_of_the_same_version_is_refused() {
    let mut reader = Reader::of(3);
    let mut spec = reader.zone.spec();
    spec.members.pop();
    let status = reader.zone.report(vec![]);
    let refused = reader.book.observe(Millis(9), "shore", &spec, &status);
    assert_eq!(refused, vec![("roster".to_owned(), Refusal::TwoRosters(1))]);
    assert_eq!(reader.of_node(3, 9), none(NoVerdict::NotListed));
}

#[test]
fn voters_disagreeing_on_facts_are_decided_by_most() {
    let mut reader = Reader::of(5);
    let mut evidence = Vec::new();
    for (voter, facts) in [
        (1, CUT),
        (2, CUT),
        (
            3,
            Facts {
                cloud: Link::Up,
                kubelet: Health::Failing,
                ..CUT
            },
        ),
    ] {
        let mut vote = reader.zone.vote(voter, 5, 1, Answer::Yes);
        vote.ballot.facts = facts;
        evidence.push(reader.zone.sign(voter, vote));
    }
    let mut verdict = reader.zone.alive(5, &[], 1, CUT);
    verdict.evidence = evidence;
    reader.report(Millis(9), vec![verdict]);
    assert_eq!(reader.of_node(5, 9), alive(CUT));
}

#[test]
fn one_early_publication_of_a_genuine_statement_does_not_spoil_it() {
    let mut reader = Reader::of(5);
    let whole = reader.zone.dead(5, &[1, 2, 3], 1);
    let mut part = whole.clone();
    part.evidence.truncate(1);
    assert_eq!(reader.report(Millis(5_000), vec![part]).len(), 1);
    assert_eq!(reader.report(Millis(6_000), vec![whole]), vec![]);
    assert_eq!(reader.of_node(5, 6_000), dead(5_000));
}

#[test]
fn a_forgotten_zone_begins_anew() {
    let mut reader = Reader::of(3);
    reader.book.forget("shore");
    assert_eq!(reader.of_node(3, 5), none(NoVerdict::NotAMember));
}

#[test]
fn evidence_is_a_signed_datagram() {
    let mut zone = Fixture::new(3);
    let text = zone.dead(3, &[1], 1).evidence.remove(0);
    let bytes = wire::from_evidence(&text).unwrap();
    let message = Frame::parse(&bytes).unwrap().open(zone.key(1).public()).unwrap();
    assert_eq!(message.header.from, Fixture::id(1));
}

#[test]
fn one_report_that_leaves_a_death_out_does_not_use_up_its_evidence() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death.clone()]);
    reader.report(Millis(6_000), vec![]);
    assert_eq!(reader.of_node(3, 6_000), none(NoVerdict::NotListed));
    assert_eq!(reader.report(Millis(7_000), vec![death.clone()]), vec![]);
    // With the age it had: nothing makes it younger.
    assert_eq!(reader.of_node(3, 7_000), dead(4_000));
    // After evidence of life it is used up.
    let life = reader.zone.alive(3, &[1, 2], 2, CUT);
    reader.report(Millis(8_000), vec![life]);
    reader.report(Millis(9_000), vec![]);
    assert_eq!(reader.report(Millis(10_000), vec![death]).len(), 1);
    assert_eq!(reader.of_node(3, 10_000), none(NoVerdict::Refused));
}

#[test]
fn no_majority_and_nonsense_do_not_bring_back_what_was_acquitted() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death]);
    reader.report(Millis(6_000), vec![]);
    reader.report(Millis(7_000), vec![Fixture::undecided(3)]);
    assert_eq!(reader.of_node(3, 7_000), none(NoVerdict::NoMajority));
    let death = reader.zone.dead(2, &[1, 3], 1);
    reader.report(Millis(8_000), vec![death]);
    reader.report(Millis(9_000), vec![]);
    let minority = reader.zone.dead(2, &[1], 2);
    assert_eq!(reader.report(Millis(10_000), vec![minority]).len(), 1);
    assert_eq!(reader.of_node(2, 10_000), none(NoVerdict::Refused));
}
