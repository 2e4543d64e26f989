//! Runs of zones that measure instead of asking whether promises are kept.

use crate::api::build::{node_of_uid, roster_of};
use crate::api::objects::Object;
use crate::ledger::Broken;
use crate::measure::{Measured, Meter, Window};
use crate::run::Outcome;
use crate::script::{Level, Script};
use crate::sim::Sim;
use crate::zones::Rules;
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::roster::Roster;
use std::time::Duration;

/// Plays a script with rules of a test.
pub fn play_by(script: &Script, rules: Rules) -> Outcome {
    let mut sim = Sim::new(script.clone(), script.group.level());
    sim.reader.rules = rules;
    let (ledger, _) = sim.play();
    Outcome {
        broken: ledger.broken.first().cloned(),
        numbers: ledger.numbers(),
    }
}

/// The nodes of each cell of a script's zones.
pub fn cells(script: &Script) -> Vec<Vec<usize>> {
    Sim::new(script.clone(), Level::Zones)
        .cells
        .into_values()
        .collect()
}

/// Members of the first cell in their order as reporters, while all have their link to the cloud.
pub fn reporters(script: &Script) -> Vec<usize> {
    let sim = Sim::new(script.clone(), Level::Zones);
    let Some(object) = sim.cell_object(Kind::Zone, 1, 0) else {
        return Vec::new();
    };
    let Object::Zone(zone) = &*object else {
        return Vec::new();
    };
    let Ok(roster) = Roster::from_spec(&roster_of(zone)) else {
        return Vec::new();
    };
    let ranked = roster.rendezvous().iter();
    let members = ranked.filter_map(|index| roster.member(*index));
    members.filter_map(|member| node_of_uid(&member.uid)).collect()
}

/// Plays a script on the level of zones to the end of the window. What the reader wrongly holds dead is
/// counted; any other promise that is broken ends the run, and nothing was measured.
pub fn measure(script: &Script, window: Window) -> Result<Measured, Broken> {
    measure_by(script, window, None)
}

/// The same, and says how long the reader worked in the window by a clock.
pub fn measure_by(
    script: &Script,
    window: Window,
    clock: Option<fn() -> Duration>,
) -> Result<Measured, Broken> {
    let mut sim = Sim::new(script.clone(), Level::Zones);
    sim.reader.counts = true;
    sim.play_until(window.from);
    sim.reader.clock = clock;
    for machine in &mut sim.machines {
        machine.meter = Meter::default();
    }
    sim.reader.changes.clear();
    let (mut requests, mut counted) = (Vec::new(), 0);
    for second in (window.from..window.until).step_by(1_000) {
        sim.play_until((second + 1_000).min(window.until));
        let sum: u64 = sim.machines.iter().map(|machine| machine.meter.requests).sum();
        requests.push(sum - counted);
        counted = sum;
    }
    if let Some(broken) = sim.ledger.broken.first() {
        return Err(broken.clone());
    }
    let of_first = || {
        sim.machines
            .iter()
            .enumerate()
            .filter(|(index, _)| sim.cell_key(index + 1) == (0, 0))
            .map(|(_, machine)| machine)
    };
    Ok(Measured {
        meters: sim.machines.iter().map(|machine| machine.meter.clone()).collect(),
        deaths: sim.reader.deaths.clone(),
        changes: sim.reader.changes.clone(),
        largest_report: sim.largest_report,
        standing: of_first()
            .filter(|machine| machine.agent.as_ref().is_some_and(|agent| agent.standing))
            .count(),
        stands: of_first().map(|machine| machine.meter.stands).sum(),
        false_deaths: sim.reader.false_deaths,
        requests,
        reading: sim.reader.spent,
    })
}
