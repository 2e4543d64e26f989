//! Coordinated election: somebody else writes who leads.

use super::*;

fn coordinated(config: Config) -> Config {
    Config {
        coordinated: true,
        on_loss: OnLoss::Stop,
        ..config
    }
}

fn given_to(holder: &str, preferred: &str) -> Record {
    Record {
        strategy: "OldestEmulationVersion".into(),
        preferred_holder: preferred.into(),
        ..taken_by(holder, 10, 2)
    }
}

/// Upstream's tryCoordinatedRenew table, and the other ways not to lead.
#[rstest]
#[case::dont_acquire_from_led_acked_object(Some(given_to("bing", "")), false, &["get"])]
#[case::renew_already_acquired_object(Some(given_to("baz", "")), true, &["get", "update"])]
#[case::never_create(None, false, &["get"])]
#[case::never_take_a_free_one(Some(given_to("", "")), false, &["get"])]
#[case::end_of_term(Some(given_to("baz", "bing")), false, &["get"])]
fn one_attempt(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] before: Option<Record>,
    #[case] success: bool,
    #[case] calls: &[&str],
) {
    let mut world = World::new(coordinated(config));
    before.clone().into_iter().for_each(|record| world.put(record));
    world.attempt();
    assert_eq!(world.me().leads(), success);
    assert_eq!(world.me().calls(), calls);
    if !success {
        assert_eq!(world.lease.map(|lease| lease.record), before, "left alone");
    }
}

/// A renewal keeps all that the coordinator wrote, and reads each time.
#[rstest]
fn a_renewal_keeps_strategy_and_transitions(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(coordinated(config), given_to("baz", ""));
    world.until(2_500);
    let wall = |millis| Some(world::now(after(millis), 0.0).wall);
    let expected = Record {
        acquire_time: wall(0),
        renew_time: wall(2_000),
        ..given_to("baz", "")
    };
    assert_eq!(world.record(), expected);
    assert!(world.me().calls().chunks(2).all(|pair| pair == ["get", "update"]));
    assert_eq!(world.me().machine.state().token(), Some(&token(1, 2)));
}

/// A record that names us but expired unseen is not renewed: the coordinator will choose again.
#[rstest]
fn an_expired_record_is_not_renewed(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(coordinated(config), given_to("baz", ""));
    world.fates = [Fate::Served, Fate::Refused].into();
    world.attempt();
    world.me().forget();
    world.at = after(10_001);
    world.attempt();
    assert_eq!(world.me().calls(), ["get"]);
    assert!(!world.me().leads());
}

/// A coordinator that prefers another: client-go stops renewing and fails at its deadline; ours ends the
/// work, gives the lock back and stays a candidate.
#[test]
fn client_gos_term_ends_at_the_deadline() {
    let mut world = World::with(coordinated(upstream_baz()), given_to("baz", ""));
    world.until(3_000);
    let mut record = world.record();
    record.preferred_holder = "bing".into();
    world.put(record.clone());
    world.until(10_999);
    assert!(world.me().leads());
    world.until(11_000);
    assert_eq!(world.me().losses(), [(11_000, Loss::Deadline)]);
    assert_eq!(world.record(), record, "left to run out");
}

#[rstest]
#[case::seen_on_the_watch(true, 3_000)]
#[case::seen_by_reading(false, 4_000)]
fn our_term_ends_when_the_work_has(#[case] watches: bool, #[case] seen: u64) {
    let mut world = World::with(coordinated(baz()), given_to("baz", ""));
    world.me().watches = watches;
    world.me().drains_in = Some(ms(300));
    world.until(3_000);
    let mut record = world.record();
    record.preferred_holder = "bing".into();
    world.put(record);
    world.until(20_000);
    assert_eq!(
        world.me().losses(),
        [(seen + 300, Loss::EndOfTerm("bing".into()))]
    );
    assert_eq!(world.me().open_ms(), [(0, seen + 300)]);
    // The API refuses a preference where nobody holds; the strategy stays.
    let record = world.record();
    assert_eq!((&*record.holder, &*record.preferred_holder), ("", ""));
    assert_eq!(record.strategy, "OldestEmulationVersion");
    assert_eq!(world.me().stopped(), None);
    // The coordinator may come back to us at any time.
    world.put(given_to("baz", ""));
    world.until(25_000);
    assert!(world.me().leads());
}

