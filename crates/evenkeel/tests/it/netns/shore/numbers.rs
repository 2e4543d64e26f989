//! What cells cost and how soon they find a death on real sockets: bytes by the counters of the interfaces,
//! all headers included. `cargo xtask numbers` prints them beside what is simulated. `EVENKEEL_CELLS=64`
//! measures a cell of this size alone.

use super::{CLOUD, Ip, KUBELET, LAN, Machine, Shore, name};
use evenkeel_testkit::{eventually, netns, skipped};
use std::time::{Duration, Instant};

/// Several renewals of every Lease.
const CALM: Duration = Duration::from_secs(120);
/// Several reports about who is listed.
const LISTED: Duration = Duration::from_secs(60);
/// After the start, until first contacts and writes are over.
const SETTLES: Duration = Duration::from_secs(60);

/// What one machine spends.
#[derive(Clone, Copy)]
struct Spent {
    number: u8,
    /// Bytes per second that it sends to its neighbours.
    peers: f64,
    /// Bytes per second that its agent exchanges with the API server.
    server: f64,
    /// Percent of a core that its agent uses.
    processor: f64,
}

/// What all machines spend for so long.
fn spent(shore: &Shore, length: Duration) -> Vec<Spent> {
    let count = || -> Vec<[f64; 3]> {
        let of = |machine: &Machine| {
            let (_, to_peers) = machine.namespace.bytes(LAN);
            let (received, sent) = machine.namespace.bytes(CLOUD);
            [to_peers as f64, (received + sent) as f64, machine.cpu_of_agent()]
        };
        shore.machines.iter().map(of).collect()
    };
    let (start, before) = (Instant::now(), count());
    std::thread::sleep(length);
    let (after, seconds) = (count(), start.elapsed().as_secs_f64());
    let machines = shore.machines.iter().zip(before.into_iter().zip(after));
    machines
        .map(|(machine, (before, after))| {
            let rate = |what: usize| (after[what] - before[what]) / seconds;
            Spent {
                number: machine.number,
                peers: rate(0),
                server: rate(1),
                processor: 100.0 * rate(2),
            }
        })
        .collect()
}

/// A row as the simulator's table has it.
fn row(count: u8, measured: &str, goal: &str, is_met: bool) {
    let word = if is_met { "met" } else { "FAILED" };
    eprintln!("{:<10} {count:>5}  {measured:<96} {goal:<30} {word}", "sockets");
}

/// The mean of all machines, the most that one spends, and which.
fn of(spent: &[Spent], what: fn(&Spent) -> f64) -> (f64, f64, String) {
    let mean = spent.iter().map(what).sum::<f64>() / spent.len() as f64;
    let most = spent
        .iter()
        .max_by(|a, b| what(a).total_cmp(&what(b)))
        .expect("machines");
    (mean, what(most), name(most.number))
}

fn calm(shore: &Shore, count: u8) {
    let spent = spent(shore, CALM);
    let (mean, most, who) = of(&spent, |spent| spent.peers);
    let measured = format!("sent to peers: mean {mean:.0} B/s, most {most:.0} B/s ({who})");
    row(count, &measured, "<= 2,000 B/s", most <= 2_000.0);
    let (mean, most, who) = of(&spent, |spent| spent.server);
    let measured = format!("with the API server, both ways: mean {mean:.0} B/s, most {most:.0} B/s ({who})");
    row(
        count,
        &measured,
        "<= 100 B/s, a reporter 200 B/s",
        mean <= 100.0 && most <= 200.0,
    );
    let (mean, most, who) = of(&spent, |spent| spent.processor);
    let measured = format!("an agent's processor time: mean {mean:.2} %, most {most:.2} % of a core ({who})");
    row(count, &measured, "<= 0.1 % of a core", most <= 0.1);
}

/// The kubelets of some machines reach the API server no more, so that the reporters list their nodes.
fn listed(shore: &Shore, count: u8, numbers: &[u8], goal: f64) {
    for number in numbers {
        shore.on(*number).cut(&[KUBELET]);
    }
    shore.inside(async |shore| {
        let client = shore.client().await;
        eventually("they are listed", super::PATIENCE, || async {
            let states = shore.states(&client).await;
            let is_listed = |number: &u8| states.contains_key(&name(*number));
            numbers.iter().all(is_listed).then_some(())
        })
        .await;
    });
    let (mean, most, who) = of(&spent(shore, LISTED), |spent| spent.server);
    let measured = format!(
        "with the API server, {} listed: mean {mean:.0} B/s, most {most:.0} B/s ({who})",
        numbers.len()
    );
    row(
        count,
        &measured,
        &format!("<= {goal:.0} B/s for a reporter"),
        most <= goal,
    );
    for number in numbers {
        shore.heal(*number);
    }
    shore.until_calm();
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
        calm(&shore, count);
        let all: Vec<u8> = (1..=count).collect();
        listed(&shore, count, &[2], 2_000.0);
        listed(&shore, count, &all, 10_000.0);
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
