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
        for at in [0, 1] {
            reader.book.heartbeat(Millis(at), "shore", "node-1");
        }
        reader
    }

    fn report(&mut self, now: Millis, nodes: Vec<NodeVerdict>) -> Vec<(String, Refusal)> {
        let status = self.zone.report(nodes);
        self.book.observe(now, "shore", &self.zone.spec(), &status)
    }

    fn of_node(&self, node: usize) -> Verdict {
        self.book.verdict(&Fixture::uid(node))
    }

    /// What is said of a node that is vouched for at `at`, and until when.
    fn vouched(&self, node: usize) -> Option<(Facts, u64)> {
        match self.of_node(node) {
            Verdict::Alive(alive) => {
                let facts = Facts {
                    cloud: alive.cloud,
                    kubelet: alive.kubelet,
                    runtime: alive.runtime,
                };
                Some((facts, alive.until.0))
            }
            _ => None,
        }
    }

    /// When the round that found a node dead was asked for.
    fn dead(&self, node: usize) -> Option<u64> {
        match self.of_node(node) {
            Verdict::Dead(death) => Some(death.requested.0),
            _ => None,
        }
    }
}

fn none(reason: NoVerdict) -> Verdict {
    Verdict::None(reason)
}

#[test]
fn a_death_signed_by_a_majority_is_believed_with_its_age() {
    let mut reader = Reader::of(5);
    let verdict = reader.zone.dead(5, &[1, 2, 3], 1);
    assert_eq!(reader.report(Millis(9_000), vec![verdict]), vec![]);
    assert_eq!(reader.dead(5), Some(8_000));
    assert_eq!(reader.of_node(4), none(NoVerdict::NotListed));
    assert_eq!(reader.book.verdict("uid-77"), none(NoVerdict::NotAMember));
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
    assert_eq!(reader.of_node(5), none(NoVerdict::Refused));
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
    assert_eq!(reader.of_node(3), none(NoVerdict::Refused));
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
    assert_eq!(reader.book.verdict(&uid), none(NoVerdict::Refused));
}

#[derive(Clone, Copy)]
enum VerdictKindCase {
    NoAsAlive,
    YesAsDead,
    OtherNode,
    Nonsense,
}

#[test]
fn evidence_of_life_is_worth_15_s_unless_the_contacts_are_renewed() {
    let mut reader = Reader::of(3);
    let first = reader.zone.alive(3, &[1, 2], 1, CUT);
    reader.report(Millis(1_000), vec![first.clone()]);
    assert_eq!(reader.vouched(3), Some((CUT, 16_000)));
    // The same statements again, and heartbeats of the Lease, renew nothing.
    reader.report(Millis(10_000), vec![first.clone()]);
    for at in 10..17 {
        reader.book.heartbeat(Millis(at * 1000), "shore", "node-1");
    }
    assert_eq!(reader.vouched(3), Some((CUT, 16_000)));
    let renewed = reader.zone.alive(3, &[1, 2], 2, CUT);
    reader.report(Millis(16_500), vec![renewed]);
    assert_eq!(reader.vouched(3), Some((CUT, 31_500)));
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
    assert_eq!(reader.vouched(3).map(|(_, until)| until), Some(11_000));
}

/// Hazard 36: it is signed, so that a hoarded round cannot confirm a later death.
#[test]
fn a_death_tells_for_how_long_a_majority_heard_nothing() {
    let mut reader = Reader::of(5);
    let mut evidence = Vec::new();
    for (voter, age) in [(1, 9_000), (2, 4_000), (3, 7_000), (4, 20_000)] {
        let mut vote = reader.zone.vote(voter, 5, 1, Answer::No);
        vote.ballot.contact_age = age;
        evidence.push(reader.zone.sign(voter, vote));
    }
    let mut verdict = reader.zone.dead(5, &[], 1);
    verdict.evidence = evidence;
    assert_eq!(reader.report(Millis(9_000), vec![verdict]), vec![]);
    let Verdict::Dead(death) = reader.of_node(5) else {
        panic!("it is dead");
    };
    assert_eq!(
        death.silence_ms, 7_000,
        "three of five heard nothing for at least so long"
    );
    assert_eq!((death.requested, death.received), (Millis(8_000), Millis(9_000)));
}

