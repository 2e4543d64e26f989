//! Named scenarios about zones: who dies, who is cut off from whom, who reports, who is a member.

use super::soon;
use crate::rng::Rng;
use crate::script::{Fault, Group, Network, SECOND, Script, WARM_UP};
use evenkeel_failover_rules::world::Kind;

/// One node dies, or a second one while the first stays dead, or two at once.
pub(super) fn kills(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![usize::try_from(rng.between(3, 7)).unwrap_or(3)];
    let first = script.any_node(rng);
    let second = 1 + first % script.nodes();
    let at = soon(rng);
    let lasts = rng.between(60, 200) * SECOND;
    script.add(at, lasts, Fault::PowerOff(first));
    match rng.below(3) {
        0 => {}
        1 => script.add(at + rng.below(500), lasts, Fault::PowerOff(second)),
        _ => script.add(at + rng.between(5, 50) * SECOND, lasts, Fault::PowerOff(second)),
    }
}

/// A rack of a large zone dies, or three of five. One node of it returns before the others do.
pub(super) fn racks(script: &mut Script, rng: &mut Rng) {
    let (nodes, dead) = match rng.below(3) {
        0 => (5, 3),
        share => {
            // Large zones cost most of the time.
            let most = if rng.in_thousand(100) { 40 } else { 16 };
            let nodes = rng.between(8, most);
            (nodes, if share == 1 { nodes / 4 } else { 2 * nodes / 5 })
        }
    };
    let nodes = usize::try_from(nodes).unwrap_or(5);
    script.zones = vec![nodes];
    let mut rack: Vec<usize> = (1..=nodes).collect();
    while rack.len() > usize::try_from(dead).unwrap_or(3) {
        let spared = usize::try_from(rng.below(rack.len() as u64)).unwrap_or_default();
        rack.swap_remove(spared);
    }
    let at = soon(rng);
    let lasts = rng.between(40, 90) * SECOND;
    // Some are vouched for before they die: what was said of them must not outlive them.
    if rng.in_thousand(500) {
        for node in rack.iter().take(2) {
            script.add(
                WARM_UP - 10 * SECOND,
                at + lasts - WARM_UP + 10 * SECOND,
                Fault::CutCloud(*node),
            );
        }
    }
    for (index, node) in rack.iter().enumerate() {
        let back = if index == 0 { lasts / 2 } else { lasts };
        script.add(at + rng.below(SECOND), back, Fault::PowerOff(*node));
    }
    if rng.in_thousand(500) {
        script.add(at + 15 * SECOND, SECOND, Fault::EmptiedReport(0));
    }
}

/// A zone whose directed links and links to the cloud are cut as the bits of a number say.
pub(super) fn matrices(script: &mut Script, rng: &mut Rng) {
    let nodes = usize::try_from(rng.between(2, 4)).unwrap_or(4);
    let links = rng.draw();
    let clouds = rng.below(1 << nodes);
    *script = matrix(script, nodes, links, clouds);
}

/// The matrix of these bits: `links` has one for every ordered pair of nodes, `clouds` one for every node. A
/// bit that is set is a cut.
pub fn matrix(like: &Script, nodes: usize, links: u64, clouds: u64) -> Script {
    let mut script = Script {
        zones: vec![nodes],
        network: Network {
            latency: (1, 5),
            ..Network::default()
        },
        steps: Vec::new(),
        rest: 10 * SECOND,
        ..like.clone()
    };
    // Agents have met after 12 s; a death and the rounds that follow it take 20 s.
    let (at, lasts) = (12 * SECOND, 20 * SECOND);
    let pairs = (1..=nodes).flat_map(|from| (1..=nodes).map(move |to| (from, to)));
    for (bit, (from, to)) in pairs.filter(|(from, to)| from != to).enumerate() {
        if (links >> bit) & 1 == 1 {
            script.add(at, lasts, Fault::CutOneWay(vec![from], vec![to]));
        }
    }
    for node in (1..=nodes).filter(|node| (clouds >> (node - 1)) & 1 == 1) {
        script.add(at, lasts, Fault::CutCloud(node));
    }
    script
}

