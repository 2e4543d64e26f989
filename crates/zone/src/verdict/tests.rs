use super::*;
use crate::fixture::Fixture;
use crate::vote::Vote;
use crate::wire::{
    self, Answer, Body, Challenge, ConfirmRequest, Facts, Frame, Heartbeat, Nonce, Renewal, WireError,
};
use evenkeel_api::zone::{SignedRound, VerdictKind};
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
        let issued = reader.zone.issued(Millis(0));
        reader.book.challenges(Millis(0), "shore", &[issued]);
        reader.report(Millis(0), vec![]);
        for at in [0, 1] {
            reader.book.heartbeat(Millis(at), "shore", "node-1");
        }
        reader
    }

    fn report(&mut self, now: Millis, rounds: Vec<SignedRound>) -> Vec<Refusal> {
        self.report_by("node-1", now, rounds)
    }

    fn report_by(&mut self, reporter: &str, now: Millis, rounds: Vec<SignedRound>) -> Vec<Refusal> {
        let report = self.zone.report(rounds);
        let mut refused = self.book.roster(now, "shore", self.zone.roster());
        refused.extend(self.book.report(now, "shore", reporter, &report));
        refused
    }

    /// A round about one node in which each voter says something of its own.
    fn votes(&mut self, node: usize, round: u8, votes: &[Vote]) -> SignedRound {
        let request = self.zone.request(&[node], round);
        let number = |vote: &Vote| (1..=9).find(|i| Fixture::id(*i) == vote.voter).unwrap();
        let votes: Vec<_> = votes.iter().map(|vote| (number(vote), vec![*vote])).collect();
        self.zone.round(&request, 1_000, &votes)
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
        [Refusal::NoMajority { .. }]
    ));
    assert_eq!(reader.of_node(5), none(NoVerdict::Refused));
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
fn newcomers_do_not_convict_founders_while_the_roster_settles() {
    let mut reader = Reader::of(3);
    for _ in 0..4 {
        reader.zone.grow();
    }
    reader.zone.settled_voters = vec![1, 2, 3];
    let unjust = reader.zone.dead(1, &[4, 5, 6, 7], 1);
    reader.report(Millis(10_000), vec![unjust]);
    assert_eq!(reader.of_node(1), none(NoVerdict::Refused));
    // The same members, once they are settled: what was published counts.
    reader.zone.settled_voters.clear();
    reader.zone.reissue();
    let settled = reader.zone.roster();
    assert_eq!(reader.book.roster(Millis(11_000), "shore", settled), vec![]);
    assert!(matches!(reader.of_node(1), Verdict::Dead(_)));
}

#[test]
fn a_forgotten_zone_begins_anew() {
    let mut reader = Reader::of(3);
    reader.book.forget("shore");
    assert_eq!(reader.of_node(3), none(NoVerdict::NotAMember));
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
    assert_eq!(reader.report(Millis(10_000), vec![death]), vec![]);
    assert_eq!(reader.dead(3), None);
}

#[test]
fn a_statement_signed_with_another_key_does_not_count() {
    let mut reader = Reader::of(3);
    let request = reader.zone.request(&[3], 1);
    let (own, other) = (
        reader.zone.vote(1, 3, Answer::No),
        reader.zone.vote(2, 3, Answer::No),
    );
    let mut round = reader
        .zone
        .round(&request, 0, &[(1, vec![own]), (2, vec![other])]);
    // Node 2's ballot with the signature of node 1.
    let mut stranger = Fixture::new(3);
    stranger.rekey(2, 77);
    round.ballots[1] = stranger.sign(2, &request, &[other]);
    let refused = reader.report(Millis(9), vec![round]);
    assert!(
        refused[0].to_string().contains("signature is not the sender's"),
        "{refused:?}"
    );
    assert_eq!(reader.of_node(3), none(NoVerdict::Refused));
}