/// Also within a lease duration of the end of the last term: it is not ours to say who comes next.
#[test]
fn a_candidate_chosen_again_soon_leads_again_soon() {
    let mut world = World::with(coordinated(baz()), given_to("baz", ""));
    world.me().watches = true;
    world.until(3_000);
    world.put(given_to("baz", "bing"));
    world.until(4_000);
    assert_eq!(world.holder(), "");
    world.put(given_to("baz", ""));
    world.until(4_300);
    assert!(world.me().leads());
}

/// A lock that was deleted is the coordinator's to make anew; whom it names then need not wait.
#[test]
fn a_candidate_named_in_a_new_lock_leads_at_once() {
    let config = Config {
        on_loss: OnLoss::Campaign,
        ..coordinated(baz())
    };
    let mut world = World::with(config, given_to("baz", ""));
    world.me().watches = true;
    world.until(3_000);
    world.delete();
    world.until(3_500);
    assert!(!world.me().leads());
    world.put(given_to("baz", ""));
    world.until(4_000);
    assert_eq!(world.me().machine.state().token(), Some(&token(2, 2)));
}

/// Renewing against the coordinator's will is no use: a term that ends is over at its deadline though work
/// goes on.
#[test]
fn a_term_that_ends_is_not_renewed() {
    let mut world = World::with(coordinated(baz()), given_to("baz", ""));
    world.me().drains_in = None;
    world.until(3_000);
    world.put(given_to("baz", "bing"));
    world.until(60_000);
    assert_eq!(world.me().open_ms(), [(0, 9_000)]);
    assert_eq!(world.record(), given_to("baz", "bing"));
    assert_eq!(world.me().losses().len(), 1);
}

/// Kubernetes' coordinator counts no transitions: another candidate may have led in between, unseen, under
/// the same token.
#[test]
fn a_term_that_was_lost_is_not_recovered() {
    let config = Config {
        on_loss: OnLoss::Campaign,
        ..coordinated(baz())
    };
    let mut world = World::with(config, given_to("baz", ""));
    world.outages.push(Outage::of(0, 1_000..20_000, Fate::Refused));
    world.until(12_000);
    assert_eq!(world.me().losses(), [(7_000, Loss::Deadline)]);
    world.put(given_to("bing", ""));
    world.until(15_000);
    world.put(given_to("baz", ""));
    world.until(30_000);
    assert!(matches!(world.me().machine.state(), State::Leading { .. }));
}

#[rstest]
#[case::another_chosen(Some(given_to("bing", "")), Loss::OtherHolder("bing".into()))]
#[case::nobody_chosen(Some(given_to("", "")), Loss::Blanked)]
#[case::deleted(None, Loss::Deleted)]
fn our_leader_that_is_no_holder_any_more_stops_at_once(
    #[case] stands: Option<Record>,
    #[case] loss: Loss,
    #[values(false, true)] watches: bool,
) {
    let mut world = World::with(coordinated(baz()), given_to("baz", ""));
    world.me().watches = watches;
    world.until(3_000);
    match stands {
        Some(record) => world.put(record),
        None => world.delete(),
    }
    world.until(20_000);
    let at = if watches { 3_000 } else { 4_000 };
    assert_eq!(world.me().losses(), [(at, loss)]);
}

/// Chosen while following: at once where a watch tells.
#[rstest]
#[case::ours(baz(), true, 550)]
#[case::ours_polling(baz(), false, 3_200)]
#[case::client_gos(upstream_baz(), true, 3_200)]
fn a_candidate_that_is_chosen_leads(#[case] config: Config, #[case] watches: bool, #[case] at: u64) {
    let mut world = World::with(coordinated(config), given_to("", ""));
    world.me().watches = watches;
    world.until(500);
    world.put(given_to("baz", ""));
    world.until(10_000);
    assert_eq!(world.me().open_ms()[0].0, at);
}

/// Two processes chosen under one name cannot be told apart here; that is the coordinator's business.
#[test]
fn a_predecessor_is_no_matter_in_a_coordinated_election() {
    let mut world = World::with(coordinated(baz()), given_to("baz", ""));
    world.attempt();
    assert!(world.me().leads());
}
