use super::*;
use crate::fixture::Fixture;
use rstest::rstest;

const ROUND: u8 = 9;

/// `votes`: one letter per member beginning with node 1, `y`es, `n`o, `a`bstain, `.` silent. The suspect is the last
/// node, its letter is its own voice.
fn outcome(votes: &str, self_yes: bool) -> Outcome {
    let count = votes.len();
    let zone = Fixture::new(u8::try_from(count).unwrap());
    let cast: Vec<Vote> = votes
        .chars()
        .enumerate()
        .filter_map(|(i, letter)| cast(&zone, i + 1, count, letter))
        .collect();
    tally(
        &zone.roster(),
        Fixture::id(count),
        Nonce([ROUND; 16]),
        &cast,
        self_yes,
    )
}

fn cast(zone: &Fixture, voter: usize, suspect: usize, letter: char) -> Option<Vote> {
    let answer = match letter {
        'y' => Answer::Yes,
        'n' => Answer::No,
        'a' => Answer::Abstain,
        _ => return None,
    };
    Some(zone.vote(voter, suspect, ROUND, answer))
}

#[rstest]
// N = 1: no peer verdict.
#[case("n", Outcome::NoMajority)]
#[case("y", Outcome::NoMajority)]
#[case(".", Outcome::NoMajority)]
// N = 2: one peer never convicts; with the suspect's own voice both say that it lives.
#[case("n.", Outcome::NoMajority)]
#[case("nn", Outcome::NoMajority)]
#[case("y.", Outcome::NoMajority)]
#[case("yy", Outcome::Alive)]
#[case("ny", Outcome::NoMajority)]
// N = 3: both others.
#[case("nn.", Outcome::Dead)]
#[case("n..", Outcome::NoMajority)]
#[case("na.", Outcome::NoMajority)]
#[case("ny.", Outcome::NoMajority)]
#[case("yy.", Outcome::Alive)]
#[case("y.y", Outcome::Alive)]
#[case("..y", Outcome::NoMajority)]
#[case("nny", Outcome::NoMajority)]
#[case("nnn", Outcome::Dead)]
// N = 4: three; half of the zone decides nothing.
#[case("nnn.", Outcome::Dead)]
#[case("nn..", Outcome::NoMajority)]
#[case("nny.", Outcome::NoMajority)]
#[case("yyy.", Outcome::Alive)]
#[case("yy.y", Outcome::Alive)]
#[case("yy..", Outcome::NoMajority)]
#[case("nnny", Outcome::NoMajority)]
// N = 5: three.
#[case("nnn..", Outcome::Dead)]
#[case("nnny.", Outcome::Dead)]
#[case("nn...", Outcome::NoMajority)]
#[case("nnyy.", Outcome::NoMajority)]
#[case("nnyyy", Outcome::Alive)]
#[case("yyy..", Outcome::Alive)]
#[case("nnnny", Outcome::NoMajority)]
// N = 6: four; a tie of three and three decides nothing.
#[case("nnnn..", Outcome::Dead)]
#[case("nnn...", Outcome::NoMajority)]
#[case("nnnyy.", Outcome::NoMajority)]
#[case("nnyyyy", Outcome::Alive)]
#[case("nnnyyy", Outcome::NoMajority)]
#[case("yyyy..", Outcome::Alive)]
// N = 7: four.
#[case("nnnn...", Outcome::Dead)]
#[case("nnnnyy.", Outcome::Dead)]
#[case("nnnyyy.", Outcome::NoMajority)]
#[case("nnn....", Outcome::NoMajority)]
#[case("yyy...y", Outcome::Alive)]
#[case("nnnnnny", Outcome::NoMajority)]
#[case("aaaaaa.", Outcome::NoMajority)]
fn votes_decide_by_more_than_half_of_the_roster(#[case] votes: &str, #[case] expected: Outcome) {
    assert_eq!(outcome(votes, false), expected, "{votes}");
}

