//! Fake bases as a process.

use evenkeel_kubelet_api::listeners;
use evenkeel_testkit::arklet::{Base, Jar, Jars, Setup};
use evenkeel_testkit::bench::{quantile, serve_orders};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// First word of its command line; then follow how many, and where heartbeats go.
pub(crate) const ROLE: &str = "play-bases";
/// So many addresses there are.
pub(crate) const MOST: i64 = 60_000;
/// arklet's.
const PORT: u16 = 1238;

/// Address of a base by number.
fn address(index: u16) -> Ipv4Addr {
    // Neither the network's own address nor its last.
    let [high, low] = (index + 1).to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

/// Name of a base's node by number.
pub(crate) fn node_name(index: u16) -> String {
    format!("vnode.{}.dev", address(index))
}

/// Where the bases find a module's jar.
pub(crate) fn url(module: &str) -> String {
    format!("file:///opt/biz/{module}.jar")
}

/// Plays bases until standard input ends.
pub(crate) fn play(count: u16, heartbeat: &str) {
    listeners::raise_file_limit().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let jars = Jars::new();
    let start = |index| {
        Base::start(Setup {
            ip: address(index).into(),
            port: PORT,
            jars: jars.clone(),
            ..Setup::default()
        })
    };
    let bases: Vec<Base> = (0..count).map(start).collect();
    serve_orders("ready", |order| {
        let (what, which) = order.split_once(' ').unwrap_or((order, ""));
        match what {
            // Heartbeats from now on, all at once, as after a restart of the controller.
            "beat" => bases.iter().for_each(|base| base.heartbeat_to(heartbeat)),
            // A jar of this name, for all.
            "jar" => jars.put(&url(which), Jar::new(which, "1")),
            "hang" => bases[..which.parse().unwrap()].iter().for_each(Base::hang),
            "serve" => bases.iter().for_each(Base::serve),
            "forget" => bases.iter().for_each(Base::forget),
            "requests" => return requests(&bases),
            "gaps" => {
                let (command, from) = which.split_once(' ').unwrap();
                return gaps(&bases[from.parse().unwrap()..], command);
            }
            _ => panic!("{order:?} is no order"),
        }
        String::new()
    });
}

/// How often each command was received since they were told to forget.
fn requests(bases: &[Base]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in bases.iter().flat_map(Base::log) {
        *counts.entry(request.command).or_default() += 1;
    }
    let mut text = String::new();
    for (command, count) in counts {
        writeln!(text, "{command} {count}").unwrap();
    }
    text
}

/// Times between one request of this command and the next to the same base, in seconds: median, p99, longest.
fn gaps(bases: &[Base], command: &str) -> String {
    let mut gaps = Vec::new();
    for base in bases {
        let log = base
            .log()
            .into_iter()
            .filter(|request| request.command == command);
        let times: Vec<i64> = log.map(|request| request.time).collect();
        gaps.extend(times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1000.0));
    }
    let quantiles = [0.5, 0.99, 1.0].map(|share| quantile(&gaps, share).unwrap_or(f64::NAN));
    let quantiles = quantiles.map(|gap| format!("{gap:.1}"));
    quantiles.join(" ")
}
