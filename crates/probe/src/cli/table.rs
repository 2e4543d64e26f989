//! The table as text: a view and a size go in, lines come out. Pure.

use super::record::kind_name;
use super::text::{cut, took};
use crate::core::{Kind, Reading};
use evenkeel_kube_values::Go;
use evenkeel_kube_values::terminal::{clean, pad};
use std::sync::Arc;
use std::time::Duration;

/// What the table shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// `namespace/name`.
    pub(super) pod: String,
    /// Whether all containers are ready.
    pub(super) ready: bool,
    /// Since the start.
    pub(super) elapsed: Duration,
    /// Containers with their probes, in their order.
    pub(super) containers: Vec<Block>,
}

/// A container and its probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) name: Arc<str>,
    pub(super) running: bool,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    /// Until it starts again.
    pub(super) waits: Option<Duration>,
    pub(super) probes: Vec<Row>,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    /// What is published.
    pub(super) state: Option<Reading>,
    /// The last result that counted, how many alike came in a row, and how many are needed.
    pub(super) run: Option<(Reading, u32, u32)>,
    /// Verdict of the last attempt, and how long it took.
    pub(super) last: Option<(&'static str, Duration)>,
    pub(super) next: Next,
    /// What the last attempt said.
    pub(super) detail: String,
}

/// When a probe is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// In about this time.
    In(Duration),
    /// Not before there is a new container.
    Hold,
    /// After the startup probe has succeeded.
    Gated,
    /// Nothing to probe.
    Idle,
}

const HEAD: [&str; 8] = [
    "CONTAINER",
    "PROBE",
    "STATE",
    "RUN",
    "LAST",
    "LATENCY",
    "NEXT",
    "DETAIL",
];

/// At most `height` lines, none wider than `width`.
pub(super) fn render(view: &View, width: usize, height: usize) -> Vec<String> {
    let ready = if view.ready { "Ready" } else { "not Ready" };
    let elapsed = Duration::from_secs(view.elapsed.as_secs());
    let mut lines = vec![format!("pod {}  {ready}  {}", clean(&view.pod), Go(elapsed))];
    let mut rows = vec![HEAD.map(str::to_owned)];
    for block in &view.containers {
        lines.push(summary(block));
        let name = clean(&block.name);
        rows.extend(block.probes.iter().map(|row| cells(name.clone(), row)));
    }
    let mut widths = [0; HEAD.len()];
    for row in &rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = super::text::width(cell).max(*most);
        }
    }
    // A long name must not push the state out of sight.
    widths[0] = widths[0].min((width / 4).max(HEAD[0].len()));
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, most)| pad(&cut(cell, most), most));
        lines.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    if lines.len() > height && height > 0 {
        let hidden = lines.len() - height + 1;
        lines.truncate(height - 1);
        lines.push(format!("… {hidden} more lines; the terminal is too low"));
    }
    lines.truncate(height);
    lines.iter().map(|line| cut(line, width)).collect()
}

fn summary(block: &Block) -> String {
    let state = match (block.running, block.waits) {
        (true, _) => "running".to_owned(),
        (false, Some(left)) => format!("starts again in {}", Go(whole(left))),
        (false, None) => "not running".to_owned(),
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    format!(
        "container {}  {state}  started {}  ready {}  restarts {}",
        clean(&block.name),
        yes(block.started),
        yes(block.ready),
        block.restarts
    )
}

fn cells(name: String, row: &Row) -> [String; HEAD.len()] {
    let dash = || "-".to_owned();
    [
        name,
        kind_name(row.kind).to_owned(),
        row.state
            .map_or_else(dash, |state| state.to_string().to_lowercase()),
        row.run.map_or_else(dash, |(reading, run, of)| {
            format!("{run}/{of} {}", reading.to_string().to_lowercase())
        }),
        row.last.map_or_else(dash, |(verdict, _)| verdict.to_owned()),
        row.last.map_or_else(dash, |(_, time)| took(time)),
        match row.next {
            Next::In(time) => Go(whole(time)).to_string(),
            Next::Hold => "on hold".to_owned(),
            Next::Gated => "gated".to_owned(),
            Next::Idle => dash(),
        },
        clean(row.detail.trim_end()),
    ]
}

/// Rounded up to seconds: a countdown that ends with 1.
fn whole(time: Duration) -> Duration {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::super::text::width;
    use super::*;

    fn row(kind: Kind) -> Row {
        Row {
            kind,
            state: None,
            run: None,
            last: None,
            next: Next::Idle,
            detail: String::new(),
        }
    }

    fn view() -> View {
        View {
            pod: "default/web".to_owned(),
            ready: false,
            elapsed: Duration::from_millis(61_500),
            containers: vec![Block {
                name: "web".into(),
                running: true,
                started: true,
                ready: false,
                restarts: 1,
                waits: None,
                probes: vec![
                    Row {
                        state: Some(Reading::Success),
                        next: Next::Hold,
                        ..row(Kind::Startup)
                    },
                    Row {
                        state: Some(Reading::Failure),
                        run: Some((Reading::Failure, 2, 3)),
                        last: Some(("failure", Duration::from_micros(1_250))),
                        next: Next::In(Duration::from_millis(4_200)),
                        detail: "HTTP probe failed with statuscode: 500\n\x1b[31m".to_owned(),
                        ..row(Kind::Readiness)
                    },
                    Row {
                        next: Next::Gated,
                        ..row(Kind::Liveness)
                    },
                ],
            }],
        }
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        let lines = render(&view(), 140, 40);
        assert_eq!(
            lines,
            [
                "pod default/web  not Ready  1m1s",
                "container web  running  started yes  ready no  restarts 1",
                "CONTAINER  PROBE      STATE    RUN          LAST     LATENCY  NEXT     DETAIL",
                "web        startup    success  -            -        -        on hold",
                "web        readiness  failure  2/3 failure  failure  1.2 ms   5s       HTTP probe failed with statuscode: 500\\n\\u{1b}[31m",
                "web        liveness   -        -            -        -        gated",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_nor_are_there_more() {
        let mut view = view();
        view.containers[0].name = "好".repeat(80).into();
        for (columns, rows) in [(0, 0), (1, 1), (2, 3), (20, 2), (79, 6), (200, 5), (500, 500)] {
            let lines = render(&view, columns, rows);
            assert!(lines.len() <= rows, "{columns}x{rows}: {lines:?}");
            for line in &lines {
                assert!(width(line) <= columns, "{columns}x{rows}: {line:?}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
        assert!(render(&view, 80, 3)[2].starts_with("… 4 more lines"));
    }

    #[test]
    fn a_container_that_waits_says_for_how_long() {
        let mut view = view();
        view.containers[0].running = false;
        view.containers[0].waits = Some(Duration::from_millis(9_001));
        assert!(render(&view, 120, 40)[1].contains("starts again in 10s"));
        view.containers[0].waits = None;
        assert!(render(&view, 120, 40)[1].contains("not running"));
    }
}
