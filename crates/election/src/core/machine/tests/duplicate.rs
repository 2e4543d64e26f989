//! One identity, two candidates; and one candidate after another of the same name.

use super::*;

fn renewed(holder: &str, micros: i64) -> Record {
    Record {
        renew_time: Some(Timestamp::from_microsecond(1_700_000_000_000_000 + micros).unwrap()),
        ..taken_by(holder, 10, 3)
    }
}

/// What a predecessor of our name left is left alone until it expires: it may run still.
#[rstest]
fn a_predecessors_record_is_taken_when_it_has_expired(#[values(false, true)] watches: bool) {
    let mut world = World::with(baz(), renewed("baz", 0));
    world.me().watches = watches;
    world.until(9_999);
    assert!(!world.me().leads());
    assert_eq!(
        world.me().machine.state(),
        &State::Following {
            leader: Some("baz".into())
        }
    );
    world.until(10_200);
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 4, "a new term");
    assert_eq!(world.me().machine.state().token(), Some(&token(1, 4)));
}

fn acquired(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(1_700_000_000_000_000 + micros).unwrap()
}

fn left() -> Record {
    Record {
        acquire_time: Some(acquired(0)),
        ..renewed("baz", 0)
    }
}

fn ended(uid: u32, transitions: i32, micros: i64) -> Event {
    Event::Ended(Term {
        token: token(uid, transitions),
        acquired: Some(acquired(micros)),
    })
}

/// What a predecessor left that is proven to have ended is taken at once, as a new term.
#[rstest]
#[case::known_from_the_start(0, 100)]
#[case::proven_later(4_000, 4_100)]
fn a_predecessors_record_is_taken_when_it_is_proven_to_have_ended(
    #[case] at: u64,
    #[case] until: u64,
    #[values(false, true)] watches: bool,
) {
    let mut world = World::with(baz(), left());
    world.me().watches = watches;
    world.until(at);
    assert!(!world.me().leads());
    world.send(ended(1, 3, 0));
    world.until(until);
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 4, "a new term");
    world.until(30_000);
    assert!(world.me().leads());
}

/// Proof of another term is none, and neither is that of a term which somebody else of our name took.
#[rstest]
#[case::another_lock(ended(2, 3, 0))]
#[case::an_earlier_term(ended(1, 2, 0))]
#[case::taken_by_somebody_else(ended(1, 3, 1))]
fn a_proof_of_another_term_changes_nothing(#[case] event: Event) {
    let mut world = World::with(baz(), left());
    world.send(event);
    world.until(9_999);
    assert!(!world.me().leads());
    world.until(10_200);
    assert!(world.me().leads());
}

/// A record that says nothing of when it was taken is not told from others.
#[test]
fn a_term_without_a_time_is_not_proven() {
    let mut world = World::with(baz(), renewed("baz", 0));
    world.send(Event::Ended(Term {
        token: token(1, 3),
        acquired: None,
    }));
    world.until(9_999);
    assert!(!world.me().leads());
}

/// Neither client-go nor a coordinated candidate takes it.
#[rstest]
#[case::client_go(Config { compat: Compat::ClientGo, ..baz() })]
#[case::coordinated(Config { coordinated: true, ..baz() })]
fn where_other_rules_hold_a_proof_changes_nothing(#[case] config: Config) {
    let run = |proof: Option<Event>| {
        let mut world = World::with(config.clone(), left());
        if let Some(proof) = proof {
            world.send(proof);
        }
        world.until(9_000);
        (world.record(), world.me().open())
    };
    assert_eq!(run(Some(ended(1, 3, 0))), run(None));
}

/// Another holder's record is never taken for a predecessor's.
#[test]
fn a_proof_is_of_our_own_identity() {
    let foreign = Record {
        holder: "bar".into(),
        ..left()
    };
    let mut world = World::with(baz(), foreign);
    world.send(ended(1, 3, 0));
    world.until(9_999);
    assert!(!world.me().leads());
}

