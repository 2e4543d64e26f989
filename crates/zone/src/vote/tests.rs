use super::*;
use crate::fixture::Fixture;
use rstest::rstest;

/// `votes`: one letter per member beginning with node 1, `y`es, `n`o, `a`bstain, `.` silent. The suspect is
/// the last node, its letter is its own voice.
fn outcome(votes: &str, self_yes: bool) -> VerdictKind {
    let count = votes.len();
    let zone = Fixture::new(u8::try_from(count).unwrap());
    let cast: Vec<Vote> = votes
        .chars()
        .enumerate()
        .filter_map(|(i, letter)| cast(&zone, i + 1, count, letter))
        .collect();
    tally(&zone.roster(), Fixture::id(count), &cast, self_yes)
}

fn cast(zone: &Fixture, voter: usize, suspect: usize, letter: char) -> Option<Vote> {
    let answer = match letter {
        'y' => Answer::Yes,
        'n' => Answer::No,
        'a' => Answer::Abstain,
        _ => return None,
    };
    Some(zone.vote(voter, suspect, answer))
}

#[rstest]
// N = 1: no peer verdict.
#[case("n", VerdictKind::None)]
#[case("y", VerdictKind::None)]
#[case(".", VerdictKind::None)]
// N = 2: one peer never convicts; with the suspect's own voice both say that it lives.
#[case("n.", VerdictKind::None)]
#[case("nn", VerdictKind::None)]
#[case("y.", VerdictKind::None)]
#[case("yy", VerdictKind::Alive)]
#[case("ny", VerdictKind::None)]
// N = 3: both others.
#[case("nn.", VerdictKind::Dead)]
#[case("n..", VerdictKind::None)]
#[case("na.", VerdictKind::None)]
#[case("ny.", VerdictKind::None)]
#[case("yy.", VerdictKind::Alive)]
#[case("y.y", VerdictKind::Alive)]
#[case("..y", VerdictKind::None)]
#[case("nny", VerdictKind::None)]
#[case("nnn", VerdictKind::Dead)]
// N = 4: three; half of the zone decides nothing.
#[case("nnn.", VerdictKind::Dead)]
#[case("nn..", VerdictKind::None)]
#[case("nny.", VerdictKind::None)]
#[case("yyy.", VerdictKind::Alive)]
#[case("yy.y", VerdictKind::Alive)]
#[case("yy..", VerdictKind::None)]
#[case("nnny", VerdictKind::None)]
// N = 5: three.
#[case("nnn..", VerdictKind::Dead)]
#[case("nnny.", VerdictKind::Dead)]
#[case("nn...", VerdictKind::None)]
#[case("nnyy.", VerdictKind::None)]
#[case("nnyyy", VerdictKind::Alive)]
#[case("yyy..", VerdictKind::Alive)]
#[case("nnnny", VerdictKind::None)]
// N = 6: four; a tie of three and three decides nothing.
#[case("nnnn..", VerdictKind::Dead)]
#[case("nnn...", VerdictKind::None)]
#[case("nnnyy.", VerdictKind::None)]
#[case("nnyyyy", VerdictKind::Alive)]
#[case("nnnyyy", VerdictKind::None)]
#[case("yyyy..", VerdictKind::Alive)]
// N = 7: four.
#[case("nnnn...", VerdictKind::Dead)]
#[case("nnnnyy.", VerdictKind::Dead)]
#[case("nnnyyy.", VerdictKind::None)]
#[case("nnn....", VerdictKind::None)]
#[case("yyy...y", VerdictKind::Alive)]
#[case("nnnnnny", VerdictKind::None)]
#[case("aaaaaa.", VerdictKind::None)]
fn votes_decide_by_more_than_half_of_the_roster(#[case] votes: &str, #[case] expected: VerdictKind) {
    assert_eq!(outcome(votes, false), expected, "{votes}");
}

