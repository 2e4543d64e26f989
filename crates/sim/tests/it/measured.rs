//! Zones that are measured, in the sizes that CI has time for.

use super::search;
use evenkeel_sim::groups::measured::{SETTLED, calm, good_network, listed_for, lossy, outage};
use evenkeel_sim::measure::Window;
use evenkeel_sim::script::SECOND;
use evenkeel_sim::zones::measured::{cells, measure};
use evenkeel_sim::{Fault, Step};
use std::collections::BTreeSet;

/// A hundredth of what the example `numbers` plays: 1,000 node-hours for each loss, in runs of half an hour.
#[test]
fn losses_of_up_to_30_percent_convict_nobody_who_lives() {
    let window = Window {
        from: SETTLED,
        until: SETTLED + 1_800 * SECOND,
    };
    for percent in [0, 10, 20, 30] {
        let failing = search(0, 400, |seed| {
            match measure(&lossy(vec![5], seed, percent, window.until), window) {
                Ok(run) => (run.false_deaths > 0).then(|| format!("{} deaths", run.false_deaths)),
                Err(broken) => Some(broken.to_string()),
            }
        });
        assert!(failing.is_empty(), "at {percent} % loss: {failing:?}");
    }
}

/// Scenario 21; the example `numbers` plays it with 5,000 nodes. How many requests fall into one minute
/// differs by a fifth between runs, so that their mean is measured.
#[test]
fn after_an_outage_nobody_is_dead_and_requests_are_few() {
    for (size, runs, most) in [(5, 12, 0.25), (20, 6, 0.2), (64, 2, 0.2)] {
        let each = |seed| {
            let (script, window) = outage(vec![size], seed);
            let run = measure(&script, window).expect("no promise is broken");
            assert_eq!(run.deaths, [], "of {size}");
            let (_, after) = run.requests.split_at(run.requests.len() / 2);
            after.iter().sum::<u64>() as f64 / after.len() as f64 / size as f64
        };
        let each = (1..=runs).map(each).sum::<f64>() / runs as f64;
        assert!(
            each > 0.0 && each <= most,
            "{each} requests per second and node of {size}"
        );
    }
}

/// Evidence, challenges and numbers go on for weeks, and a death at their end is found like any other.
#[test]
fn a_member_is_listed_for_two_weeks() {
    let (script, dies) = listed_for(14, 1);
    let window = Window {
        from: SETTLED,
        until: script.end(),
    };
    let run = measure(&script, window).expect("no promise is broken");
    let found: Vec<(u64, usize)> = run.deaths;
    let [(at, 1)] = found[..] else {
        panic!("one death is found: {found:?}");
    };
    assert!((dies..dies + 10 * SECOND).contains(&at), "{at} after {dies}");
    assert_eq!(run.false_deaths, 0);
}

/// A zone of several cells is one in runs of zones alone, too. Its first cell has no link to the cloud, so
/// that others report for it.
#[test]
fn a_death_is_found_in_each_cell_of_a_zone() {
    let mut script = calm(vec![130], 1, good_network());
    let cells = cells(&script);
    assert!(
        cells.len() > 1 && cells.iter().all(|cell| cell.len() <= 64),
        "{cells:?}"
    );
    let at = SETTLED + 60 * SECOND;
    let mut step = |at, lasts, fault| script.steps.push(Step { at, lasts, fault });
    for node in &cells[0] {
        step(SETTLED, 120 * SECOND, Fault::CutCloud(*node));
    }
    let dead: BTreeSet<usize> = cells.iter().map(|cell| cell[1]).collect();
    for node in &dead {
        step(at, 60 * SECOND, Fault::PowerOff(*node));
    }
    let window = Window {
        from: SETTLED,
        until: at + 15 * SECOND,
    };
    let run = measure(&script, window).expect("no promise is broken");
    let found: BTreeSet<usize> = run.deaths.iter().map(|(_, node)| *node).collect();
    assert_eq!((found, run.false_deaths), (dead, 0));
    assert!(
        run.deaths.iter().all(|(found, _)| *found >= at),
        "{:?}",
        run.deaths
    );
}
