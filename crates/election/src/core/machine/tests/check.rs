//! `Check`: upstream's healthzadaptor table (tolerance 20 s, lease duration 60 s, name foo), and S14.

use super::*;

const TOLERANCE: Duration = Duration::from_secs(20);

fn sixty(config: Config) -> Config {
    Config {
        lease_duration: ms(60_000),
        renew_deadline: ms(40_000),
        ..config
    }
}

/// "Expired": held by us or by somebody else, and how long after the last change it is looked at.
#[rstest]
#[case::expired_no_leader_elector(None, 3_600_000, true)]
#[case::expired_held_by_us(Some("baz"), 3_600_000, false)]
#[case::expired_held_by_another(Some("otherServer"), 3_600_000, true)]
#[case::not_expired(Some("baz"), 0, true)]
#[case::expired_within_tolerance(Some("baz"), 61_000, true)]
#[case::at_the_end_of_the_tolerance(Some("baz"), 80_000, true)]
#[case::after_the_end_of_the_tolerance(Some("baz"), 80_001, false)]
fn a_leader_whose_loop_is_stuck_is_unhealthy(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] holder: Option<&str>,
    #[case] later: u64,
    #[case] healthy: bool,
) {
    let mut world = World::new(sixty(config));
    match holder {
        None => world.fates = [Fate::Refused].into(),
        Some("baz") => {}
        Some(other) => world.put(taken_by(other, 60, 0)),
    }
    world.attempt();
    let checked = world.me().machine.check(after(later), TOLERANCE, "foo");
    let text = "failed election to renew leadership on lease foo".to_owned();
    assert_eq!(checked, if healthy { Ok(()) } else { Err(text) });
}

/// S14: who cannot renew, and tries, is healthy; with timers so tight that one attempt almost fills the
/// duration, too.
#[rstest]
#[case::client_gos(upstream_a(), TOLERANCE)]
#[case::client_gos_tight(Config { renew_deadline: ms(14_000), ..upstream_a() }, Duration::ZERO)]
#[case::ours(ours("a"), TOLERANCE)]
#[case::ours_tight(Config { renew_deadline: ms(14_000), ..ours("a") }, Duration::ZERO)]
fn who_goes_on_trying_is_healthy(#[case] config: Config, #[case] tolerance: Duration) {
    let mut world = World::new(config);
    world.outages = vec![Outage::of(0, 5_000..600_000, Fate::Hangs)];
    let mut lost = false;
    for tenth in 0..6_000 {
        world.until(tenth * 100);
        let at = world.at;
        let machine = &world.me().machine;
        lost |= matches!(machine.state(), State::Lost { .. });
        if lost {
            assert_eq!(machine.check(at, tolerance, "foo"), Ok(()), "at {tenth}00 ms");
        }
    }
    assert!(lost);
}

/// S14: a loop that does not even try.
#[rstest]
#[case::client_gos(upstream_a(), 16_000)]
#[case::ours(ours("a"), 14_000)]
fn a_recovery_that_is_stuck_is_unhealthy(#[case] config: Config, #[case] lost: u64) {
    let mut world = World::new(config);
    world.outages = vec![Outage::of(0, 5_000..600_000, Fate::Hangs)];
    world.until(lost);
    let (last, _) = world
        .me()
        .requests()
        .into_iter()
        .rev()
        .find(|(_, call)| *call == "update")
        .unwrap();
    let limit = after(last) + ms(15_000) + TOLERANCE;
    assert_eq!(world.me().machine.check(limit, TOLERANCE, "foo"), Ok(()));
    let text = "election loop for lease foo stopped attempting to renew leadership".to_owned();
    assert_eq!(
        world.me().machine.check(limit + ms(1), TOLERANCE, "foo"),
        Err(text)
    );
}

/// S14: leading, renewed at 4 s for the last time, and stuck: unhealthy after 4 + 15 + 20 s.
#[rstest]
fn a_leader_that_is_stuck_is_unhealthy(#[values(upstream_a(), ours("a"))] config: Config) {
    let mut world = World::new(config);
    world.until(5_000);
    world.me().dead = true;
    let check = |world: &mut World, millis| world.me().machine.check(after(millis), TOLERANCE, "foo");
    assert_eq!(check(&mut world, 39_000), Ok(()));
    let text = "failed election to renew leadership on lease foo".to_owned();
    assert_eq!(check(&mut world, 39_001), Err(text));
}

/// The work of a term is guarded by it: what outlasts the lock by so much is stuck.
#[test]
fn work_that_outlasts_its_term_is_unhealthy() {
    let mut world = World::new(Config {
        on_loss: OnLoss::Campaign,
        ..ours("a")
    });
    world.me().drains_in = None;
    world.until(5_000);
    world.put(taken_by("b", 15, 1));
    world.until(39_000);
    assert_eq!(world.me().machine.check(after(39_000), TOLERANCE, "foo"), Ok(()));
    let text = "the work guarded by lease foo has not ended with its term".to_owned();
    assert_eq!(
        world.me().machine.check(after(39_001), TOLERANCE, "foo"),
        Err(text)
    );
    world.send(Event::Drained);
    assert_eq!(world.me().machine.check(after(39_001), TOLERANCE, "foo"), Ok(()));
}

/// Who has ended, cleanly or not, is not stuck.
#[rstest]
fn a_candidate_that_has_ended_is_healthy(#[values(upstream_a(), ours("a"))] config: Config) {
    let mut world = World::new(config);
    world.until(5_000);
    world.send(Event::Cancel);
    world.until(5_000);
    assert!(world.me().stopped().is_some());
    assert_eq!(
        world.me().machine.check(after(3_600_000), TOLERANCE, "foo"),
        Ok(())
    );
}
