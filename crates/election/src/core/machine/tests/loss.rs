//! How a term is lost other than by the deadline, and what follows.

use super::*;

fn losing(on_loss: OnLoss, watches: bool) -> World {
    let mut world = World::new(Config { on_loss, ..ours("a") });
    world.me().watches = watches;
    world.until(5_000);
    world
}

/// At the next renewal, or at once where a watch tells.
#[rstest]
#[case::another_holder(Some(taken_by("b", 15, 1)), Loss::OtherHolder("b".into()))]
#[case::blanked(Some(taken_by("", 15, 0)), Loss::Blanked)]
#[case::deleted(None, Loss::Deleted)]
fn a_leader_that_lost_the_record_stops_at_once(
    #[case] stands: Option<Record>,
    #[case] loss: Loss,
    #[values(OnLoss::Stop, OnLoss::Recover)] on_loss: OnLoss,
    #[values(false, true)] watches: bool,
) {
    let mut world = losing(on_loss, watches);
    match stands {
        Some(record) => world.put(record),
        None => world.delete(),
    }
    let lost = if watches { 5_000 } else { 6_000 };
    world.until(60_000);
    assert_eq!(world.me().losses(), [(lost, loss.clone())]);
    assert_eq!(world.me().open_ms(), [(0, lost)]);
    assert_eq!(world.me().stopped(), Some((lost, StopReason::Lost(loss))));
    assert_ne!(world.holder(), "a", "nothing is taken back or released");
    let first = world
        .me()
        .log
        .iter()
        .position(|(_, action)| *action == Action::CloseGate);
    let drain = world
        .me()
        .log
        .iter()
        .position(|(_, action)| *action == Action::Drain);
    assert!(first < drain, "the gate closes before the work is told");
}

/// The same when the candidate campaigns on: a new term, with a new token.
#[rstest]
#[case::blanked(Some(taken_by("", 15, 0)), token(1, 1))]
#[case::deleted(None, token(2, 0))]
#[case::made_anew_under_our_name(Some(taken_by("a", 1, 0)), token(2, 1))]
fn who_campaigns_on_gets_a_new_token(
    #[case] stands: Option<Record>,
    #[case] next: FencingToken,
    #[values(false, true)] watches: bool,
) {
    let mut world = losing(OnLoss::Campaign, watches);
    let anew = stands.as_ref().is_some_and(|record| record.holder == "a");
    if anew || stands.is_none() {
        world.delete();
    }
    if let Some(record) = stands {
        world.put(record);
    }
    world.until(30_000);
    if anew {
        // Somebody else writes under our name: that is worse than a loss.
        assert_eq!(world.me().stopped().unwrap().1, StopReason::DuplicateIdentity);
        return;
    }
    let tokens = world
        .me()
        .states()
        .into_iter()
        .filter_map(|(_, state)| state.token().cloned());
    assert_eq!(tokens.collect::<Vec<_>>(), [token(1, 0), next]);
    assert!(world.me().leads());
    let announced: Vec<Announcement> = world.me().announced().into_iter().map(|(_, what)| what).collect();
    let (became, stopped) = (Announcement::BecameLeader, Announcement::StoppedLeading);
    assert_eq!(announced, [became, stopped, became]);
}

/// The record a leader lost is not taken back while its new holder keeps it.
#[test]
fn who_campaigns_on_follows_the_new_holder() {
    let mut world = losing(OnLoss::Campaign, true);
    for second in 5..60 {
        world.until(second * 1_000);
        world.put(Record {
            renew_time: Some(world::now(world.at, 0.0).wall),
            ..taken_by("b", 15, 1)
        });
    }
    assert_eq!(
        world.me().machine.state(),
        &State::Following {
            leader: Some("b".into())
        }
    );
    let leaders: Vec<String> = world
        .me()
        .leaders()
        .into_iter()
        .map(|(_, holder)| holder)
        .collect();
    assert_eq!(leaders, ["a", "b"]);
    assert_eq!(world.holder(), "b");
}

