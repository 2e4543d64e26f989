//! The groups of scenarios: from a seed to a script. One function per group.

mod cases;
mod hostile;
pub mod measured;
mod random;

pub use cases::{few_links, half_open, matrix, outgrown, split};
pub use hostile::{Mishap, hostile};

use crate::rng::Rng;
use crate::script::{Fault, Group, Network, SECOND, Script, Step, WARM_UP};
use evenkeel_failover_rules::world::Kind;

/// The script of a group and a seed.
pub fn script(group: Group, seed: u64) -> Script {
    let mut rng = Rng::new(seed).fork(group.name());
    let mut script = Script {
        group,
        seed,
        zones: vec![usize::try_from(rng.between(3, 6)).unwrap_or(5)],
        edge: rng.in_thousand(500),
        network: network(&mut rng),
        drift: 0,
        replicas_apart: 0,
        ed25519: rng.in_thousand(10),
        mixed_versions: rng.in_thousand(100),
        steps: Vec::new(),
        rest: 60 * SECOND,
    };
    match group {
        Group::PowerOff => power_off(&mut script, &mut rng),
        Group::CutOff => cut_off(&mut script, &mut rng),
        Group::NeverLaterThanStock => never_later_than_stock(&mut script, &mut rng),
        Group::StockQueue => stock_queue(&mut script, &mut rng),
        Group::ApiOutageIsolated => api_outage_isolated(&mut script, &mut rng),
        Group::IsolatedThenDead => isolated_then_dead(&mut script, &mut rng),
        Group::GuardRestarts => guard_restarts(&mut script, &mut rng),
        Group::Stalls => stalls(&mut script, &mut rng),
        Group::LanSplit => lan_split(&mut script, &mut rng),
        Group::ThreeZones => three_zones(&mut script, &mut rng),
        Group::MixedVersions => cases::mixed_versions(&mut script, &mut rng),
        Group::ApiRestart => api_restart(&mut script, &mut rng),
        Group::Restores => restores(&mut script, &mut rng),
        Group::Firewall => firewall(&mut script, &mut rng),
        Group::ReturnWithoutMajority => return_without_majority(&mut script, &mut rng),
        Group::AgentRestarts => agent_restarts(&mut script, &mut rng),
        Group::PowerCut => cases::power_cut(&mut script, &mut rng),
        Group::Growth => cases::growth(&mut script, &mut rng),
        Group::Lifetime => cases::lifetime(&mut script, &mut rng),
        Group::Kills => cases::kills(&mut script, &mut rng),
        Group::Racks => cases::racks(&mut script, &mut rng),
        Group::Matrices => cases::matrices(&mut script, &mut rng),
        Group::Rosters => cases::rosters(&mut script, &mut rng),
        Group::Reporters => cases::reporters(&mut script, &mut rng),
        Group::Addresses => cases::addresses(&mut script, &mut rng),
        Group::Splits => {
            let size = *rng.pick(&[102, 130, 200]).unwrap_or(&102);
            cases::splits(&mut script, size, &mut rng);
        }
        Group::Carriers => cases::carriers(&mut script, &mut rng),
        Group::Hostile | Group::HostileZones => hostile::any(&mut script, &mut rng),
        Group::Random | Group::RandomZones => random::random(&mut script, &mut rng),
    }
    script.steps.sort_by_key(|step| step.at);
    script
}

impl Script {
    fn add(&mut self, at: u64, lasts: u64, fault: Fault) {
        self.steps.push(Step { at, lasts, fault });
    }

    fn any_node(&self, rng: &mut Rng) -> usize {
        1 + usize::try_from(rng.below(self.nodes() as u64)).unwrap_or_default()
    }
}

/// A good LAN, a slow one, or one that loses.
fn network(rng: &mut Rng) -> Network {
    match rng.below(3) {
        0 => Network {
            latency: (1, 5),
            ..Network::default()
        },
        1 => Network {
            latency: (5, 60),
            lost: 5,
            doubled: 5,
            ..Network::default()
        },
        _ => Network {
            latency: (1, 30),
            lost: 30,
            doubled: 10,
            ..Network::default()
        },
    }
}

fn soon(rng: &mut Rng) -> u64 {
    WARM_UP + rng.below(15 * SECOND)
}

fn power_off(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let lasts = rng.between(30, 450) * SECOND;
    script.add(soon(rng), lasts, Fault::PowerOff(node));
}

fn cut_off(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let lasts = rng.between(5, 450) * SECOND;
    let at = soon(rng);
    script.add(at, lasts, Fault::CutCloud(node));
    // While it is cut off, somebody edits its label, and corrects that.
    let edit = 40 * SECOND;
    if lasts > 2 * edit && rng.in_thousand(300) {
        script.add(at + edit, lasts - edit - 5 * SECOND, Fault::Relabel(node));
    }
}