/// The same for every combination, with and without an answer of the suspect's agent, against the rule in words:
/// floor(N/2)+1 equal votes, the suspect counted in N.
#[test]
fn every_combination_up_to_seven_follows_the_rule() {
    for count in 1..=7_usize {
        let zone = Fixture::new(u8::try_from(count).unwrap());
        let (roster, suspect) = (zone.roster(), Fixture::id(count));
        let ballots: Vec<[Option<Vote>; 4]> = (1..=count)
            .map(|voter| ['y', 'n', 'a', '.'].map(|letter| cast(&zone, voter, count, letter)))
            .collect();
        for code in 0..4_usize.pow(u32::try_from(count).unwrap()) {
            let said = |i: usize| code >> (2 * i) & 3;
            let votes: Vec<Vote> = (0..count).filter_map(|i| ballots[i][said(i)]).collect();
            let no = (0..count - 1).filter(|i| said(*i) == 1).count();
            let yes = (0..count).filter(|i| said(*i) == 0).count();
            let (needed, own_yes) = (count / 2 + 1, said(count - 1) == 0);
            for self_yes in [false, true] {
                let expected = if count == 1 {
                    Outcome::NoMajority
                } else if no >= needed && !own_yes && !self_yes {
                    Outcome::Dead
                } else if yes >= needed {
                    Outcome::Alive
                } else {
                    Outcome::NoMajority
                };
                let got = tally(&roster, suspect, Nonce([ROUND; 16]), &votes, self_yes);
                assert_eq!(got, expected, "N = {count}, votes {code:#o}, self_yes {self_yes}");
            }
        }
    }
}

#[rstest]
#[case("nn.")]
#[case("nnnn.")]
#[case("nnnnnn.")]
fn an_authenticated_answer_of_the_suspect_vetoes_dead(#[case] votes: &str) {
    assert_eq!(outcome(votes, false), Outcome::Dead);
    assert_eq!(outcome(votes, true), Outcome::NoMajority);
}

#[test]
fn a_voter_counts_once_and_contradicting_itself_not_at_all() {
    let zone = Fixture::new(5);
    let no = |voter| zone.vote(voter, 5, ROUND, Answer::No);
    let twice = [no(1), no(1), no(1)];
    assert_eq!(
        tally(&zone.roster(), Fixture::id(5), Nonce([ROUND; 16]), &twice, false),
        Outcome::NoMajority
    );
    let torn = [no(1), no(2), no(3), zone.vote(3, 5, ROUND, Answer::Yes)];
    assert_eq!(
        tally(&zone.roster(), Fixture::id(5), Nonce([ROUND; 16]), &torn, false),
        Outcome::NoMajority
    );
}

#[test]
fn votes_of_another_round_subject_roster_or_stranger_do_not_count() {
    let zone = Fixture::new(5);
    let base: Vec<Vote> = (1..=3)
        .map(|voter| zone.vote(voter, 5, ROUND, Answer::No))
        .collect();
    let decide = |votes: &[Vote]| tally(&zone.roster(), Fixture::id(5), Nonce([ROUND; 16]), votes, false);
    assert_eq!(decide(&base), Outcome::Dead);
    let mut newer = Fixture::new(5);
    newer.reissue();
    let spoilt: [(&str, Vote); 4] = [
        ("replayed round", zone.vote(3, 5, ROUND - 1, Answer::No)),
        ("another suspect", zone.vote(3, 4, ROUND, Answer::No)),
        ("foreign roster", newer.vote(3, 5, ROUND, Answer::No)),
        ("stranger", zone.vote(6, 5, ROUND, Answer::No)),
    ];
    for (what, vote) in spoilt {
        assert_eq!(decide(&[base[0], base[1], vote]), Outcome::NoMajority, "{what}");
    }
}