/// The same for every combination, with and without an answer of the suspect's agent, against the rule in
/// words: floor(N/2)+1 equal votes, the suspect counted in N.
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
                    VerdictKind::None
                } else if no >= needed && !own_yes && !self_yes {
                    VerdictKind::Dead
                } else if yes >= needed {
                    VerdictKind::Alive
                } else {
                    VerdictKind::None
                };
                let got = tally(&roster, suspect, &votes, self_yes);
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
    assert_eq!(outcome(votes, false), VerdictKind::Dead);
    assert_eq!(outcome(votes, true), VerdictKind::None);
}

#[test]
fn a_voter_counts_once_and_contradicting_itself_not_at_all() {
    let zone = Fixture::new(5);
    let no = |voter| zone.vote(voter, 5, Answer::No);
    let twice = [no(1), no(1), no(1)];
    assert_eq!(
        tally(&zone.roster(), Fixture::id(5), &twice, false),
        VerdictKind::None
    );
    let torn = [no(1), no(2), no(3), zone.vote(3, 5, Answer::Yes)];
    assert_eq!(
        tally(&zone.roster(), Fixture::id(5), &torn, false),
        VerdictKind::None
    );
}

#[test]
fn votes_of_another_round_subject_roster_or_stranger_do_not_count() {
    let zone = Fixture::new(5);
    let base: Vec<Vote> = (1..=3).map(|voter| zone.vote(voter, 5, Answer::No)).collect();
    let decide = |votes: &[Vote]| tally(&zone.roster(), Fixture::id(5), votes, false);
    assert_eq!(decide(&base), VerdictKind::Dead);
    let mut newer = Fixture::new(5);
    newer.reissue();
    let spoilt: [(&str, Vote); 3] = [
        ("another suspect", zone.vote(3, 4, Answer::No)),
        ("foreign roster", newer.vote(3, 5, Answer::No)),
        ("stranger", zone.vote(6, 5, Answer::No)),
    ];
    for (what, vote) in spoilt {
        assert_eq!(decide(&[base[0], base[1], vote]), VerdictKind::None, "{what}");
    }
}

#[test]
fn a_yes_resting_on_an_old_contact_has_expired() {
    let zone = Fixture::new(3);
    let mut votes = [zone.vote(1, 3, Answer::Yes), zone.vote(2, 3, Answer::Yes)];
    let decide = |votes: &[Vote]| tally(&zone.roster(), Fixture::id(3), votes, false);
    votes[1].contact_age = FRESH_CONTACT_MS;
    assert_eq!(decide(&votes), VerdictKind::Alive);
    votes[1].contact_age = FRESH_CONTACT_MS + 1;
    assert_eq!(decide(&votes), VerdictKind::None);
}

#[test]
fn those_who_joined_across_a_split_cannot_outvote_those_who_were_there() {
    let mut zone = Fixture::new(3);
    for _ in 0..4 {
        zone.grow();
    }
    zone.settled_voters = vec![1, 2, 3];
    let settling = zone.roster();
    let mut later = Fixture::new(7);
    (0..5).for_each(|_| later.reissue());
    let settled = later.roster();
    let votes = |voters: &[usize]| -> Vec<Vote> {
        voters
            .iter()
            .map(|voter| zone.vote(*voter, 1, Answer::No))
            .collect()
    };
    let decide = |votes: &[Vote]| tally(&settling, Fixture::id(1), votes, false);
    assert_eq!(decide(&votes(&[4, 5, 6, 7])), VerdictKind::None);
    assert_eq!(decide(&votes(&[2, 4, 5, 6, 7])), VerdictKind::None);
    assert_eq!(decide(&votes(&[2, 3, 5, 6])), VerdictKind::Dead);
    assert_eq!(
        tally(&settled, Fixture::id(1), &votes(&[4, 5, 6, 7]), false),
        VerdictKind::Dead
    );
}