/// A node joins, moves or changes its key, or six join, while another one is cut off; or that one itself
/// moves.
pub(super) fn rosters(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![usize::try_from(rng.between(3, 5)).unwrap_or(3)];
    let cut = script.any_node(rng);
    let at = soon(rng);
    let lasts = rng.between(100, 250) * SECOND;
    let change = at + rng.between(10, 40) * SECOND;
    script.rest = 120 * SECOND;
    match rng.below(3) {
        0 => {
            // From five to eleven, across a split: most of those who were there, the node that is cut off
            // among them, are on one side; those who join are on the other one, or on both.
            script.zones = vec![11];
            let cut = 1 + usize::try_from(rng.below(3)).unwrap_or_default();
            script.add(at, lasts, Fault::CutCloud(cut));
            if rng.in_thousand(700) {
                let with_them = usize::try_from(rng.below(3)).unwrap_or_default();
                let side = (1..=3).chain(6..6 + with_them).collect();
                script.add(change, lasts, Fault::SplitLan(side));
            }
            for node in 6..=11 {
                script.add(change + rng.below(20 * SECOND), SECOND, Fault::Join(node));
            }
        }
        1 => {
            let joins = script.nodes() + 1;
            script.zones = vec![joins];
            script.add(at, lasts, Fault::CutCloud(cut));
            script.add(change, SECOND, Fault::Join(joins));
        }
        _ => {
            let other = 1 + cut % script.nodes();
            script.add(at, lasts, Fault::CutCloud(cut));
            let fault = match rng.below(3) {
                0 => Fault::NewKey(other),
                1 => Fault::NewAddress(other),
                _ => Fault::NewAddress(cut),
            };
            script.add(change, SECOND, fault);
        }
    }
}

/// A split of a zone of this size.
pub fn split(size: usize, seed: u64) -> Script {
    alone(Group::Splits, seed, "split", |script, rng| {
        splits(script, size, rng);
    })
}

/// A script of a group with these steps alone.
fn alone(group: Group, seed: u64, label: &str, fill: impl FnOnce(&mut Script, &mut Rng)) -> Script {
    let mut script = super::script(group, seed);
    script.steps.clear();
    fill(&mut script, &mut Rng::new(seed).fork(label));
    script.steps.sort_by_key(|step| step.at);
    script
}

/// A zone is split 45/55 or 49/51, whoever stands on which side. Four of five nodes are cut off from the
/// cloud at the same time, or all of one side and a few of the other: their Leases grow stale, and the others
/// publish what each side finds of the other one. Links come back one after the other, before the split ends
/// or with it.
pub(super) fn splits(script: &mut Script, size: usize, rng: &mut Rng) {
    script.zones = vec![size];
    let percent = if rng.in_thousand(500) { 45 } else { 49 };
    let mut nodes: Vec<usize> = (1..=size).collect();
    rng.shuffle(&mut nodes);
    let (smaller, larger) = nodes.split_at(size * percent / 100);
    // Of a thousand nodes of each side, so many are cut off.
    let shares = match rng.below(4) {
        0 => (1_000, 200),
        1 => (200, 1_000),
        _ => (800, 800),
    };
    let at = WARM_UP + rng.below(20 * SECOND);
    let lasts = rng.between(120, 220) * SECOND;
    let shortest = if rng.in_thousand(500) { 30 * SECOND } else { lasts };
    for (side, share) in [(smaller, shares.0), (larger, shares.1)] {
        for node in side {
            if rng.in_thousand(share) {
                let lasts = rng.between(shortest / SECOND, lasts / SECOND) * SECOND;
                script.add(at + rng.below(SECOND), lasts, Fault::CutCloud(*node));
            }
        }
    }
    script.add(at, lasts, Fault::SplitLan(smaller.to_vec()));
}

/// A zone of this size of which so many nodes keep their link to the cloud, and nothing else happens.
pub fn few_links(size: usize, linked: usize, seed: u64) -> Script {
    alone(Group::Carriers, seed, "few links", |script, rng| {
        cut_all_but(script, (size, linked), 120 * SECOND, rng);
    })
}

/// Cuts the links of all nodes of a zone but those of some, which come first in the list of all nodes.
fn cut_all_but(
    script: &mut Script,
    (size, linked): (usize, usize),
    lasts: u64,
    rng: &mut Rng,
) -> (u64, Vec<usize>) {
    script.zones = vec![size];
    let mut nodes: Vec<usize> = (1..=size).collect();
    for place in 0..=linked.min(size - 1) {
        let other = place + usize::try_from(rng.below((size - place) as u64)).unwrap_or_default();
        nodes.swap(place, other);
    }
    // Rosters name contacts after the first 10 s, and 5 s later all agents have them.
    let at = WARM_UP + rng.below(20 * SECOND);
    for node in nodes.iter().skip(linked) {
        script.add(at + rng.below(5 * SECOND), lasts, Fault::CutCloud(*node));
    }
    (at, nodes)
}

