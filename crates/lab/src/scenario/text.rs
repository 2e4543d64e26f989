//! How steps and errors read.

use super::step::{Cut, Expect, Heal, Hold, Step, Victim, Wait};
use serde_saphyr::Spanned;
use std::fmt;

/// The message of a YAML error without its drawing, on one line.
pub(super) fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let message: Vec<&str> = text.split_whitespace().collect();
    message.join(" ")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(text) => f.write_str(text.trim()),
            Self::Wait(Wait { until, within }) => write!(f, "wait until {until}, at most {within}"),
            Self::Cut(cut) => cut.fmt(f),
            Self::Kill(victim) => write!(f, "power off {victim}"),
            Self::Crash(crash) => crash.fmt(f),
            Self::Stall(stall) => write!(f, "freeze {} for {}", stall.node.value, stall.r#for),
            Self::RestartAgent(restart) => {
                write!(
                    f,
                    "stop the agent of {} for {}",
                    restart.node.value, restart.r#for
                )
            }
            Self::RestartKubelet(restart) => {
                write!(
                    f,
                    "stop the kubelet of {} for {}",
                    restart.node.value, restart.r#for
                )
            }
            Self::Heal(heal) => heal.fmt(f),
            Self::Hold(hold) => hold.fmt(f),
            Self::Expect(expect) => expect.fmt(f),
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match self.link() {
            "cloud" => "cloud link".to_owned(),
            "peers" => "links to its peers".to_owned(),
            other => format!("link to {other}"),
        };
        let mut faults = Vec::new();
        faults.extend(self.delay.map(|delay| format!("delay by {delay}")));
        faults.extend(self.drop_percent().map(|percent| format!("lose {percent} % on")));
        let verb = if faults.is_empty() {
            "cut".to_owned()
        } else {
            faults.join(" and ")
        };
        write!(f, "{verb} {}'s {link} ({})", self.node(), self.way)
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node() {
            Some(node) => f.write_str(node),
            None => write!(f, "a node that runs {}", self.running.join(" and ")),
        }
    }
}

impl fmt::Display for Heal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heal {}", self.node().unwrap_or("everything"))
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold for {}", self.r#for)?;
        let rules = [
            rule("pods moved", self.pods_moved),
            rule("endpoints lost", self.endpoints_lost),
            rule("state changes per node", self.state_changes),
        ];
        let rules: Vec<String> = rules.into_iter().flatten().collect();
        if rules.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}{}", rules.join(", "), on(&self.on))
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rules = Vec::new();
        rules.extend(
            self.endpoints_out
                .map(|within| format!("endpoints out within {within}")),
        );
        rules.extend(
            self.replaced
                .map(|within| format!("Deployment pods ready elsewhere within {within}")),
        );
        rules.extend(
            self.stateful_not_moved
                .then(|| "StatefulSet pods not moved".to_owned()),
        );
        rules.extend(
            self.endpoints_back
                .map(|within| format!("endpoints back within {within}")),
        );
        rules.extend(
            self.reported
                .as_ref()
                .map(|reported| format!("reported as {} within {}", reported.state.value, reported.within)),
        );
        rules.extend(rule("pods moved", self.pods_moved));
        rules.extend(rule("endpoints lost", self.endpoints_lost));
        rules.extend(rule("state changes per node", self.state_changes));
        write!(f, "expect {}{}", rules.join(", "), on(&self.on))
    }
}

fn rule(what: &str, most: Option<usize>) -> Option<String> {
    most.map(|most| {
        if most == 0 {
            format!("0 {what}")
        } else {
            format!("at most {most} {what}")
        }
    })
}

/// Which nodes an assertion is about; nothing for all.
fn on(nodes: &[Spanned<String>]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = nodes.iter().map(|node| node.value.as_str()).collect();
    format!(" on {}", names.join(", "))
}