/// A ballot is bound to the digest of the request: the reporter cannot show it with other suspects, in
/// another order, under another roster or as another round.
#[rstest]
#[case::other_suspect(|request: &mut ConfirmRequest| request.suspects[0].member = Fixture::id(2))]
#[case::one_more(|request: &mut ConfirmRequest| request.suspects.push(request.suspects[0]))]
#[case::another_renewal(|request: &mut ConfirmRequest| request.suspects[0].renewal = Some(Renewal(101)))]
#[case::another_round(|request: &mut ConfirmRequest| request.round = Nonce([9; 16]))]
#[case::another_roster(|request: &mut ConfirmRequest| request.roster.version = 9)]
fn a_reporter_cannot_make_ballots_answer_another_request(#[case] change: fn(&mut ConfirmRequest)) {
    let mut reader = Reader::of(3);
    let mut round = reader.zone.dead(3, &[1, 2], 1);
    let mut request = reader.zone.request(&[3], 1);
    change(&mut request);
    round.request = wire::to_evidence(&request.to_bytes());
    assert_eq!(
        reader.report(Millis(9), vec![round]).len(),
        request.suspects.len()
    );
    for node in 1..=3 {
        assert!(matches!(reader.of_node(node), Verdict::None(_)), "node {node}");
    }
}

#[rstest]
#[case::not_base64("%%%")]
#[case::too_short("AAAA")]
fn what_cannot_be_read_is_refused_and_changes_nothing(#[case] text: &str) {
    let mut reader = Reader::of(3);
    let mut round = reader.zone.dead(3, &[1, 2], 1);
    let mut unread = round.clone();
    text.clone_into(&mut unread.request);
    round.ballots = vec![text.into(), "A".repeat(9_999)];
    let refused = reader.report(Millis(9), vec![unread, round]);
    assert!(
        matches!(
            refused[..],
            [Refusal::Request(_), Refusal::NoMajority { refused: 2, .. }]
        ),
        "{refused:?}"
    );
    assert_eq!(reader.of_node(3), none(NoVerdict::Refused));
}

/// Hazard 41: genuine ballots that were kept back are not new because they are shown late.
#[test]
fn ballots_count_as_long_as_their_challenge_is_the_current_one_or_the_one_before() {
    let [first, second, third] = [1, 2, 3].map(|byte| Challenge([byte; 16]));
    let issued = |challenges: &[Challenge]| -> Vec<Issued> {
        let drawn = Some(Millis(0));
        challenges
            .iter()
            .map(|it| Issued {
                challenge: *it,
                drawn,
            })
            .collect()
    };
    let verdicts = [
        (vec![first], true),
        (vec![second, first], true),
        (vec![third, second], false),
        (vec![], false),
    ];
    for (challenges, counts) in verdicts {
        let mut reader = Reader::of(5);
        reader.zone.challenge = first;
        let death = reader.zone.dead(5, &[1, 2, 3], 1);
        reader.book.challenges(Millis(0), "shore", &issued(&challenges));
        assert_eq!(reader.report(Millis(9_000), vec![death]), vec![]);
        assert_eq!(reader.dead(5).is_some(), counts, "{challenges:?}");
        if !counts {
            assert_eq!(reader.of_node(5), none(NoVerdict::OtherChallenge));
        }
    }
}

/// The watches of challenges and of reports deliver in any order.
#[test]
fn ballots_that_sign_a_challenge_which_is_still_on_its_way_count_when_it_comes() {
    let mut reader = Reader::of(5);
    let former = reader.zone.challenge;
    reader.zone.challenge = Challenge([8; 16]);
    let death = reader.zone.dead(5, &[1, 2, 3], 1);
    reader.report(Millis(9_000), vec![death]);
    assert_eq!(reader.of_node(5), none(NoVerdict::OtherChallenge));
    let issued = reader.zone.issued(Millis(7_500));
    let before = Issued {
        challenge: former,
        drawn: None,
    };
    let refused = reader.book.challenges(Millis(9_500), "shore", &[issued, before]);
    assert_eq!(refused, vec![]);
    let Verdict::Dead(death) = reader.of_node(5) else {
        panic!("{:?}", reader.of_node(5));
    };
    assert_eq!(
        (death.challenged, death.requested, death.received),
        (Some(Millis(7_500)), Millis(8_000), Millis(9_500))
    );
    assert_eq!(Some(death.renewal), reader.zone.renewal);
    // A verdict stands when its challenge is replaced; only what is shown later has to sign a new one.
    reader.book.challenges(Millis(20_000), "shore", &[]);
    assert!(reader.dead(5).is_some());
}

/// What ballots sign, drawn by another process at a time that this reader does not know.
fn of_another_leader(zone: &Fixture) -> Issued {
    Issued {
        drawn: None,
        ..zone.issued(Millis(0))
    }
}