/// The link of a zone of several cells is cut, but for one to four nodes. One of those loses power meanwhile,
/// where there are several, or one of the others does, or an agent that may carry is restarted.
pub(super) fn carriers(script: &mut Script, rng: &mut Rng) {
    let size = *rng.pick(&[102, 130, 200]).unwrap_or(&102);
    let linked = usize::try_from(rng.between(1, 4)).unwrap_or(1);
    let lasts = rng.between(150, 250) * SECOND;
    let (at, nodes) = cut_all_but(script, (size, linked), lasts, rng);
    let (linked, others) = nodes.split_at(linked);
    let later = at + rng.between(20, 100) * SECOND;
    match (rng.below(3), linked, others) {
        (0, [carries, _, ..], _) => script.add(later, lasts, Fault::PowerOff(*carries)),
        (1, _, [dies, ..]) => script.add(later, lasts, Fault::PowerOff(*dies)),
        (_, [carries, ..], _) => script.add(later, 2 * SECOND, Fault::AgentDown(*carries)),
        _ => {}
    }
}

/// Whatever befalls a fleet of three versions.
pub(super) fn mixed_versions(script: &mut Script, rng: &mut Rng) {
    script.mixed_versions = true;
    match rng.below(3) {
        0 => kills(script, rng),
        1 => rosters(script, rng),
        _ => reporters(script, rng),
    }
}

/// The power of a whole zone goes. Nodes come back within two minutes of each other, and one that is back
/// falls again, for longer or for shorter than a Lease needs to become stale.
pub(super) fn power_cut(script: &mut Script, rng: &mut Rng) {
    let at = soon(rng);
    let lasts = rng.between(30, 150) * SECOND;
    let back: Vec<u64> = (0..script.nodes())
        .map(|_| lasts + rng.below(120 * SECOND))
        .collect();
    for (node, lasts) in (1..).zip(&back) {
        script.add(at + rng.below(SECOND), *lasts, Fault::PowerOff(node));
    }
    let falls = script.any_node(rng);
    if let Some(lasts) = back.get(falls - 1) {
        let up = rng.between(5, 100) * SECOND;
        script.add(
            at + lasts + up,
            rng.between(2, 60) * SECOND,
            Fault::PowerOff(falls),
        );
    }
}

/// A zone of 58 to 63 grows to 66 to 70 within a minute. One node is cut off from before to after that, and
/// one dies meanwhile.
pub(super) fn growth(script: &mut Script, rng: &mut Rng) {
    let count = |rng: &mut Rng, from, to| usize::try_from(rng.between(from, to)).unwrap_or(64);
    let (before, after) = (count(rng, 58, 63), count(rng, 66, 70));
    script.zones = vec![after];
    let at = WARM_UP + 60 * SECOND;
    let cut = count(rng, 1, 30);
    script.add(at, rng.between(120, 200) * SECOND, Fault::CutCloud(cut));
    for node in before + 1..=after {
        script.add(
            at + 20 * SECOND + rng.below(60 * SECOND),
            SECOND,
            Fault::Join(node),
        );
    }
    let dies = count(rng, 31, 58);
    script.add(
        at + rng.between(10, 90) * SECOND,
        100 * SECOND,
        Fault::PowerOff(dies),
    );
}

/// A full cell of which so many members are cut off for so long that the others may move, and then the zone
/// grows.
pub fn outgrown(cut: usize, seed: u64) -> Script {
    alone(Group::Growth, seed, "outgrown", |script, rng| {
        script.zones = vec![66];
        let at = WARM_UP + 60 * SECOND;
        for node in 1..=cut {
            script.add(at + rng.below(5 * SECOND), 800 * SECOND, Fault::CutCloud(node));
        }
        for node in 65..=66 {
            let joins = at + 640 * SECOND + rng.below(30 * SECOND);
            script.add(joins, SECOND, Fault::Join(node));
        }
    })
}