/// Its last renewal may have been under way when it ended.
#[rstest]
fn a_last_renewal_of_a_predecessor_that_has_ended_is_no_duplicate(#[values(false, true)] watches: bool) {
    let mut world = World::with(baz(), left());
    world.me().watches = watches;
    world.until(500);
    let last = Record {
        acquire_time: Some(acquired(0)),
        ..renewed("baz", 1)
    };
    world.send(ended(1, 3, 0));
    world.put(last);
    world.until(3_000);
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 4);
}

/// A second one cannot have been: whoever is said to have ended runs.
#[test]
fn a_predecessor_that_is_proven_to_have_ended_and_renews_twice_is_a_duplicate() {
    let mut world = World::with(baz(), left());
    world.me().watches = true;
    world.until(500);
    world.send(ended(1, 3, 0));
    for micros in [1, 2] {
        world.put(Record {
            acquire_time: Some(acquired(0)),
            ..renewed("baz", micros)
        });
    }
    world.until(60_000);
    assert_eq!(world.me().stopped(), Some((500, StopReason::DuplicateIdentity)));
    assert!(world.me().open().is_empty());
}

/// One that is renewed while we look at it runs now.
#[rstest]
#[case::seen_on_the_watch(true)]
#[case::seen_by_reading(false)]
fn a_predecessor_that_renews_is_a_duplicate(#[case] watches: bool) {
    let mut world = World::with(baz(), renewed("baz", 0));
    world.me().watches = watches;
    world.until(1_000);
    world.put(renewed("baz", 1));
    world.until(60_000);
    let at = if watches { 1_000 } else { 3_200 };
    assert_eq!(world.me().stopped(), Some((at, StopReason::DuplicateIdentity)));
    assert_eq!(world.record(), renewed("baz", 1), "left as it is");
    assert!(world.me().open().is_empty());
}

/// A label on it is no renewal.
#[test]
fn a_predecessors_record_that_is_only_labelled_is_no_duplicate() {
    let mut world = World::with(baz(), renewed("baz", 0));
    world.until(1_000);
    world.put(renewed("baz", 0));
    world.until(20_000);
    assert!(world.me().leads());
}

/// Somebody writes under our name while we lead: one of the two must go, and it cannot be told which is
/// right.
#[rstest]
#[case::seen_on_the_watch(true, 3_000)]
#[case::seen_by_reading(false, 4_000)]
fn a_leader_that_finds_a_duplicate_ends(
    #[case] watches: bool,
    #[case] at: u64,
    #[values(OnLoss::Stop, OnLoss::Recover, OnLoss::Campaign)] on_loss: OnLoss,
) {
    let mut world = World::new(Config { on_loss, ..baz() });
    world.me().watches = watches;
    world.until(3_000);
    world.put(renewed("baz", 0));
    world.until(60_000);
    assert_eq!(world.me().losses(), [(at, Loss::DuplicateIdentity)]);
    assert_eq!(world.me().stopped(), Some((at, StopReason::DuplicateIdentity)));
    assert_eq!(world.me().open_ms(), [(0, at)]);
    assert_eq!(
        world.record(),
        renewed("baz", 0),
        "never released: it may be theirs"
    );
}

/// The same while the work of a term that ends anyway ends.
#[test]
fn a_duplicate_found_while_work_ends_keeps_us_from_releasing() {
    let mut world = World::new(baz());
    world.me().drains_in = Some(ms(5_000));
    world.me().watches = true;
    world.until(3_000);
    world.send(Event::Cancel);
    world.put(renewed("baz", 0));
    world.until(60_000);
    assert_eq!(world.me().stopped(), Some((8_000, StopReason::DuplicateIdentity)));
    assert_eq!(world.record(), renewed("baz", 0));
}

/// Two processes of one name on one free lock, ours: at most one acts, and one of them says what is wrong.
#[rstest]
fn of_two_with_one_name_at_most_one_leads(
    #[values(0, 700, 2_500)] later: u64,
    #[values(false, true)] watches: bool,
) {
    let mut world = World::new(baz());
    world.me().watches = watches;
    world.until(later);
    let other = world.add(baz());
    world.candidates[other].watches = watches;
    world.until(60_000);
    let ended = |candidate: &world::Candidate| {
        candidate
            .stopped()
            .is_some_and(|(_, reason)| reason == StopReason::DuplicateIdentity)
    };
    assert!(world.candidates.iter().any(ended));
    let (mine, theirs) = (world.candidates[0].open(), world.candidates[1].open());
    for (from, to) in &mine {
        assert!(
            theirs.iter().all(|(start, end)| to <= start || end <= from),
            "{mine:?} {theirs:?}"
        );
    }
}

