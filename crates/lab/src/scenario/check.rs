//! What deserialization cannot know: names of nodes, ranges, settings that contradict each other, and steps
//! that need a fault before them. Pure.

use super::{
    Scenario,
    crash::{Crash, MAX_CONTROLLERS, Replica},
    step::{Cut, Expect, Hold, Step, Victim},
};
use serde_saphyr::Spanned;

/// The states that a NodeIncident can name.
const STATES: [&str; 7] = [
    "Healthy",
    "KubeletDown",
    "Disconnected",
    "Dead",
    "Isolated",
    "Dark",
    "Unknown",
];

/// A line and what is wrong there.
type Wrong = (u64, String);

/// Checks a scenario as a whole.
pub(super) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    nodes(scenario)?;
    if let Some(controllers) = &scenario.controllers
        && !(1..=MAX_CONTROLLERS).contains(&controllers.value)
    {
        let reason = format!(
            "controllers: {} is not between 1 and {MAX_CONTROLLERS}",
            controllers.value
        );
        return Err((controllers.referenced.line(), reason));
    }
    let checks = Checks {
        nodes: scenario.node_names(),
        controllers: scenario.controllers(),
    };
    let mut struck = false;
    for step in &scenario.steps {
        let line = step.referenced.line();
        checks.step(&step.value, line)?;
        struck |= step.value.is_fault();
        if step.value.is_judged() && !struck {
            let reason =
                "an assertion needs a cut, kill, crash, stall, restart-agent or restart-kubelet before it";
            return Err((line, reason.to_owned()));
        }
    }
    Ok(())
}

fn nodes(scenario: &Scenario) -> Result<(), Wrong> {
    let layout = scenario.layout();
    let Some(zones) = &scenario.zones else {
        let Err(reason) = layout.check() else {
            return Ok(());
        };
        // The prefix is wrong only where the number is not.
        return Err(match (&scenario.nodes, &scenario.node_prefix) {
            (Some(nodes), _) if nodes.value == 0 || nodes.value > super::MAX_NODES => {
                (nodes.referenced.line(), format!("nodes: {reason}"))
            }
            (_, Some(prefix)) => (prefix.referenced.line(), format!("nodePrefix: {reason}")),
            (_, None) => (0, reason),
        });
    };
    if let Some(prefix) = &scenario.node_prefix {
        let reason =
            "nodePrefix: nodes of zones are called after their zones; leave it out, or leave out zones";
        return Err((prefix.referenced.line(), reason.to_owned()));
    }
    if let Err(reason) = layout.check() {
        return Err((zones.referenced.line(), format!("zones: {reason}")));
    }
    if let Some(nodes) = &scenario.nodes
        && usize::from(nodes.value) != layout.len()
    {
        let reason = format!(
            "nodes: {} is not the sum of zones, {}; leave it out, or write the sum",
            nodes.value,
            layout.len()
        );
        return Err((nodes.referenced.line(), reason));
    }
    Ok(())
}

struct Checks {
    nodes: Vec<String>,
    controllers: u8,
}

impl Checks {
    fn step(&self, step: &Step, line: u64) -> Result<(), Wrong> {
        match step {
            Step::Note(_) | Step::Wait(_) => Ok(()),
            Step::Cut(cut) => self.cut(cut),
            Step::Kill(victim) => self.kill(victim, line),
            Step::Crash(Crash::Agent(node)) => self.named("crash.agent", node),
            Step::Crash(Crash::Controller(replica)) => self.replica(replica),
            Step::Crash(Crash::ApiServer(_)) => Ok(()),
            Step::Stall(stall) => self.named("stall.node", &stall.node),
            Step::RestartAgent(restart) => self.named("restart-agent.node", &restart.node),
            Step::RestartKubelet(restart) => self.named("restart-kubelet.node", &restart.node),
            Step::Heal(heal) => match &heal.node {
                Some(node) => self.named("heal.node", node),
                None => Ok(()),
            },
            Step::Hold(hold) => self.hold(hold, line),
            Step::Expect(expect) => self.expect(expect, line),
        }
    }