#[test]
fn death_stays_until_evidence_of_life() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death.clone()]);
    // Silence of the zone, "no majority" and nonsense are no evidence of life.
    reader.report(Millis(500_000), vec![Fixture::undecided(3)]);
    assert_eq!(reader.dead(3), Some(4_000));
    let minority = reader.zone.alive(3, &[1], 2, CUT);
    reader.report(Millis(500_100), vec![minority]);
    assert_eq!(reader.dead(3), Some(4_000));
    let life = reader.zone.alive(3, &[1, 2], 3, CUT);
    reader.report(Millis(500_200), vec![life]);
    assert_eq!(reader.vouched(3), Some((CUT, 515_200)));
    // And the old death cannot be told again.
    assert_eq!(reader.report(Millis(500_300), vec![death]).len(), 1);
    assert_eq!(reader.vouched(3), Some((CUT, 515_200)));
}

/// Hazard 40: silence is not a statement.
#[test]
fn a_report_that_leaves_a_node_out_says_nothing_about_it() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    let life = reader.zone.alive(2, &[1, 3], 1, CUT);
    reader.report(Millis(5_000), vec![death, life]);
    reader.report(Millis(6_000), vec![]);
    assert_eq!(reader.dead(3), Some(4_000));
    assert_eq!(reader.vouched(2), Some((CUT, 20_000)));
}

/// Hazard 40: reporter, roster version, sequence and summary are signed by nobody.
#[test]
fn what_nobody_signed_decides_nothing() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    let mut status = reader.zone.report(vec![death]);
    status.reporter = "a stranger".into();
    (status.roster_version, status.epoch, status.sequence) = (77, "0000".into(), i64::MIN);
    status.members = -1;
    status.summary = "everybody is well".into();
    let refused = reader
        .book
        .observe(Millis(5_000), "shore", &reader.zone.spec(), &status);
    assert_eq!(refused, vec![]);
    assert_eq!(reader.dead(3), Some(4_000));
}

/// Hazard 13.
#[test]
fn in_a_roster_of_two_the_peers_no_is_one_vote_short() {
    let mut reader = Reader::of(2);
    let mut undecided = Fixture::undecided(2);
    undecided.round_age_ms = Some(1_000);
    let no = reader.zone.vote(1, 2, 1, Answer::No);
    undecided.evidence = vec![reader.zone.sign(1, no)];
    assert_eq!(reader.report(Millis(5_000), vec![undecided]), vec![]);
    let Verdict::OneShort(death) = reader.of_node(2) else {
        panic!("one short: {:?}", reader.of_node(2));
    };
    assert_eq!(death.requested, Millis(4_000));
    // In a larger zone one voice is nothing.
    let mut reader = Reader::of(3);
    let mut undecided = Fixture::undecided(2);
    let no = reader.zone.vote(1, 2, 1, Answer::No);
    undecided.evidence = vec![reader.zone.sign(1, no)];
    reader.report(Millis(5_000), vec![undecided]);
    assert_eq!(reader.of_node(2), none(NoVerdict::NoMajority));
}

#[test]
fn a_storm_is_counted_from_signed_deaths_of_the_last_minute() {
    let mut reader = Reader::of(5);
    let first = reader.zone.dead(5, &[1, 2, 3], 1);
    reader.report(Millis(10_000), vec![first]);
    assert!(
        !is_storm(&[reader.book.deaths("shore", Millis(10_000))]),
        "one is no storm"
    );
    let again = reader.zone.dead(5, &[1, 2, 3], 2);
    let second = reader.zone.dead(4, &[1, 2, 3], 3);
    reader.report(Millis(60_000), vec![again, second]);
    assert!(is_storm(&[reader.book.deaths("shore", Millis(69_999))]));
    assert!(
        !is_storm(&[reader.book.deaths("shore", Millis(70_000))]),
        "the first died a minute ago"
    );
}

