//! Faults of any kind that overlap, for 3 minutes and longer.

use crate::rng::Rng;
use crate::script::{Bursts, Fault, Group, Network, SECOND, Script, WARM_UP};
use evenkeel_failover_rules::world::Kind;

pub(super) fn random(script: &mut Script, rng: &mut Rng) {
    let most = if script.group == Group::RandomZones {
        // Large zones cost most of the time, and most rules do not depend on the size.
        *rng.pick(&[5, 7, 12, 20, 100]).unwrap_or(&12)
    } else {
        *rng.pick(&[4, 5, 7, 12]).unwrap_or(&5)
    };
    script.zones = vec![usize::try_from(rng.between(2, most)).unwrap_or(5)];
    script.network = network(rng);
    script.drift = *rng.pick(&[0, 50, 200]).unwrap_or(&0);
    // All begin within the first half of 3 minutes, so that most of them overlap.
    for _ in 0..rng.between(2, 5) {
        let fault = fault(script, rng);
        let at = WARM_UP + rng.below(90 * SECOND);
        let lasts = match fault {
            Fault::Stall(_) => rng.between(1_000, 10_000),
            Fault::ApiDown { .. } => rng.between(3, 30) * SECOND,
            Fault::ReplicaDown(_) => rng.between(1, 20) * SECOND,
            _ => rng.between(10, 120) * SECOND,
        };
        script.add(at, lasts, fault);
    }
    overlap(script, rng);
    script.replicas_apart = *rng.pick(&[0, 0, -20_000, 20_000]).unwrap_or(&0);
    let faults = script.last_fault_ends() - WARM_UP;
    script.rest = script.rest.max((180 * SECOND).saturating_sub(faults));
}

/// Two faults at least are there at the same time: where chance has it otherwise, the last one begins during
/// the longest.
fn overlap(script: &mut Script, rng: &mut Rng) {
    if script.overlaps() {
        return;
    }
    let longest = script.steps.iter().max_by_key(|step| step.lasts).cloned();
    let other = script
        .steps
        .iter_mut()
        .rev()
        .find(|step| longest.as_ref() != Some(*step));
    if let (Some(longest), Some(other)) = (longest, other) {
        other.at = longest.at + rng.below(longest.lasts);
    }
}

fn network(rng: &mut Rng) -> Network {
    let bursts = Bursts {
        every: rng.between(5, 60) * SECOND,
        lasts: rng.between(100, 800),
        lost: rng.between(500, 1_000),
    };
    Network {
        latency: *rng.pick(&[(1, 5), (5, 60), (20, 120)]).unwrap_or(&(1, 5)),
        lost: *rng.pick(&[0, 10, 50, 100]).unwrap_or(&0),
        doubled: *rng.pick(&[0, 10, 100]).unwrap_or(&0),
        delayed: *rng.pick(&[0, 10, 50]).unwrap_or(&0),
        corrupted: *rng.pick(&[0, 0, 10]).unwrap_or(&0),
        bursts: rng.in_thousand(400).then_some(bursts),
    }
}

/// Any fault there is.
fn fault(script: &Script, rng: &mut Rng) -> Fault {
    let node = script.any_node(rng);
    let other = 1 + (node + usize::try_from(rng.below(3)).unwrap_or_default()) % script.nodes();
    let some =
        |rng: &mut Rng| -> Vec<usize> { (1..=script.nodes()).filter(|_| rng.in_thousand(350)).collect() };
    let replica = usize::try_from(rng.below(2)).unwrap_or_default();
    let forward = rng.in_thousand(500);
    match rng.below(26) {
        0..=2 => Fault::CutCloud(node),
        3 | 4 => Fault::PowerOff(node),
        5 => Fault::DiskLost(node),
        6 => Fault::Stall(node),
        7 => Fault::PauseAgent(node),
        8 => Fault::SplitLan(some(rng)),
        9 | 10 => Fault::CutOneWay(some(rng), some(rng)),
        11 if node != other => Fault::CutPair(node, other),
        11 | 12 => Fault::LossyLan(*rng.pick(&[50, 100, 200]).unwrap_or(&100)),
        13 => Fault::KubeletDown(node),
        14 => Fault::SlowKubelet(node, *rng.pick(&[200, 1_000, 3_000]).unwrap_or(&200)),
        15 => Fault::StrangeKubelet(node),
        16 => Fault::SlowAgent(node, rng.between(20, 300)),
        // Not back, where there are kubelets: the stock controller takes a Lease whose renewTime went back by
        // an hour for one that nobody renews for an hour, and marks the node whenever the grace period is
        // over.
        17 if forward && script.group == Group::RandomZones => Fault::WallClock(node, -3_600_000),
        17 => Fault::WallClock(node, 3_600_000),
        18 => Fault::AgentDown(node),
        19 => Fault::AgentUpgrade(node),
        20 => Fault::ApiDown { stock_dies: forward },
        21 => Fault::HalfOpen(replica, *rng.pick(&Kind::ALL).unwrap_or(&Kind::NodeLease)),
        22 => Fault::SlowWrites(rng.between(100, 1_500)),
        23 => Fault::StaleReads(rng.between(1, 8) * SECOND),
        24 => Fault::EmptiedReport(0),
        _ => Fault::ReplicaDown(replica),
    }
}