/// Ballots are younger than the challenge that they sign. So a reader that has just begun, and drawn a
/// challenge, need not wait for a second report.
#[test]
fn a_first_report_is_no_older_than_a_challenge_of_the_readers_own() {
    let (mut book, mut zone) = (Book::new(), Fixture::new(3));
    book.roster(Millis(0), "shore", zone.roster());
    book.challenges(Millis(5_000), "shore", &[zone.issued(Millis(5_000))]);
    let requested = |book: &Book| match book.verdict(&Fixture::uid(3)) {
        Verdict::Dead(death) => Some(death.requested),
        _ => None,
    };
    let mut round = zone.dead(3, &[1, 2], 1);
    book.report(Millis(9_000), "shore", "node-1", &zone.report(vec![round]));
    assert_eq!(book.advanced("shore"), Some(Millis(9_000)));
    assert_eq!(requested(&book), Some(Millis(5_000)));
    round = zone.dead(3, &[1, 2], 2);
    round.age_ms = 600_000;
    book.report(Millis(9_500), "shore", "node-1", &zone.report(vec![round]));
    assert_eq!(
        requested(&book),
        Some(Millis(5_000)),
        "whatever the reporter says"
    );
    round = zone.dead(3, &[1, 2], 3);
    book.report(Millis(9_900), "shore", "node-1", &zone.report(vec![round]));
    assert_eq!(requested(&book), Some(Millis(8_900)), "a second ago, as it says");
}

/// Somebody else writes about the cell, in an object of which no earlier state was seen: nobody knows how old
/// that is, and until then evidence counts that came in time. It takes more time for no evidence.
#[test]
fn evidence_of_unknown_age_does_not_shorten_what_was_shown_before() {
    let (mut book, mut zone) = (Book::new(), Fixture::new(3));
    book.roster(Millis(0), "shore", zone.roster());
    book.challenges(Millis(0), "shore", &[zone.issued(Millis(0))]);
    book.report(Millis(60_000), "shore", "node-1", &zone.report(vec![]));
    let until = |book: &Book| match book.verdict(&Fixture::uid(3)) {
        Verdict::Alive(alive) => Some((alive.until, alive.cloud)),
        _ => None,
    };
    let round = zone.alive(3, &[1, 2], 1, Facts::default());
    book.report(Millis(61_000), "shore", "node-1", &zone.report(vec![round]));
    assert_eq!(until(&book), Some((Millis(76_000), Link::Unknown)));
    let round = zone.alive(3, &[1, 2], 2, CUT);
    book.report(Millis(62_000), "shore", "node-9", &zone.report(vec![round]));
    assert_eq!(
        until(&book),
        Some((Millis(76_000), Link::Down)),
        "newer votes, and the time of the former ones"
    );
    let round = zone.alive(3, &[1, 2], 3, CUT);
    book.report(Millis(80_000), "shore", "node-8", &zone.report(vec![round]));
    assert_eq!(
        until(&book),
        Some((Millis(80_000), Link::Down)),
        "which is over by then"
    );
}

/// The first report of a reporter may have been written long before the reader began, also if its challenge
/// comes later.
#[test]
fn what_waited_for_its_challenge_is_no_younger_for_that() {
    let (mut book, mut zone) = (Book::new(), Fixture::new(3));
    let alive = zone.alive(3, &[1, 2], 1, CUT);
    book.roster(Millis(0), "shore", zone.roster());
    book.report(Millis(0), "shore", "node-1", &zone.report(vec![alive]));
    book.challenges(Millis(1), "shore", &[of_another_leader(&zone)]);
    for at in [2, 3] {
        book.heartbeat(Millis(at), "shore", "node-1");
    }
    let Verdict::Alive(alive) = book.verdict(&Fixture::uid(3)) else {
        panic!("{:?}", book.verdict(&Fixture::uid(3)));
    };
    assert_eq!(alive.until, Millis(1), "its age is unknown");
}

/// Without a reading of its Lease, nobody knows whether the node has renewed since.
#[test]
fn a_no_counts_only_where_the_lease_was_read() {
    let mut reader = Reader::of(5);
    reader.zone.renewal = None;
    let death = reader.zone.dead(5, &[1, 2, 3, 4], 1);
    reader.report(Millis(9_000), vec![death]);
    assert_eq!(reader.of_node(5), none(NoVerdict::Refused));
    let alive = reader.zone.alive(5, &[1, 2, 3], 2, CUT);
    reader.report(Millis(10_000), vec![alive]);
    assert!(reader.vouched(5).is_some());
}

