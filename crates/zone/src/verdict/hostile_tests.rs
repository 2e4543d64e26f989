//! What one hostile voter states of itself, and what it shows of others, moves no verdict (39, 41).

use super::*;
use crate::fixture::Fixture;
use crate::vote::Vote;
use crate::wire::{self, Answer, Ballot, ConfirmRequest, Facts, Header, Nonce, Renewal, Said};
use evenkeel_api::zone::SignedRound;
use rstest::rstest;

/// A reader for whom the zone has been seen to advance, at 0.
fn reader(zone: &Fixture) -> Book {
    let mut book = Book::new();
    book.roster(Millis(0), "shore", zone.roster());
    book.challenges(Millis(0), "shore", &[zone.issued(Millis(0))]);
    for at in [0, 1] {
        book.heartbeat(Millis(at), "shore", "node-1");
    }
    book
}

fn show(book: &mut Book, zone: &mut Fixture, now: u64, round: &SignedRound) {
    // Who shows it has shown something before: the age of what it shows is known.
    let (empty, full) = (zone.report(vec![]), zone.report(vec![round.clone()]));
    for report in [empty, full] {
        book.report(Millis(now), "shore", "node-2", &report);
    }
}

/// A ballot of node 2, which signs with its own key whatever it likes, whenever it likes.
fn forged(zone: &Fixture, request: &ConfirmRequest, answer: Answer, age: u32, uptime: u16) -> String {
    let header = Header {
        from: Fixture::id(2),
        sequence: 1 << 40,
        ..Header::default()
    };
    let said = vec![Said {
        index: 0,
        answer,
        contact_age: age,
        ..Said::default()
    }];
    let ballot = Ballot {
        request: request.digest(),
        roster: request.roster,
        uptime,
        said,
    };
    wire::to_evidence(&wire::sign(&header, ballot, zone.key(2)))
}

/// Of five members node 2 is hostile. Two others said no, or yes, in a round that it keeps back; then a
/// majority of the others with it, or without it, says the contrary and signs the next challenge. No voter
/// of the kept round but node 2 itself has said anything since, and node 2 signs it again.
#[rstest]
#[case::no_then_yes(Answer::No, &[1, 2, 5])]
#[case::yes_then_no(Answer::Yes, &[1, 2, 5])]
fn what_signs_the_challenge_before_takes_nothing_from_what_signs_the_current_one(
    #[case] kept: Answer,
    #[case] others: &[usize],
) {
    let (mut zone, suspect) = (Fixture::new(6), 6);
    zone.learners = vec![6];
    let mut book = reader(&zone);
    let request = zone.request(&[suspect], 1);
    let votes = [3, 4].map(|voter| (voter, vec![zone.vote(voter, suspect, kept)]));
    let mut hoarded = zone.round(&request, 0, &votes);
    let before = zone.issued(Millis(0));
    zone.challenge = Challenge([8; 16]);
    let current = zone.issued(Millis(10_000));
    book.challenges(Millis(10_000), "shore", &[current, before]);
    let since = match kept {
        Answer::No => zone.alive(suspect, others, 2, Facts::default()),
        _ => zone.dead(suspect, others, 2),
    };
    show(&mut book, &mut zone, 11_000, &since);
    // The same again under the challenge before, as a reporter shows it that lags, or one that means harm.
    let (current_one, one_before) = (zone.challenge, before.challenge);
    zone.challenge = one_before;
    let again = match kept {
        Answer::No => zone.alive(suspect, others, 3, Facts::default()),
        _ => zone.dead(suspect, others, 3),
    };
    zone.challenge = current_one;
    show(&mut book, &mut zone, 11_500, &again);
    let stands = book.verdict(&Fixture::uid(suspect));
    assert!(!matches!(stands, Verdict::None(_)), "{stands:?}");
    hoarded.ballots.push(forged(
        &zone,
        &request,
        kept,
        u32::MAX * u32::from(kept == Answer::No),
        3_600,
    ));
    show(&mut book, &mut zone, 12_000, &hoarded);
    assert_eq!(book.verdict(&Fixture::uid(suspect)), stands);
    // Without anything newer the same round counts: it is void for its challenge alone.
    let mut other = reader(&zone);
    other.challenges(Millis(10_000), "shore", &[current, before]);
    show(&mut other, &mut zone, 12_000, &hoarded);
    assert!(!matches!(other.verdict(&Fixture::uid(suspect)), Verdict::None(_)));
}

/// A death is confirmed by what a majority states of its silence. However long the silence is that one
/// states, the figure is one that an honest member stated.
#[rstest]
#[case(3, &[4_000], 4_000)]
#[case(4, &[4_000, 9_000], 4_000)]
#[case(5, &[4_000, 9_000], 4_000)]
#[case(5, &[4_000, 9_000, 7_000], 7_000)]
fn one_that_forges_ages_does_not_lengthen_the_silence_of_a_majority(
    #[case] members: u8,
    #[case] honest: &[u32],
    #[case] expected: u64,
) {
    let mut zone = Fixture::new(members);
    let suspect = usize::from(members);
    let voters = [1, 3, 4].into_iter().zip(honest);
    let request = zone.request(&[suspect], 1);
    let votes: Vec<_> = voters
        .map(|(voter, age)| {
            let vote = zone.vote(voter, suspect, Answer::No);
            let contact_age = *age;
            (voter, vec![Vote { contact_age, ..vote }])
        })
        .collect();
    let mut round = zone.round(&request, 0, &votes);
    round
        .ballots
        .push(forged(&zone, &request, Answer::No, u32::MAX, 3_600));
    let mut book = reader(&zone);
    show(&mut book, &mut zone, 9_000, &round);
    let Verdict::Dead(death) = book.verdict(&Fixture::uid(suspect)) else {
        panic!("a majority says no");
    };
    assert_eq!(death.silence_ms, expected);
}