/// client-go cannot tell: both lead (1.7, problem 11).
#[test]
fn client_gos_duplicates_both_lead() {
    let mut world = World::new(upstream_baz());
    world.until(500);
    world.add(upstream_baz());
    world.until(3_000);
    assert!(world.candidates.iter().all(world::Candidate::leads));
}

/// A record of ours that is older than the one we know: the store was set back, nobody else wrote.
#[test]
fn a_store_that_was_set_back_is_no_duplicate() {
    let mut world = World::new(baz());
    world.until(1_000);
    let old = world.lease.clone();
    world.until(60_000);
    world.lease = old;
    world.until(70_000);
    assert!(world.me().leads());
    assert!(world.me().losses().is_empty());
}

/// Writes of ours whose answers were lost, found later, in any order, are ours: none is a duplicate.
#[rstest]
#[case(Fate::Silent)]
#[case(Fate::ReplyLost)]
#[case(Fate::Delayed(ms(6_000)))]
#[case(Fate::Delayed(ms(1_900)))]
fn our_own_lost_writes_are_no_duplicates(#[case] fate: Fate, #[values(false, true)] watches: bool) {
    let mut world = World::new(ours("a"));
    world.me().timeout = Some(ms(5_000));
    world.me().watches = watches;
    for turn in 1..20 {
        world
            .outages
            .push(Outage::of(0, turn * 10_000..turn * 10_000 + 6_500, fate));
    }
    world.until(220_000);
    assert_eq!(world.me().stopped(), None);
    let duplicate = |(_, loss): &(u64, Loss)| *loss == Loss::DuplicateIdentity;
    assert!(!world.me().losses().iter().any(duplicate));
    assert!(world.me().leads());
}

/// A lock that keeps whole seconds cuts our times: they are ours all the same.
#[test]
fn our_times_in_whole_seconds_are_ours() {
    let mut world = World::new(baz());
    world.at = after(123);
    world.fates = [Fate::Served, Fate::ReplyLost].into();
    world.attempt();
    let mut cut = world.record();
    let second = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap();
    cut.renew_time = cut.renew_time.map(second);
    world.put(cut);
    world.attempt();
    assert!(world.me().leads());
}

/// The store serves reads and refuses writes for as long as you like (a full etcd, a broken webhook): the
/// record that stands is ours, however many writes over it have failed since.
#[rstest]
#[case::refused(Fate::Refused)]
#[case::nobody_knows(Fate::Hangs)]
fn a_store_that_takes_no_writes_makes_no_duplicate(#[case] fate: Fate, #[values(1_000, 100)] retry: u64) {
    let mut world = World::new(Config {
        retry_period: ms(retry),
        on_loss: OnLoss::Campaign,
        ..ours("a")
    });
    world.me().timeout = Some(ms(200));
    world.until(5_000);
    world.read_only = Some(fate);
    world.until(65_000);
    world.read_only = None;
    world.until(120_000);
    assert_eq!(world.me().stopped(), None);
    assert!(world.me().leads());
    assert_eq!(
        world.transitions(),
        0,
        "nobody else has led: the term was recovered"
    );
}

/// One write was done and not answered, and then nothing works for longer than a few writes, or for longer
/// than as many as are remembered.
#[rstest]
#[case(60)]
#[case(400)]
fn the_first_of_many_lost_writes_is_ours(#[case] lease: u64) {
    let mut world = World::new(Config {
        lease_duration: ms(lease * 1_000),
        renew_deadline: ms(lease * 900),
        retry_period: ms(1_000),
        ..ours("a")
    });
    world.until(500);
    world.fates = [Fate::ReplyLost].into();
    world
        .outages
        .push(Outage::of(0, 1_100..lease * 800, Fate::Refused));
    world.fates.push_back(Fate::Refused);
    world.until(lease * 1_000);
    assert_eq!(world.me().stopped(), None);
    assert!(world.me().leads());
}