/// Hazard 44.
#[test]
fn one_ballot_speaks_of_all_suspects_of_its_round() {
    let mut reader = Reader::of(5);
    let request = reader.zone.request(&[3, 4, 5], 1);
    let votes: Vec<_> = [1, 2, 3]
        .into_iter()
        .map(|voter| {
            let said = [
                reader.zone.vote(voter, 3, Answer::Yes),
                reader.zone.vote(voter, 4, Answer::No),
                reader
                    .zone
                    .vote(voter, 5, if voter == 1 { Answer::No } else { Answer::Yes }),
            ];
            (voter, said.to_vec())
        })
        .collect();
    let round = reader.zone.round(&request, 1_000, &votes);
    let refused = reader.report(Millis(9_000), vec![round]);
    assert!(reader.vouched(3).is_some() && reader.dead(4).is_some());
    assert!(
        matches!(&refused[..], [Refusal::NoMajority { node, .. }] if node == "node-5"),
        "{refused:?}"
    );
}

/// Hazards 40 and 57: nobody overwrites what another one says, and the newest evidence counts.
#[test]
fn reports_of_all_reporters_are_merged() {
    let mut reader = Reader::of(3);
    reader.report_by("node-2", Millis(1_000), vec![]);
    let death = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![death.clone()]);
    reader.report_by("node-2", Millis(6_000), vec![]);
    assert_eq!(reader.dead(3), Some(4_000));
    let life = reader.zone.alive(3, &[1, 2], 2, CUT);
    reader.report_by("node-2", Millis(7_000), vec![life]);
    assert!(reader.vouched(3).is_some());
    // The first reporter still shows the death, and then ends.
    assert_eq!(reader.report(Millis(8_000), vec![death]), vec![]);
    assert!(reader.vouched(3).is_some());
    reader.book.forget_report("shore", "node-2");
    assert!(reader.vouched(3).is_some(), "until it runs out");
}

/// Rosters and reports come on watches of their own, in any order.
#[test]
fn a_report_that_comes_before_its_roster_is_counted_with_it() {
    let mut zone = Fixture::new(3);
    let mut book = Book::new();
    book.challenges(Millis(0), "shore", &[zone.issued(Millis(0))]);
    for round in [1, 2] {
        let death = zone.dead(3, &[1, 2], round);
        let report = zone.report(vec![death]);
        book.report(Millis(u64::from(round) * 1_000), "shore", "node-1", &report);
    }
    assert_eq!(book.verdict("uid-3"), none(NoVerdict::NotAMember));
    assert_eq!(book.roster(Millis(5_000), "shore", zone.roster()), vec![]);
    // The second report came while the reader watched, so that its age is known.
    assert!(matches!(book.verdict("uid-3"), Verdict::Dead(death) if death.requested == Millis(1_000)));
    assert_eq!(book.advanced("shore"), Some(Millis(2_000)));
    let death = zone.dead(3, &[1, 2], 3);
    let report = zone.report(vec![death]);
    book.report(Millis(6_000), "shore", "node-1", &report);
    assert!(matches!(book.verdict("uid-3"), Verdict::Dead(death) if death.requested == Millis(5_000)));
    // A voter that has a roster which the reader has not seen counts as soon as it has.
    zone.grow();
    let ahead = zone.dead(2, &[1, 3, 4], 4);
    let report = zone.report(vec![ahead]);
    assert_eq!(book.report(Millis(7_000), "shore", "node-1", &report).len(), 1);
    assert!(!matches!(book.verdict("uid-2"), Verdict::Dead(_)));
    book.roster(Millis(8_000), "shore", zone.roster());
    assert!(
        matches!(book.verdict("uid-2"), Verdict::Dead(death) if death.requested == Millis(6_000)),
        "with the age that it has by now"
    );
}

#[test]
fn the_age_of_the_contacts_shortens_the_life_of_a_verdict() {
    let mut reader = Reader::of(3);
    let mut votes = [1, 2].map(|voter| reader.zone.vote(voter, 3, Answer::Yes));
    votes[1].contact_age = 4_000;
    let round = reader.votes(3, 1, &votes);
    reader.report(Millis(1_000), vec![round]);
    assert_eq!(reader.vouched(3).map(|(_, until)| until), Some(11_000));
}