    fn named(&self, field: &str, name: &Spanned<String>) -> Result<(), Wrong> {
        if self.nodes.contains(&name.value) {
            return Ok(());
        }
        let list = self.nodes.join(", ");
        Err((
            name.referenced.line(),
            format!("{field}: unknown node `{}`; known are {list}", name.value),
        ))
    }

    fn cut(&self, cut: &Cut) -> Result<(), Wrong> {
        self.named("cut.node", &cut.node)?;
        if !matches!(cut.link.value.as_str(), "cloud" | "peers") {
            self.named("cut.link", &cut.link)?;
        }
        match &cut.drop_percent {
            Some(percent) if percent.value > 100 => Err((
                percent.referenced.line(),
                "cut.dropPercent: more than 100".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn kill(&self, victim: &Victim, line: u64) -> Result<(), Wrong> {
        match &victim.node {
            Some(node) if victim.running.is_empty() => self.named("kill.node", node)?,
            Some(node) => {
                let reason = "kill: give either node or running".to_owned();
                return Err((node.referenced.line(), reason));
            }
            None if victim.running.is_empty() => {
                return Err((line, "kill: give node or running".to_owned()));
            }
            None => {}
        }
        victim
            .except
            .iter()
            .try_for_each(|node| self.named("kill.except", node))
    }

    fn replica(&self, replica: &Spanned<Replica>) -> Result<(), Wrong> {
        match replica.value {
            Replica::Number(number) if number > self.controllers => {
                let reason = format!(
                    "crash.controller: {number} is more than the lab has; it has {} (controllers: N)",
                    self.controllers
                );
                Err((replica.referenced.line(), reason))
            }
            _ => Ok(()),
        }
    }

    fn hold(&self, hold: &Hold, line: u64) -> Result<(), Wrong> {
        let judged = [hold.pods_moved, hold.endpoints_lost, hold.state_changes];
        self.on("hold.on", &hold.on, judged.iter().any(Option::is_some), line)
    }

    fn expect(&self, expect: &Expect, line: u64) -> Result<(), Wrong> {
        let counted = [expect.pods_moved, expect.endpoints_lost, expect.state_changes];
        let filtered = counted.iter().any(Option::is_some) || expect.endpoints_back.is_some();
        self.on("expect.on", &expect.on, filtered, line)?;
        let of_the_node = expect.endpoints_out.is_some()
            || expect.replaced.is_some()
            || expect.reported.is_some()
            || expect.stateful_not_moved;
        if !filtered && !of_the_node {
            return Err((
                line,
                "expect: nothing is expected; name at least one assertion".to_owned(),
            ));
        }
        match &expect.reported {
            Some(reported) if !STATES.contains(&reported.state.value.as_str()) => {
                let reason = format!(
                    "expect.reported.state: unknown state `{}`; known are {}",
                    reported.state.value,
                    STATES.join(", ")
                );
                Err((reported.state.referenced.line(), reason))
            }
            _ => Ok(()),
        }
    }

    /// Nodes that are looked at. `filtered` is whether there is an assertion that they matter to.
    fn on(&self, field: &str, nodes: &[Spanned<String>], filtered: bool, line: u64) -> Result<(), Wrong> {
        nodes.iter().try_for_each(|node| self.named(field, node))?;
        if nodes.is_empty() || filtered {
            return Ok(());
        }
        let reason = format!(
            "{field}: it narrows podsMoved, endpointsLost, endpointsBack and stateChanges, and none of them is here"
        );
        Err((line, reason))
    }
}

impl Step {
    /// Whether assertions count from it.
    fn is_fault(&self) -> bool {
        match self {
            Self::Cut(_)
            | Self::Kill(_)
            | Self::Crash(_)
            | Self::Stall(_)
            | Self::RestartAgent(_)
            | Self::RestartKubelet(_) => true,
            Self::Note(_) | Self::Wait(_) | Self::Heal(_) | Self::Hold(_) | Self::Expect(_) => false,
        }
    }

    /// Whether it judges what happened since a fault.
    fn is_judged(&self) -> bool {
        match self {
            Self::Hold(hold) => {
                hold.pods_moved.is_some() || hold.endpoints_lost.is_some() || hold.state_changes.is_some()
            }
            Self::Expect(_) => true,
            _ => false,
        }
    }
}