#[test]
fn a_yes_resting_on_an_old_contact_has_expired() {
    let zone = Fixture::new(3);
    let mut votes = [
        zone.vote(1, 3, ROUND, Answer::Yes),
        zone.vote(2, 3, ROUND, Answer::Yes),
    ];
    let decide = |votes: &[Vote]| tally(&zone.roster(), Fixture::id(3), Nonce([ROUND; 16]), votes, false);
    votes[1].ballot.contact_age = FRESH_CONTACT_MS;
    assert_eq!(decide(&votes), Outcome::Alive);
    votes[1].ballot.contact_age = FRESH_CONTACT_MS + 1;
    assert_eq!(decide(&votes), Outcome::NoMajority);
}

#[test]
fn those_who_joined_across_a_split_cannot_outvote_those_who_were_there() {
    let mut zone = Fixture::new(3);
    let before = zone.roster();
    for _ in 0..4 {
        zone.grow();
    }
    let after = zone.roster();
    let joint = Council {
        current: &after,
        previous: Some(&before),
    };
    let votes = |voters: &[usize]| -> Vec<Vote> {
        voters
            .iter()
            .map(|voter| zone.vote(*voter, 1, ROUND, Answer::No))
            .collect()
    };
    let decide = |votes: &[Vote]| joint.tally(Fixture::id(1), Nonce([ROUND; 16]), votes, false);
    assert_eq!(decide(&votes(&[4, 5, 6, 7])), Outcome::NoMajority);
    assert_eq!(decide(&votes(&[2, 4, 5, 6, 7])), Outcome::NoMajority);
    assert_eq!(decide(&votes(&[2, 3, 5, 6])), Outcome::Dead);
    let alone = Council {
        current: &after,
        previous: None,
    };
    assert_eq!(
        alone.tally(Fixture::id(1), Nonce([ROUND; 16]), &votes(&[4, 5, 6, 7]), false),
        Outcome::Dead
    );
}

#[test]
fn a_vote_bound_to_an_older_roster_counts_among_the_members_of_the_present_one() {
    let mut zone = Fixture::new(3);
    let old = |zone: &Fixture, voter| zone.vote(voter, 3, ROUND, Answer::No);
    let votes = [old(&zone, 1), old(&zone, 2)];
    let decide = |zone: &Fixture, votes: &[Vote]| {
        tally(&zone.roster(), Fixture::id(3), Nonce([ROUND; 16]), votes, false)
    };
    assert_eq!(decide(&zone, &votes), Outcome::Dead);
    zone.grow();
    // Two of three then, two of four now.
    assert_eq!(decide(&zone, &votes), Outcome::NoMajority);
    let with_new = [votes[0], votes[1], zone.vote(4, 3, ROUND, Answer::No)];
    assert_eq!(decide(&zone, &with_new), Outcome::Dead);
    zone.grow();
    assert_eq!(decide(&zone, &with_new), Outcome::Dead);
    // Two rosters of one version: one of them is not ours.
    let mut forged = with_new;
    forged[0].ballot.roster = crate::roster::RosterRef {
        version: 3,
        ..forged[0].ballot.roster
    };
    assert_eq!(decide(&zone, &forged), Outcome::NoMajority);
}

#[test]
fn above_101_members_a_majority_of_the_sample_decides() {
    let zone = Fixture::new(150);
    let roster = zone.roster();
    let voters: Vec<usize> = (1..150)
        .filter(|i| {
            roster
                .electorate(Fixture::id(150))
                .voters
                .contains(&Fixture::id(*i))
        })
        .collect();
    let votes: Vec<Vote> = voters
        .iter()
        .map(|voter| zone.vote(*voter, 150, ROUND, Answer::No))
        .collect();
    let decide = |votes: &[Vote]| tally(&roster, Fixture::id(150), Nonce([ROUND; 16]), votes, false);
    assert_eq!(decide(&votes[..50]), Outcome::NoMajority);
    assert_eq!(decide(&votes[..51]), Outcome::Dead);
    let outside: Vec<Vote> = (1..150)
        .filter(|i| !voters.contains(i))
        .map(|i| zone.vote(i, 150, ROUND, Answer::No))
        .collect();
    assert_eq!(
        decide(&[&votes[..40], &outside[..]].concat()),
        Outcome::NoMajority
    );
}