/// A node is cut off, and meanwhile the watch of one kind shows the leader nothing, or the other replica, for
/// as long.
pub fn half_open(kind: Kind, replica: usize, seed: u64) -> Script {
    alone(Group::CutOff, seed, kind.name(), |script, rng| {
        let (node, at) = (script.any_node(rng), WARM_UP + 60 * SECOND);
        script.add(at, 420 * SECOND, Fault::CutCloud(node));
        let frozen = at + rng.below(100 * SECOND);
        script.add(frozen, 300 * SECOND, Fault::HalfOpen(replica, kind));
    })
}

/// A zone of 3 nodes grows to 70, and shrinks to 10. In between all agents get new keys, or all machines
/// boot. Nodes that are there die and come back all the time, and for a while whichever replica of the
/// controller leads is killed every 10 s.
pub(super) fn lifetime(script: &mut Script, rng: &mut Rng) {
    const MOST: usize = 70;
    const LEFT: usize = 10;
    script.zones = vec![MOST];
    script.rest = 150 * SECOND;
    let mut at = WARM_UP;
    let mut dies_at = at + rng.between(10, 60) * SECOND;
    let mut die = |script: &mut Script, rng: &mut Rng, at: u64, there: usize| {
        if at >= dies_at {
            let lasts = rng.between(20, 100) * SECOND;
            let node = 1 + usize::try_from(rng.below(there as u64)).unwrap_or_default();
            script.add(at, lasts, Fault::PowerOff(node));
            dies_at = at + lasts + rng.between(20, 60) * SECOND;
        }
    };
    for node in 4..=MOST {
        at += rng.between(500, 5_000);
        script.add(at, SECOND, Fault::Join(node));
        die(script, rng, at, (node - 1).min(LEFT));
    }
    let restarts = WARM_UP + rng.below(200 * SECOND);
    for time in 0..6 {
        script.add(restarts + time * 10 * SECOND, 3 * SECOND, Fault::LeaderDown);
    }
    at += 180 * SECOND;
    let boots = script.seed % 2 == 1;
    for node in 1..=MOST {
        let fault = if boots {
            Fault::PowerOff(node)
        } else {
            Fault::NewKey(node)
        };
        let within = if boots { 10 } else { 120 };
        script.add(
            at + rng.below(within * SECOND),
            rng.between(20, 60) * SECOND,
            fault,
        );
    }
    at += 240 * SECOND;
    for node in (LEFT + 1..=MOST).rev() {
        at += rng.between(500, 4_000);
        script.add(at, SECOND, Fault::Leave(node));
        die(script, rng, at, LEFT);
    }
}

/// A node is cut off or dead, and reporters are on the smaller side of a split, stopped in the middle of a
/// write, or leave everybody out of the report.
pub(super) fn reporters(script: &mut Script, rng: &mut Rng) {
    script.zones = vec![5];
    let node = script.any_node(rng);
    let at = soon(rng);
    let lasts = rng.between(100, 200) * SECOND;
    let fault = if rng.in_thousand(500) {
        Fault::CutCloud(node)
    } else {
        Fault::PowerOff(node)
    };
    script.add(at, lasts, fault);
    let other = 1 + node % 5;
    let then = at + rng.below(30 * SECOND);
    match rng.below(3) {
        0 => script.add(then, rng.between(20, 60) * SECOND, Fault::SplitLan(vec![other])),
        1 => {
            // Writes take long, so that it is stopped in the middle of one.
            script.add(then, 70 * SECOND, Fault::SlowWrites(600));
            script.add(
                then + rng.below(5 * SECOND),
                60 * SECOND,
                Fault::PauseAgent(other),
            );
        }
        _ => {
            for _ in 0..rng.between(1, 5) {
                script.add(then + rng.below(60 * SECOND), SECOND, Fault::EmptiedReport(0));
            }
        }
    }
}

/// Somebody else answers on a kubelet's port.
pub(super) fn addresses(script: &mut Script, rng: &mut Rng) {
    let node = script.any_node(rng);
    let at = soon(rng);
    let lasts = rng.between(60, 200) * SECOND;
    script.add(at, lasts, Fault::StrangeKubelet(node));
    match rng.below(3) {
        0 => script.add(at + rng.below(10 * SECOND), lasts, Fault::PowerOff(node)),
        1 => script.add(at + rng.below(10 * SECOND), lasts / 2, Fault::AgentDown(node)),
        _ => script.add(at + rng.below(10 * SECOND), lasts, Fault::CutCloud(node)),
    }
}