/// Three voters and two learners: two votes decide, of voters alone, about whomever.
#[rstest]
#[case::of_a_voter(3, &[1, 2], VerdictKind::Dead)]
#[case::of_a_voter_by_a_learner(3, &[1, 4], VerdictKind::None)]
#[case::of_a_voter_by_learners(3, &[4, 5], VerdictKind::None)]
#[case::of_a_learner(4, &[1, 2], VerdictKind::Dead)]
#[case::of_a_learner_by_one(4, &[1], VerdictKind::None)]
#[case::of_a_learner_by_a_learner(4, &[1, 5], VerdictKind::None)]
fn learners_have_no_vote_and_are_voted_on(
    #[case] suspect: usize,
    #[case] voters: &[usize],
    #[case] dead: VerdictKind,
) {
    let mut zone = Fixture::new(5);
    zone.learners = vec![4, 5];
    let roster = zone.roster();
    let cast = |answer| -> Vec<Vote> {
        let votes = voters.iter().map(|voter| zone.vote(*voter, suspect, answer));
        votes.collect()
    };
    assert_eq!(
        tally(&roster, Fixture::id(suspect), &cast(Answer::No), false),
        dead
    );
    let alive = if dead == VerdictKind::Dead {
        VerdictKind::Alive
    } else {
        dead
    };
    assert_eq!(
        tally(&roster, Fixture::id(suspect), &cast(Answer::Yes), false),
        alive
    );
}

#[test]
fn a_learners_own_word_vetoes_its_death_and_is_no_vote_for_its_life() {
    let mut zone = Fixture::new(4);
    zone.learners = vec![4];
    let own = zone.vote(4, 4, Answer::Yes);
    let decide = |votes: &[Vote]| tally(&zone.roster(), Fixture::id(4), votes, false);
    let no: Vec<Vote> = (1..=3).map(|voter| zone.vote(voter, 4, Answer::No)).collect();
    assert_eq!(decide(&no), VerdictKind::Dead);
    assert_eq!(decide(&[no[0], no[1], no[2], own]), VerdictKind::None);
    assert_eq!(decide(&[zone.vote(1, 4, Answer::Yes), own]), VerdictKind::None);
}

#[test]
fn one_voter_among_learners_decides_nothing() {
    let mut zone = Fixture::new(3);
    zone.learners = vec![2, 3];
    let no = [zone.vote(1, 2, Answer::No)];
    assert_eq!(
        tally(&zone.roster(), Fixture::id(2), &no, false),
        VerdictKind::None
    );
}

#[test]
fn a_vote_bound_to_an_older_roster_counts_among_the_members_of_the_present_one() {
    let mut zone = Fixture::new(3);
    let old = |zone: &Fixture, voter| zone.vote(voter, 3, Answer::No);
    let votes = [old(&zone, 1), old(&zone, 2)];
    let decide = |zone: &Fixture, votes: &[Vote]| tally(&zone.roster(), Fixture::id(3), votes, false);
    assert_eq!(decide(&zone, &votes), VerdictKind::Dead);
    zone.grow();
    // Two of three then, two of four now.
    assert_eq!(decide(&zone, &votes), VerdictKind::None);
    let with_new = [votes[0], votes[1], zone.vote(4, 3, Answer::No)];
    assert_eq!(decide(&zone, &with_new), VerdictKind::Dead);
    zone.grow();
    assert_eq!(decide(&zone, &with_new), VerdictKind::Dead);
    // Two rosters of one version: one of them is not ours.
    let mut forged = with_new;
    forged[0].roster = crate::roster::RosterRef {
        version: 3,
        ..forged[0].roster
    };
    assert_eq!(decide(&zone, &forged), VerdictKind::None);
}

/// With 101 voters sampled of 201 members, 45 % of them could convict the others (hazard 42).
#[test]
fn no_sample_decides_whatever_the_size() {
    let zone = Fixture::new(201);
    let votes: Vec<Vote> = (1..=101).map(|voter| zone.vote(voter, 201, Answer::No)).collect();
    let roster = zone.roster();
    let decide = |votes: &[Vote]| tally(&roster, Fixture::id(201), votes, false);
    assert_eq!(decide(&votes[..100]), VerdictKind::None);
    assert_eq!(decide(&votes), VerdictKind::Dead);
}
