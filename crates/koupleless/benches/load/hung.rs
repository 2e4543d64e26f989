//! Bases that take connections and answer nothing, and what that does to the others.

use super::drive::{PATIENCE, Stage};
use super::{Args, pods};
use evenkeel_testkit::bench::{Row, quantile};
use futures::StreamExt as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// New pods per second on bases that are well.
const PACE: usize = 5;
/// New pods on each that hangs.
const STUCK: usize = 10;
/// By so much the p99 with one base that hangs may be beyond that without: what two runs differ by.
const NOISE: f64 = 0.25;

/// A round without bases that hang, and one for each number of them.
pub(crate) fn measure(stage: &mut Stage, args: &Args) {
    let without = round(stage, args, 0, 0);
    for (number, &hung) in (1..).zip(&args.hung) {
        let with = round(stage, args, number, hung);
        if hung == 1
            && let Some(row) = stage
                .rows
                .iter_mut()
                .rfind(|row| row.what.starts_with("new pods"))
        {
            row.goal = Some(("p99 as without, within 0.25 s", with <= without + NOISE));
        }
    }
}

/// New pods on bases of which the first so many hang; the p99 of the time until one on another base is ready.
fn round(stage: &mut Stage, args: &Args, number: usize, hung: u16) -> f64 {
    assert!(hung < args.bases, "--hung: some bases have to be well");
    let (well, samples) = (args.bases - hung, PACE * usize::try_from(args.round).unwrap());
    let module = |index: usize| format!("r{number}-{index}");
    for index in 0..STUCK.max(samples.div_ceil(usize::from(well))) {
        stage.bases.ask(&format!("jar {}", module(index)));
    }
    stage.bases.ask(&format!("hang {hung}"));
    let stuck: Vec<(String, u16, usize)> = (0..hung)
        .flat_map(|base| (0..STUCK).map(move |index| (format!("stuck-{number}-{base}-{index}"), base, index)))
        .collect();
    let (clients, seen) = (&stage.clients, &stage.seen);
    stage.runtime.block_on(async {
        for (name, base, index) in &stuck {
            pods::create(&clients[0], name, *base, &[module(*index)]).await;
        }
    });
    let files = stage.provider.watch_files();
    stage.bases.ask("forget");
    let began = tokio::time::Instant::now();
    let sample = async |index: usize| {
        tokio::time::sleep_until(began + Duration::from_secs_f64(index as f64 / PACE as f64)).await;
        let base = hung + u16::try_from(index % usize::from(well)).unwrap();
        let (name, asked) = (format!("new-{number}-{index}"), Instant::now());
        pods::create(
            &clients[index % clients.len()],
            &name,
            base,
            &[module(index / usize::from(well))],
        )
        .await;
        seen.all(std::slice::from_ref(&name), PATIENCE).await;
        seen.at(&name).unwrap().duration_since(asked).as_secs_f64()
    };
    let times = stage.runtime.block_on(async {
        let samples = futures::stream::iter(0..samples).map(sample);
        samples.buffer_unordered(usize::MAX).collect::<Vec<f64>>().await
    });
    let early = stuck.iter().filter(|(name, ..)| seen.at(name).is_some()).count();
    assert_eq!(early, 0, "a base that hangs installs nothing");
    let [median, p99, most] = [0.5, 0.99, 1.0].map(|share| quantile(&times, share).unwrap());
    let with = match hung {
        0 => "none hangs".to_owned(),
        _ => format!("{hung} of {} hang, with {STUCK} new pods each", args.bases),
    };
    stage.rows.push(Row::new(
        format!("new pods, {PACE} a second for {} s, until Ready on bases that are well, {with}: p50, p99, longest", args.round),
        format!("{median:.2} s, {p99:.2} s, {most:.2} s"),
    ));
    for (command, what) in [("health", "health polls"), ("queryAllBiz", "looks at modules")] {
        let gaps = stage.bases.ask(&format!("gaps {command} {hung}"));
        let gaps = gaps.trim().replace(' ', " s, ");
        stage.row(
            format!("time between {what} of bases that are well meanwhile: p50, p99, longest"),
            format!("{gaps} s"),
        );
    }
    let files = files.load(Ordering::Relaxed);
    stage.row("open files of the provider meanwhile, at most", files.to_string());
    if hung > 0 {
        stage.bases.ask("serve");
        let served = Instant::now();
        let names: Vec<String> = stuck.into_iter().map(|(name, ..)| name).collect();
        stage.runtime.block_on(stage.seen.all(&names, PATIENCE));
        let seconds = served.elapsed().as_secs_f64();
        stage.row(
            "from their recovery until their own new pods are Ready",
            format!("{seconds:.1} s"),
        );
    }
    p99
}
