//! What cells cost and how soon they find a death on real sockets: bytes by the counters of the interfaces,
//! all headers included. `cargo xtask numbers` prints them beside what is simulated. `EVENKEEL_CELLS=64`
//! measures a cell of this size alone.

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

/// A row as the simulator's table has it.
fn row(count: u8, measured: &str, goal: &str, is_met: bool) {
    let word = if is_met { "met" } else { "FAILED" };
    eprintln!("{:<10} {count:>5}  {measured:<96} {goal:<30} {word}", "sockets");
}

fn rows_of_bytes(count: u8, rates: &[(u8, f64, f64)]) {
    let of = |rate: fn(&(u8, f64, f64)) -> f64| {
        let mean = rates.iter().map(rate).sum::<f64>() / rates.len() as f64;
        let most = rates
            .iter()
            .max_by(|a, b| rate(a).total_cmp(&rate(b)))
            .expect("machines");
        (mean, rate(most), name(most.0))
    };
    let (mean, most, who) = of(|(_, peers, _)| *peers);
    let measured = format!("sent to peers: mean {mean:.0} B/s, most {most:.0} B/s ({who})");
    row(count, &measured, "<= 2,000 B/s", most <= 2_000.0);
    let (mean, most, who) = of(|(_, _, server)| *server);
    let measured = format!("with the API server, both ways: mean {mean:.0} B/s, most {most:.0} B/s ({who})");
    row(
        count,
        &measured,
        "<= 100 B/s, a reporter 200 B/s",
        mean <= 100.0 && most <= 200.0,
    );
}

#[test]
#[ignore = "measures for minutes; cargo xtask numbers plays it"]
fn of_cells() {
    if let Some(why) = netns::missing() {
        return skipped("of_cells", &why);
    }
    let sizes = std::env::var("EVENKEEL_CELLS").unwrap_or_else(|_| "5,64".to_owned());
    for count in sizes.split(',').map(|size| size.parse().expect("a number")) {
        let mut shore = Shore::start(count, Ip::V4);
        std::thread::sleep(SETTLES);
        rows_of_bytes(count, &rates(&shore));
        let reporter = shore.inside(async |shore| {
            let client = shore.client().await;
            shore.holder(&client, |_| true).await
        });
        let other = if reporter == 2 { 3 } else { 2 };
        for (what, victim) in [("a member", other), ("the reporter", reporter)] {
            shore.power_off(victim);
            let took = shore.until_state(victim, "Dead", super::PATIENCE).as_secs_f64();
            let measured = format!("power-off of {what} to the announced death: {took:.1} s");
            row(count, &measured, "p50 <= 4 s, p99 <= 6 s", took <= 6.0);
        }
    }
}