/// Storms are those of the zone; that cells convict in parallel is what a split looks like.
#[rstest]
#[case(&[], false, false)]
#[case(&[(1, 3)], false, false)]
#[case(&[(2, 7)], true, false)]
#[case(&[(16, 64), (0, 64)], false, false)]
#[case(&[(40, 64), (0, 64)], true, false)]
#[case(&[(16, 64), (16, 64)], false, false)]
#[case(&[(17, 64), (16, 64)], true, true)]
#[case(&[(33, 64), (1, 64)], true, true)]
// Only cells that convict count as sides of a split; the zone's size counts for the storm alone.
#[case(&[(20, 64), (20, 64), (0, 64), (0, 64)], false, true)]
fn deaths_add_up_over_the_cells_of_a_zone(
    #[case] cells: &[(usize, usize)],
    #[case] storm: bool,
    #[case] split: bool,
) {
    let cells: Vec<Deaths> = cells
        .iter()
        .map(|(recent, members)| Deaths {
            recent: *recent,
            members: *members,
        })
        .collect();
    assert_eq!((is_storm(&cells), may_be_split(&cells)), (storm, split));
}

/// A member moves by two writes: it stands in its new cell first.
#[test]
fn of_two_cells_that_hold_a_node_the_one_with_evidence_speaks() {
    let mut reader = Reader::of(3);
    let dead = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![dead]);
    let other = Fixture::new(3);
    for cell in ["a", "z"] {
        reader
            .book
            .observe(Millis(6_000), cell, &other.spec(), &ZoneHealthStatus::default());
    }
    assert!(matches!(reader.book.verdict("uid-3"), Verdict::Dead(_)));
    reader.book.forget("shore");
    assert!(matches!(reader.book.verdict("uid-3"), Verdict::None(_)));
}

#[test]
fn a_death_confirmed_again_gets_the_time_of_the_later_round() {
    let mut reader = Reader::of(3);
    let one = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![one.clone()]);
    reader.report(Millis(6_000), vec![one]);
    assert_eq!(reader.dead(3), Some(4_000));
    let again = reader.zone.dead(3, &[1, 2], 2);
    reader.report(Millis(20_000), vec![again]);
    assert_eq!(reader.dead(3), Some(19_000));
}

#[test]
fn what_was_written_before_the_reader_began_is_void_until_somebody_reports() {
    let mut zone = Fixture::new(3);
    let death = zone.dead(3, &[1, 2], 1);
    let status = zone.report(vec![death.clone()]);
    let mut book = Book::new();
    book.observe(Millis(10), "shore", &zone.spec(), &status);
    book.heartbeat(Millis(10), "shore", "node-1");
    book.observe(Millis(20), "shore", &zone.spec(), &status);
    assert_eq!(book.verdict("uid-3"), none(NoVerdict::Void));
    assert_eq!(book.advanced("shore"), None);
    // A holder that is no member proves nothing.
    book.heartbeat(Millis(900), "shore", "a stranger");
    assert_eq!(book.advanced("shore"), None);
    // Somebody renews the Lease: the report stands, and its age is unknown.
    book.heartbeat(Millis(1_010), "shore", "node-1");
    assert_eq!(book.advanced("shore"), Some(Millis(1_010)));
    let requested = |book: &Book| match book.verdict("uid-3") {
        Verdict::Dead(death) => Some(death.requested),
        _ => None,
    };
    assert_eq!(requested(&book), Some(Millis(0)));
    let again = zone.dead(3, &[1, 2], 2);
    book.observe(Millis(9_000), "shore", &zone.spec(), &zone.report(vec![again]));
    assert_eq!(requested(&book), Some(Millis(8_000)));
}

