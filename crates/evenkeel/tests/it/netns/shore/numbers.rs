//! What calm cells cost on real sockets, by the counters of the interfaces. Printed beside the goals by
//! `cargo test -p evenkeel --test it netns::shore::numbers -- --ignored --nocapture`.

use super::{CLOUD, Ip, LAN, Machine, Shore, name};
use evenkeel_testkit::{netns, skipped};
use std::time::{Duration, Instant};

/// A calm minute, and several renewals of every Lease.
const LENGTH: Duration = Duration::from_secs(120);
/// After the start, until first contacts and writes are over.
const SETTLES: Duration = Duration::from_secs(60);

/// Per machine: bytes per second that it sent to its neighbours, and that its agent exchanged with the API
/// server.
fn rates(shore: &Shore) -> Vec<(u8, f64, f64)> {
    let count = || -> Vec<[u64; 2]> {
        let of = |machine: &Machine| {
            let (_, to_peers) = machine.namespace.bytes(LAN);
            let (received, sent) = machine.namespace.bytes(CLOUD);
            [to_peers, received + sent]
        };
        shore.machines.iter().map(of).collect()
    };
    let (start, before) = (Instant::now(), count());
    std::thread::sleep(LENGTH);
    let (after, seconds) = (count(), start.elapsed().as_secs_f64());
    let machines = shore.machines.iter().zip(before.into_iter().zip(after));
    machines
        .map(|(machine, (before, after))| {
            let rate = |what: usize| (after[what] - before[what]) as f64 / seconds;
            (machine.number, rate(0), rate(1))
        })
        .collect()
}

#[test]
#[ignore = "measures for minutes; run it by hand"]
fn of_calm_cells() {
    if let Some(why) = netns::missing() {
        return skipped("of_calm_cells", &why);
    }
    for count in [5, 64] {
        let shore = Shore::start(count, Ip::V4);
        std::thread::sleep(SETTLES);
        let rates = rates(&shore);
        let to_peers: Vec<(u8, f64)> = rates.iter().map(|(number, rate, _)| (*number, *rate)).collect();
        let to_server: Vec<(u8, f64)> = rates.iter().map(|(number, _, rate)| (*number, *rate)).collect();
        for (what, goal, rates) in [
            ("sent to peers", "2,000 B/s", to_peers),
            (
                "exchanged with the API server",
                "100 B/s in the mean, 200 B/s a reporter",
                to_server,
            ),
        ] {
            let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / rates.len() as f64;
            let (number, most) = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("machines");
            eprintln!(
                "N = {count}, {what}, all headers included: mean {mean:.0} B/s, most {most:.0} B/s ({}); goal: {goal}",
                name(*number)
            );
        }
    }
}