/// All agents, or all our parts, go down for good, either in calm or in mid-cut; then the node loses power.
fn never_later_than_stock(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let long = 480 * SECOND;
    let mut at = soon(rng);
    let in_mid_cut = rng.in_thousand(500);
    if in_mid_cut {
        let cut = rng.between(70, 150) * SECOND;
        script.add(at, cut + long, Fault::CutCloud(node));
        at += cut;
    }
    for agent in 1..=script.nodes() {
        script.add(at, long, Fault::AgentDown(agent));
    }
    if in_mid_cut || rng.in_thousand(500) {
        script.add(at, long, Fault::ReplicaDown(0));
        script.add(at, long, Fault::ReplicaDown(1));
    }
    let at = at + rng.between(1, 30) * SECOND;
    script.add(at, 440 * SECOND, Fault::PowerOff(node));
    script.rest = 0;
}

/// Fewer than 55 of a hundred are cut off: beyond that the stock controller taints nobody.
fn stock_queue(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![10];
    let mut nodes: Vec<usize> = (1..=10).collect();
    rng.shuffle(&mut nodes);
    let cut = usize::try_from(rng.between(3, 5)).unwrap_or(5);
    let (at, long) = (soon(rng), 600 * SECOND);
    let lives = rng.between(60, 90) * SECOND;
    for node in nodes.iter().take(cut) {
        script.add(at + rng.below(5 * SECOND), lives + long, Fault::CutCloud(*node));
    }
    if let Some(dies) = nodes.first() {
        script.add(at + lives, long, Fault::PowerOff(*dies));
    }
    script.rest = 0;
}

/// One node alone on the LAN; then an outage, half-open watches, and the controller killed at any moment.
fn api_outage_isolated(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    let lasts = rng.between(150, 300) * SECOND;
    script.add(at, lasts, Fault::SplitLan(vec![node]));
    let stock_dies = rng.in_thousand(500);
    script.add(
        at + rng.between(20, 80) * SECOND,
        60 * SECOND,
        Fault::ApiDown { stock_dies },
    );
    for _ in 0..rng.between(0, 2) {
        let kind = *rng.pick(&Kind::ALL).unwrap_or(&Kind::NodeLease);
        let replica = usize::try_from(rng.below(2)).unwrap_or_default();
        let lasts = rng.between(10, 90) * SECOND;
        script.add(
            at + rng.between(5, 140) * SECOND,
            lasts,
            Fault::HalfOpen(replica, kind),
        );
    }
    for _ in 0..rng.between(0, 2) {
        let replica = usize::try_from(rng.below(2)).unwrap_or_default();
        script.add(
            at + rng.below(150 * SECOND),
            rng.between(1, 10) * SECOND,
            Fault::ReplicaDown(replica),
        );
    }
}

fn isolated_then_dead(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    let isolated = rng.between(60, 400) * SECOND;
    let dead = rng.between(30, 450) * SECOND;
    script.add(at, isolated + dead, Fault::SplitLan(vec![node]));
    script.add(at + isolated, dead, Fault::PowerOff(node));
}

/// Replicas restart in mid-cut; or both are down for long, but not for longer than stock waits before it
/// evicts.
fn guard_restarts(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    script.add(at, rng.between(120, 420) * SECOND, Fault::CutCloud(node));
    if rng.in_thousand(400) {
        let down = rng.between(2, 240) * SECOND;
        let from = at + 45 * SECOND;
        script.add(from, down, Fault::ReplicaDown(0));
        script.add(from + rng.below(3 * SECOND), down, Fault::ReplicaDown(1));
    } else {
        for _ in 0..rng.between(1, 4) {
            let replica = usize::try_from(rng.below(2)).unwrap_or_default();
            let down = rng.between(1, 20) * SECOND;
            script.add(at + rng.below(110 * SECOND), down, Fault::ReplicaDown(replica));
        }
    }
}

fn stalls(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    let mut stall_at = at + rng.between(2, 100) * SECOND + rng.below(SECOND);
    let mut end = stall_at;
    let times = if rng.in_thousand(500) {
        1
    } else {
        rng.between(2, 8)
    };
    let short = rng.in_thousand(300);
    for _ in 0..times {
        let lasts = if short {
            4 * SECOND
        } else {
            rng.between(2_000, 10_000)
        };
        script.add(stall_at, lasts, Fault::Stall(node));
        end = stall_at + lasts;
        stall_at = end + if short { SECOND } else { rng.between(1_000, 20_000) };
    }
    let after = rng.between(40, 90) * SECOND;
    match rng.below(3) {
        0 => {}
        1 => script.add(at, end + after - at, Fault::CutCloud(node)),
        _ => script.add(at, end + after - at, Fault::SplitLan(vec![node])),
    }
}

fn lan_split(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![5];
    let at = soon(rng);
    // An hour in every fiftieth run; most faults show within minutes.
    let minutes = if rng.in_thousand(20) {
        60
    } else {
        rng.between(4, 10)
    };
    let lasts = minutes * 60 * SECOND;
    let few: Vec<usize> = vec![4, 5];
    script.add(at, lasts, Fault::SplitLan(few));
    let mut next = at + rng.between(20, 60) * SECOND;
    for _ in 0..rng.between(1, 4) {
        let down = if rng.in_thousand(500) { 20 } else { 55 } * SECOND;
        let node = script.any_node(rng);
        if next + down > at + lasts {
            break;
        }
        script.add(next, down, Fault::KubeletDown(node));
        next += down + rng.between(70, 120) * SECOND;
    }
}