/// Hazard 36: it is signed, so that a hoarded round cannot confirm a later death.
#[test]
fn a_death_tells_for_how_long_a_majority_heard_nothing() {
    let mut reader = Reader::of(5);
    let votes: Vec<Vote> = [(1, 9_000), (2, 4_000), (3, 7_000), (4, 20_000)]
        .into_iter()
        .map(|(voter, contact_age)| Vote {
            contact_age,
            ..reader.zone.vote(voter, 5, Answer::No)
        })
        .collect();
    let round = reader.votes(5, 1, &votes);
    assert_eq!(reader.report(Millis(9_000), vec![round]), vec![]);
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
    // Silence of the zone and a minority are no evidence of life.
    let minority = reader.zone.alive(3, &[1], 2, CUT);
    assert_eq!(reader.report(Millis(500_100), vec![minority]).len(), 1);
    assert_eq!(reader.dead(3), Some(4_000));
    let life = reader.zone.alive(3, &[1, 2], 3, CUT);
    reader.report(Millis(500_200), vec![life]);
    assert_eq!(reader.vouched(3), Some((CUT, 515_200)));
    // And the old death cannot be told again.
    reader.report(Millis(500_300), vec![death]);
    assert_eq!(reader.vouched(3), Some((CUT, 515_200)));
}

/// Hazard 40: everything but requests and ballots is signed by nobody.
#[test]
fn what_nobody_signed_decides_nothing() {
    let mut reader = Reader::of(3);
    let death = reader.zone.dead(3, &[1, 2], 1);
    let mut report = reader.zone.report(vec![death]);
    (report.roster_version, report.sequence, report.members) = (77, i64::MIN, -1);
    report.summary = "everybody is well".into();
    report.nodes = vec![Fixture::undecided(3), Fixture::undecided(77)];
    report.nodes[0].verdict = VerdictKind::Alive;
    assert_eq!(
        reader.book.report(Millis(5_000), "shore", "node-1", &report),
        vec![]
    );
    assert_eq!(reader.dead(3), Some(4_000));
}

#[test]
fn that_no_majority_exists_is_told_where_there_is_no_evidence() {
    let mut reader = Reader::of(3);
    let mut report = reader.zone.report(vec![]);
    report.nodes = vec![Fixture::undecided(2)];
    reader.book.report(Millis(5_000), "shore", "node-1", &report);
    assert_eq!(reader.of_node(2), none(NoVerdict::NoMajority));
}

/// Hazard 13.
#[test]
fn in_a_roster_of_two_the_peers_no_is_one_vote_short() {
    let mut reader = Reader::of(2);
    let no = reader.zone.dead(2, &[1], 1);
    assert_eq!(reader.report(Millis(5_000), vec![no]), vec![]);
    let Verdict::OneShort(death) = reader.of_node(2) else {
        panic!("one short: {:?}", reader.of_node(2));
    };
    assert_eq!(death.requested, Millis(4_000));
    // In a larger zone one voice is nothing.
    let mut reader = Reader::of(3);
    let no = reader.zone.dead(2, &[1], 1);
    reader.report(Millis(5_000), vec![no]);
    assert_eq!(reader.of_node(2), none(NoVerdict::Refused));
}

/// A member moves by two writes: it stands in its new cell first.
#[test]
fn of_two_cells_that_hold_a_node_the_one_with_evidence_speaks() {
    let mut reader = Reader::of(3);
    let dead = reader.zone.dead(3, &[1, 2], 1);
    reader.report(Millis(5_000), vec![dead]);
    let other = Fixture::new(3);
    for cell in ["a", "z"] {
        reader.book.roster(Millis(6_000), cell, other.roster());
    }
    assert!(matches!(reader.book.verdict("uid-3"), Verdict::Dead(_)));
    reader.book.forget("shore");
    assert!(matches!(reader.book.verdict("uid-3"), Verdict::None(_)));
}

#[test]
fn what_was_written_before_the_reader_began_is_void_until_somebody_reports() {
    let mut zone = Fixture::new(3);
    let death = zone.dead(3, &[1, 2], 1);
    let report = zone.report(vec![death]);
    let mut book = Book::new();
    book.challenges(Millis(0), "shore", &[of_another_leader(&zone)]);
    book.roster(Millis(10), "shore", zone.roster());
    book.report(Millis(10), "shore", "node-1", &report);
    book.heartbeat(Millis(10), "shore", "node-1");
    book.report(Millis(20), "shore", "node-1", &report);
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
    book.report(Millis(9_000), "shore", "node-1", &zone.report(vec![again]));
    assert_eq!(requested(&book), Some(Millis(8_000)));
    // The first report of another reporter has an unknown age as well: it may be an old one.
    let other = zone.dead(3, &[1, 2], 3);
    book.report(Millis(20_000), "shore", "node-2", &zone.report(vec![other]));
    assert_eq!(requested(&book), Some(Millis(0)));
}