/// A loss by the deadline is a pause of the term, not its end, unless the candidate is to stop.
#[rstest]
#[case::stop(OnLoss::Stop)]
#[case::recover(OnLoss::Recover)]
#[case::campaign(OnLoss::Campaign)]
fn what_follows_the_deadline(#[case] on_loss: OnLoss) {
    let mut world = losing(on_loss, false);
    world.outages = vec![Outage::of(0, 5_000..20_000, Fate::Refused)];
    world.until(40_000);
    let (token, loss) = (token(1, 0), Loss::Deadline);
    let states: Vec<(u64, State)> = world.me().states().into_iter().skip(1).collect();
    if on_loss == OnLoss::Stop {
        let reason = StopReason::Lost(loss);
        assert_eq!(states.last(), Some(&(14_000, State::Stopped { reason })));
        assert_eq!(world.me().count(&Action::Drain), 1);
        return;
    }
    let lost = State::Lost {
        token: token.clone(),
        loss,
    };
    let recovered = State::Recovered {
        token,
        valid_until: after(30_000),
    };
    assert_eq!(states, [(14_000, lost), (20_000, recovered)]);
    assert_eq!(world.me().count(&Action::Drain), 0, "the work stays");
    assert_eq!(world.me().leaders(), [(0, "a".to_owned())]);
}

/// A recovery deadline ends a candidate, or the term of one that campaigns.
#[rstest]
#[case::recover(OnLoss::Recover)]
#[case::campaign(OnLoss::Campaign)]
fn a_recovery_deadline_ends_the_term(#[case] on_loss: OnLoss) {
    let mut world = World::new(Config {
        on_loss,
        recovery_deadline: Some(ms(30_000)),
        ..ours("a")
    });
    world.outages = vec![Outage::of(0, 5_000..100_000, Fate::Refused)];
    world.until(43_999);
    assert_eq!(world.me().count(&Action::Drain), 0);
    world.until(44_000);
    assert_eq!(world.me().count(&Action::Drain), 1);
    world.until(120_000);
    if on_loss == OnLoss::Recover {
        assert_eq!(world.me().stopped(), Some((44_000, StopReason::RecoveryDeadline)));
    } else {
        assert!(world.me().leads());
        assert_eq!(world.me().announced().len(), 3);
    }
}

/// An answer late enough to have missed the deadline, but whose request was not, recovers what was lost.
#[test]
fn a_renewal_that_was_in_time_recovers_though_its_answer_was_not() {
    let mut world = losing(OnLoss::Recover, false);
    world.fates = [Fate::SlowAnswer(ms(9_000))].into();
    world.until(20_000);
    assert_eq!(world.me().open_ms()[..1], [(0, 14_000)]);
    let (at, state) = world.me().states().pop().unwrap();
    assert_eq!(at, 15_000);
    assert!(matches!(state, State::Recovered { valid_until, .. } if valid_until == after(16_000)));
}

/// When the others may take over: from the start of the last successful write, by the duration in the record.
#[test]
fn the_expiry_is_counted_from_the_start_of_the_last_write() {
    let mut world = World::new(Config {
        lease_duration: ms(14_500),
        ..ours("a")
    });
    world.until(5_000);
    assert_eq!(world.record().lease_duration_seconds, 15, "rounded up");
    assert_eq!(world.me().machine.expires_at(), Some(after(19_000)));
    world.outages = vec![Outage::of(0, 5_000..50_000, Fate::Hangs)];
    world.until(15_000);
    assert_eq!(world.me().machine.valid_until(), None);
    assert_eq!(
        world.me().machine.expires_at(),
        Some(after(19_000)),
        "the work may run still"
    );
    world.send(Event::Cancel);
    world.until(40_000);
    assert_eq!(world.me().machine.expires_at(), None);
}