#[test]
fn evidence_of_life_from_before_the_reader_began_is_worth_nothing() {
    let mut zone = Fixture::new(3);
    let life = zone.alive(3, &[1, 2], 1, CUT);
    let mut book = Book::new();
    book.observe(Millis(10), "shore", &zone.spec(), &zone.report(vec![life]));
    book.heartbeat(Millis(10), "shore", "node-1");
    book.heartbeat(Millis(1_000), "shore", "node-1");
    let until = |book: &Book| match book.verdict("uid-3") {
        Verdict::Alive(alive) => Some(alive.until),
        _ => None,
    };
    assert_eq!(until(&book), Some(Millis(10)));
    let renewed = zone.alive(3, &[1, 2], 2, CUT);
    book.observe(Millis(5_000), "shore", &zone.spec(), &zone.report(vec![renewed]));
    assert_eq!(until(&book), Some(Millis(20_000)));
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
    assert!(reader.vouched(3).is_some());
    // Two of five are no majority, whatever roster they know.
    let mut minority = reader.zone.alive(3, &[], 1, CUT);
    minority.evidence = evidence[..2].to_vec();
    assert_eq!(reader.report(Millis(90_000), vec![minority]).len(), 1);
    assert_eq!(
        reader.vouched(3).map(|(_, until)| until),
        Some(75_000),
        "as before"
    );
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
    assert_eq!(reader.dead(3), None);
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
    assert_eq!(reader.dead(3), Some(0));
    assert_eq!(reader.vouched(2), Some((CUT, 9_000)));
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
    assert_eq!(reader.vouched(5), Some((CUT, 12_000)));
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
    assert_eq!(reader.dead(3), Some(49_000));
}

#[test]
fn newcomers_do_not_convict_founders_while_the_roster_settles() {
    let mut reader = Reader::of(3);
    for _ in 0..4 {
        reader.zone.grow();
    }
    let unjust = reader.zone.dead(1, &[4, 5, 6, 7], 1);
    reader.report(Millis(10_000), vec![unjust]);
    assert_eq!(reader.of_node(1), none(NoVerdict::Refused));
}

#[test]
fn another_roster_of_the_same_version_is_refused() {
    let mut reader = Reader::of(3);
    let mut spec = reader.zone.spec();
    spec.members.pop();
    let status = reader.zone.report(vec![]);
    let refused = reader.book.observe(Millis(9), "shore", &spec, &status);
    assert_eq!(refused, vec![("roster".to_owned(), Refusal::TwoRosters(1))]);
    assert_eq!(reader.of_node(3), none(NoVerdict::NotListed));
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
    assert_eq!(reader.vouched(5).map(|(facts, _)| facts), Some(CUT));
}

#[test]
fn one_early_publication_of_a_genuine_statement_does_not_spoil_it() {
    let mut reader = Reader::of(5);
    let whole = reader.zone.dead(5, &[1, 2, 3], 1);
    let mut part = whole.clone();
    part.evidence.truncate(1);
    assert_eq!(reader.report(Millis(5_000), vec![part]).len(), 1);
    assert_eq!(reader.report(Millis(6_000), vec![whole]), vec![]);
    assert_eq!(reader.dead(5), Some(5_000));
}

#[test]
fn a_forgotten_zone_begins_anew() {
    let mut reader = Reader::of(3);
    reader.book.forget("shore");
    assert_eq!(reader.of_node(3), none(NoVerdict::NotAMember));
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
fn evidence_of_death_is_used_up_by_evidence_of_life() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death.clone()]);
    reader.report(Millis(6_000), vec![]);
    assert_eq!(reader.report(Millis(7_000), vec![death.clone()]), vec![]);
    // With the age it had: nothing makes it younger.
    assert_eq!(reader.dead(3), Some(4_000));
    let life = reader.zone.alive(3, &[1, 2], 2, CUT);
    reader.report(Millis(8_000), vec![life]);
    reader.report(Millis(9_000), vec![]);
    assert_eq!(reader.report(Millis(10_000), vec![death]).len(), 1);
    assert_eq!(reader.dead(3), None);
}