#[test]
fn evidence_of_life_from_before_the_reader_began_is_worth_nothing() {
    let mut zone = Fixture::new(3);
    let life = zone.alive(3, &[1, 2], 1, CUT);
    let mut book = Book::new();
    book.challenges(Millis(0), "shore", &[of_another_leader(&zone)]);
    book.roster(Millis(10), "shore", zone.roster());
    book.report(Millis(10), "shore", "node-1", &zone.report(vec![life]));
    book.heartbeat(Millis(10), "shore", "node-1");
    book.heartbeat(Millis(1_000), "shore", "node-1");
    let until = |book: &Book| match book.verdict("uid-3") {
        Verdict::Alive(alive) => Some(alive.until),
        _ => None,
    };
    assert_eq!(until(&book), Some(Millis(10)));
    let renewed = zone.alive(3, &[1, 2], 2, CUT);
    book.report(Millis(5_000), "shore", "node-1", &zone.report(vec![renewed]));
    assert_eq!(until(&book), Some(Millis(20_000)));
}

#[test]
fn a_voter_that_is_cut_off_keeps_its_vote_with_the_roster_it_has() {
    let mut reader = Reader::of(3);
    // Nodes 1 and 3 are cut off from the cloud while two nodes join: they never learn of it.
    let old = [1, 3].map(|voter| reader.zone.vote(voter, 3, Answer::Yes));
    reader.zone.grow();
    reader.zone.grow();
    reader.report(Millis(10_000), vec![]);
    let new = reader.zone.vote(2, 3, Answer::Yes);
    let round = reader.votes(3, 1, &[old[0], old[1], new]);
    assert_eq!(reader.report(Millis(60_000), vec![round]), vec![]);
    assert!(reader.vouched(3).is_some());
    // Two of five are no majority, whatever roster they know.
    let minority = reader.votes(3, 2, &old);
    assert_eq!(reader.report(Millis(90_000), vec![minority]).len(), 1);
    assert_eq!(
        reader.vouched(3).map(|(_, until)| until),
        Some(74_000),
        "as before"
    );
}

#[test]
fn evidence_of_unknown_age_is_as_old_as_can_be() {
    let mut reader = Reader::of(3);
    let issued = of_another_leader(&reader.zone);
    reader.book.challenges(Millis(0), "shore", &[issued]);
    let mut death = reader.zone.dead(3, &[1, 2], 1);
    let mut life = reader.zone.alive(2, &[1, 3], 1, CUT);
    (death.age_ms, life.age_ms) = (-1, -1);
    reader.report(Millis(9_000), vec![death, life]);
    assert_eq!(reader.dead(3), Some(0));
    assert_eq!(reader.vouched(2), Some((CUT, 9_000)));
}

#[test]
fn ballots_of_another_round_neither_freshen_nor_colour_a_verdict() {
    let mut reader = Reader::of(5);
    let votes = [1, 2, 3].map(|voter| Vote {
        facts: CUT,
        contact_age: 4_000,
        ..reader.zone.vote(voter, 5, Answer::Yes)
    });
    let mut round = reader.votes(5, 1, &votes);
    let other = Facts {
        kubelet: Health::Failing,
        ..CUT
    };
    let stray = reader.zone.alive(5, &[4, 5], 2, other);
    round.ballots.extend(stray.ballots.clone());
    assert_eq!(reader.report(Millis(1_000), vec![round]), vec![]);
    assert_eq!(reader.vouched(5), Some((CUT, 11_000)));
    // And they are not used up.
    let mut whole = reader.zone.alive(5, &[1], 2, other);
    whole.ballots.extend(stray.ballots);
    assert_eq!(reader.report(Millis(13_000), vec![whole]), vec![]);
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
    let request = anew.request(&[3], 20);
    let (small, high) = (anew.vote(1, 3, Answer::No), anew.vote(2, 3, Answer::No));
    let mut death = anew.round(&request, 1_000, &[(1, vec![small])]);
    death.ballots.push(reader.zone.sign(2, &request, &[high]));
    reader.book.roster(Millis(50_000), "shore", anew.roster());
    let report = anew.report(vec![death]);
    let refused = reader.book.report(Millis(50_000), "shore", "node-1", &report);
    assert_eq!(refused, vec![]);
    assert_eq!(reader.dead(3), Some(49_000));
}