/// One zone loses power as a whole, in one a node is cut off, in one a node dies.
fn three_zones(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![3, 5, 4];
    let at = soon(rng);
    let lasts = rng.between(100, 400) * SECOND;
    for node in 1..=3 {
        script.add(at + rng.below(2 * SECOND), lasts, Fault::PowerOff(node));
    }
    let cut = 4 + usize::try_from(rng.below(5)).unwrap_or_default();
    script.add(soon(rng), rng.between(60, 400) * SECOND, Fault::CutCloud(cut));
    let dead = 9 + usize::try_from(rng.below(4)).unwrap_or_default();
    script.add(soon(rng), rng.between(60, 400) * SECOND, Fault::PowerOff(dead));
}

fn api_restart(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    let cut = rng.between(120, 360) * SECOND;
    script.add(at, cut, Fault::CutCloud(node));
    for _ in 0..rng.between(1, 2) {
        let lasts = if rng.in_thousand(500) { 6 } else { 30 } * SECOND;
        let stock_dies = rng.in_thousand(500);
        script.add(at + rng.below(cut), lasts, Fault::ApiDown { stock_dies });
    }
}

/// Since the backup a node has come to have other keys, again and again: the rosters that it does not have
/// are many more than follow from the last key alone. Or a node joins right after it, while nobody has
/// reported anything, and is struck itself when it should have a vote.
fn restores(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![usize::try_from(rng.between(5, 6)).unwrap_or(5)];
    let joins = rng.in_thousand(500);
    let struck = if joins {
        script.nodes()
    } else {
        script.any_node(rng)
    };
    let changed = 1 + struck % script.nodes();
    let at = soon(rng);
    let changes = rng.between(3, 5);
    let lasts = changes * 30 * SECOND + rng.between(60, 90) * SECOND;
    script.add(at, lasts, Fault::Restored);
    for change in 1..=changes {
        script.add(at + change * 30 * SECOND, SECOND, Fault::NewKey(changed));
    }
    let mut then = at + lasts + rng.below(90 * SECOND);
    if joins {
        script.add(at + lasts + rng.below(20 * SECOND), SECOND, Fault::Join(struck));
        then += 190 * SECOND;
    }
    if rng.in_thousand(500) {
        script.add(then, rng.between(90, 200) * SECOND, Fault::PowerOff(struck));
    } else {
        script.add(then, rng.between(380, 450) * SECOND, Fault::CutCloud(struck));
    }
}

/// Every agent restarts once, as in a roll-out, and one of the nodes is cut off meanwhile.
fn firewall(script: &mut Script, rng: &mut Rng) {
    let nodes = script.nodes();
    script.add(0, 600 * SECOND, Fault::ChecksDropped);
    let cut = script.any_node(rng);
    let mut at = soon(rng);
    script.add(
        at + rng.below(60 * SECOND),
        rng.between(60, 240) * SECOND,
        Fault::CutCloud(cut),
    );
    for node in 1..=nodes {
        let lasts = rng.between(6, 14) * SECOND;
        script.add(at, lasts, Fault::AgentUpgrade(node));
        at += lasts + rng.between(10, 40) * SECOND;
    }
}

/// So many nodes are off that the rest is no majority; one of them comes back first.
fn return_without_majority(script: &mut Script, rng: &mut Rng) {
    let nodes = script.nodes();
    let off = nodes / 2 + 1;
    let at = soon(rng);
    let first_back = rng.between(20, 120) * SECOND;
    let rest_back = first_back + rng.between(60, 200) * SECOND;
    for node in 1..=off {
        let lasts = if node == 1 { first_back } else { rest_back };
        script.add(
            at + rng.below(3 * SECOND) * (node as u64 % 2),
            lasts,
            Fault::PowerOff(node),
        );
    }
}

fn agent_restarts(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![5];
    let node = script.any_node(rng);
    let at = soon(rng);
    script.add(at, rng.between(200, 300) * SECOND, Fault::CutCloud(node));
    let mut next = at + rng.between(30, 60) * SECOND;
    let at_once = *rng.pick(&[1, 2, 5]).unwrap_or(&1);
    let mut agents: Vec<usize> = (1..=5).collect();
    while !agents.is_empty() {
        for _ in 0..at_once.min(agents.len()) {
            let chosen = usize::try_from(rng.below(agents.len() as u64)).unwrap_or_default();
            let agent = agents.swap_remove(chosen);
            let lasts = rng.between(1, 8) * SECOND;
            let fault = if rng.in_thousand(500) {
                Fault::AgentUpgrade(agent)
            } else {
                Fault::AgentDown(agent)
            };
            script.add(next + rng.below(SECOND), lasts, fault);
        }
        next += rng.between(15, 30) * SECOND;
    }
}