/// Evidence of life is as fresh as a majority of contacts is: one that states a contact just now does not
/// freshen what the others state.
#[test]
fn one_that_forges_a_contact_does_not_lengthen_a_life() {
    let mut zone = Fixture::new(3);
    let request = zone.request(&[1], 1);
    let vote = Vote {
        contact_age: 4_000,
        ..zone.vote(3, 1, Answer::Yes)
    };
    let mut round = zone.round(&request, 0, &[(3, vec![vote])]);
    round.ballots.push(forged(&zone, &request, Answer::Yes, 0, 3_600));
    let mut book = reader(&zone);
    show(&mut book, &mut zone, 9_000, &round);
    let Verdict::Alive(alive) = book.verdict(&Fixture::uid(1)) else {
        panic!("a majority says yes");
    };
    assert_eq!(alive.until, Millis(9_000 + ALIVE_TTL_MS - 4_000));
}

/// Confirmations wait while more than half of a cell booted just now (43). One that says so of itself is not
/// more than half, also where no more than a majority is shown.
#[rstest]
#[case(3, &[1])]
#[case(4, &[1, 3])]
#[case(5, &[1, 3])]
fn one_that_forges_its_boot_holds_no_death_back(#[case] members: u8, #[case] honest: &[usize]) {
    let mut zone = Fixture::new(members);
    let suspect = usize::from(members);
    let mut round = zone.dead(suspect, honest, 1);
    let request = zone.request(&[suspect], 1);
    round
        .ballots
        .push(forged(&zone, &request, Answer::No, u32::MAX, 0));
    let mut book = reader(&zone);
    show(&mut book, &mut zone, 9_000, &round);
    assert!(matches!(book.verdict(&Fixture::uid(suspect)), Verdict::Dead(_)));
    assert!(!book.is_returning("shore", Millis(9_000)));
}

/// Cells that only reports speak of are forgotten with them.
#[test]
fn cells_that_somebody_makes_up_leave_nothing_behind() {
    let mut zone = Fixture::new(3);
    let mut book = Book::new();
    book.roster(Millis(0), "shore", zone.roster());
    for cell in 0..100 {
        let report = zone.report(vec![]);
        for name in [format!("made-up-{cell}"), "shore".to_owned()] {
            book.report(Millis(1), &name, "node-1", &report);
            book.forget_report(&name, "node-1");
        }
    }
    assert_eq!(book.cells.len(), 1);
}

/// Who asks for votes names the suspect's last renewal, and no voter vouches for it. One that names an older
/// or a later one than the reader has seen holds up no death that others asked for as they should, whichever
/// is shown first.
#[rstest]
#[case::older(6)]
#[case::later(900)]
fn a_renewal_that_one_makes_up_takes_nothing_from_the_death_that_names_the_last(#[case] made_up: u64) {
    let mut zone = Fixture::new(5);
    let named = |book: &Book| match book.verdict(&Fixture::uid(5)) {
        Verdict::Dead(death) => Some((death.renewal, death.round)),
        _ => None,
    };
    let round = |zone: &mut Fixture, renewal: u64, number: u8| {
        zone.renewal = Some(Renewal(renewal));
        zone.dead(5, &[1, 3, 4], number)
    };
    let (honest, forged, later) = (
        round(&mut zone, 7, 1),
        round(&mut zone, made_up, 2),
        round(&mut zone, 7, 3),
    );
    for forged_first in [false, true] {
        let mut book = reader(&zone);
        book.renewed(&Fixture::uid(5), Some(Renewal(7)));
        if forged_first {
            show(&mut book, &mut zone, 10, &forged);
            assert_eq!(named(&book), Some((Renewal(made_up), Nonce([2; 16]))));
        }
        show(&mut book, &mut zone, 20, &honest);
        assert_eq!(named(&book), Some((Renewal(7), Nonce([1; 16]))));
        show(&mut book, &mut zone, 30, &forged);
        assert_eq!(named(&book), Some((Renewal(7), Nonce([1; 16]))));
        show(&mut book, &mut zone, 40, &later);
        assert_eq!(named(&book), Some((Renewal(7), Nonce([3; 16]))));
        // It has renewed, and the reader has seen it: then the round that names that one counts.
        book.renewed(&Fixture::uid(5), Some(Renewal(made_up)));
        let again = round(&mut zone, made_up, 4);
        show(&mut book, &mut zone, 50, &again);
        assert_eq!(named(&book), Some((Renewal(made_up), Nonce([4; 16]))));
    }
}

/// Whoever reads reports does nothing else meanwhile.
#[test]
fn no_report_costs_more_than_a_bounded_number_of_checks() {
    let mut zone = Fixture::new(5);
    let mut book = reader(&zone);
    let many = (1..=128).map(|round| zone.dead(5, &[1, 2, 3, 4], round));
    let mut rounds: Vec<SignedRound> = many.collect();
    rounds.push(zone.dead(4, &[1, 2, 3], 200));
    let report = zone.report(rounds);
    let refused = book.report(Millis(10), "shore", "node-2", &report);
    assert_eq!(refused, [Refusal::TooManyBallots(512)]);
    assert!(matches!(book.verdict(&Fixture::uid(5)), Verdict::Dead(_)));
    assert_eq!(
        book.verdict(&Fixture::uid(4)),
        Verdict::None(NoVerdict::NotListed)
    );
}