#[test]
fn another_roster_of_the_same_version_is_refused() {
    let mut reader = Reader::of(3);
    let mut spec = reader.zone.spec();
    spec.members.pop();
    let other = Roster::from_spec(&spec).unwrap();
    assert_eq!(
        reader.book.roster(Millis(9), "shore", other),
        vec![Refusal::TwoRosters(1)]
    );
    assert_eq!(reader.of_node(3), none(NoVerdict::NotListed));
}

#[test]
fn voters_disagreeing_on_facts_are_decided_by_most() {
    let mut reader = Reader::of(5);
    let failing = Facts {
        cloud: Link::Up,
        kubelet: Health::Failing,
        ..CUT
    };
    let votes = [(1, CUT), (2, CUT), (3, failing)].map(|(voter, facts)| Vote {
        facts,
        ..reader.zone.vote(voter, 5, Answer::Yes)
    });
    let round = reader.votes(5, 1, &votes);
    reader.report(Millis(9), vec![round]);
    assert_eq!(reader.vouched(5).map(|(facts, _)| facts), Some(CUT));
}

#[test]
fn one_early_publication_of_a_genuine_ballot_does_not_spoil_it() {
    let mut reader = Reader::of(5);
    let whole = reader.zone.dead(5, &[1, 2, 3], 1);
    let mut part = whole.clone();
    part.ballots.truncate(1);
    assert_eq!(reader.report(Millis(5_000), vec![part]).len(), 1);
    assert_eq!(reader.report(Millis(6_000), vec![whole]), vec![]);
    assert_eq!(reader.dead(5), Some(5_000));
}

#[test]
fn a_ballot_is_evidence_and_other_datagrams_are_not() {
    let mut zone = Fixture::new(3);
    let text = zone.dead(3, &[1], 1).ballots.remove(0);
    let bytes = wire::from_evidence(&text).unwrap();
    let (key, frame) = (zone.key(1), Frame::parse(&bytes).unwrap());
    let (header, _) = frame.open_evidence([key.public()], &*zone.verifier()).unwrap();
    assert_eq!(header.from, Fixture::id(1));
    let bytes = zone.seal(key, header, &Body::Heartbeat(Heartbeat::default()));
    let opened = Frame::parse(&bytes)
        .unwrap()
        .open_evidence([key.public()], &*zone.verifier());
    assert_eq!(opened, Err(WireError::Kind(1)));
}

/// Hazard 43: three of five machines have booted within the last five minutes.
#[test]
fn a_cell_returns_when_more_than_half_of_it_booted_lately() {
    let mut reader = Reader::of(5);
    let vote = |reader: &mut Reader, at: u64, uptime: u16, voters: &[usize]| {
        reader.zone.uptime = uptime;
        let verdict = reader.zone.dead(5, voters, u8::try_from(at / 1_000).unwrap());
        reader.report(Millis(at), vec![verdict]);
    };
    let returning = |reader: &Reader, at: u64| reader.book.is_returning("shore", Millis(at));
    assert!(!returning(&reader, 100_000), "nobody has voted");
    vote(&mut reader, 100_000, 3_600, &[1, 2, 3]);
    assert!(!returning(&reader, 100_000), "up for an hour");
    vote(&mut reader, 110_000, 40, &[1, 2, 4]);
    assert!(returning(&reader, 110_000));
    vote(&mut reader, 120_000, 90, &[1, 2, 3]);
    assert!(returning(&reader, 329_999));
    assert!(
        !returning(&reader, 330_000),
        "five minutes after the first three booted"
    );
    assert!(!reader.book.is_returning("elsewhere", Millis(120_000)));
}

/// A refused round says nothing of its voters either.
#[test]
fn what_decides_nothing_tells_no_boot() {
    let mut reader = Reader::of(5);
    reader.zone.uptime = 1;
    let verdict = reader.zone.dead(5, &[1, 2], 1);
    reader.report(Millis(100_000), vec![verdict]);
    assert!(!reader.book.is_returning("shore", Millis(100_000)));
}
