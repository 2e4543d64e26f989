//! Scripts of zones that are measured.

use crate::measure::Window;
use crate::rng::Rng;
use crate::script::{Bursts, Fault, Group, Network, SECOND, Script};

/// Until everybody has met everybody: above 11 members eight strangers are greeted in each period of 2 s.
pub const SETTLED: u64 = 60 * SECOND;

/// Zones of these sizes, to which nothing happens.
pub fn calm(zones: Vec<usize>, seed: u64, network: Network) -> Script {
    Script {
        group: Group::RandomZones,
        seed,
        zones,
        edge: false,
        network,
        drift: 50,
        replicas_apart: 0,
        ed25519: false,
        mixed_versions: false,
        steps: Vec::new(),
        rest: 0,
    }
}

/// A LAN on which nothing is lost.
pub fn good_network() -> Network {
    Network {
        latency: (1, 10),
        ..Network::default()
    }
}

/// Nobody dies, while so many of a hundred datagrams are lost, bursts come on top, nothing passes from one
/// node to another one, of a new pair every minute, and a twentieth of the nodes are slow.
pub fn lossy(zones: Vec<usize>, seed: u64, percent: u64, until: u64) -> Script {
    let bursts = Bursts {
        every: 30 * SECOND,
        lasts: 500,
        lost: 900,
    };
    let network = Network {
        lost: percent * 10,
        bursts: Some(bursts),
        ..good_network()
    };
    let mut script = calm(zones, seed, network);
    let nodes = script.nodes() as u64;
    let mut rng = Rng::new(seed).fork("one-way faults");
    let mut any = || 1 + usize::try_from(rng.below(nodes)).unwrap_or_default();
    let mut at = SETTLED;
    while at < until {
        let cut = Fault::CutOneWay(vec![any()], vec![any()]);
        script.add(at, 50 * SECOND, cut);
        at += 60 * SECOND;
    }
    for _ in 0..nodes.div_ceil(20) {
        script.add(0, until, Fault::SlowAgent(any(), 300));
    }
    script
}

/// Nobody reaches the API server for a minute, which begins the window, and then everybody does for another
/// one, which ends it.
pub fn outage(zones: Vec<usize>, seed: u64) -> (Script, Window) {
    let (at, lasts) = (SETTLED + 30 * SECOND, 60 * SECOND);
    let mut script = calm(zones, seed, good_network());
    script.add(at, lasts, Fault::ApiDown { stock_dies: false });
    let window = Window {
        from: at,
        until: at + 2 * lasts,
    };
    (script, window)
}

/// One of three nodes is cut off from the cloud for so many days, and loses power in the last minute of that.
/// Also when that is.
pub fn listed_for(days: u64, seed: u64) -> (Script, u64) {
    let lasts = days * 86_400 * SECOND;
    let mut script = calm(vec![3], seed, good_network());
    script.add(SETTLED, lasts, Fault::CutCloud(1));
    let dies = SETTLED + lasts - 60 * SECOND;
    script.add(dies, 120 * SECOND, Fault::PowerOff(1));
    (script, dies)
}
