//! Plays a scenario in a running lab.

use crate::{
    console::Console,
    control::Fault,
    observe::{moment::Moment, story},
    running::{Lab, SetupError},
    scenario::{
        Condition, Crash, Expect, Hold, Scenario, Step, Victim, Wait,
        assertions::{self, Finding, Strike},
    },
};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Each assertion with what was measured.
    pub findings: Vec<Finding>,
    /// Why the run ended before its last step.
    pub aborted: Option<String>,
    /// It was interrupted by the user.
    pub interrupted: bool,
    /// The steps as they were taken, with seconds since the lab was up.
    pub script: Vec<(f64, String)>,
}

impl Played {
    /// Whether every assertion held and every step was taken.
    pub fn passed(&self) -> bool {
        self.aborted.is_none() && !self.interrupted && self.findings.iter().all(|finding| finding.held)
    }
}

/// Applies the scenario's manifests and takes its steps. Failed assertions are collected; a wait that is not met in
/// time, or a step that cannot be taken, ends the run.
pub async fn play(
    lab: &Lab,
    scenario: &Scenario,
    console: &Console,
    shutdown: &CancellationToken,
) -> Result<Played, SetupError> {
    for manifest in &scenario.apply {
        let text = manifest.text().unwrap_or_default();
        let count = lab.apply(text, &scenario.name).await?;
        console.line(&format!("applied {count} objects"));
    }
    let mut run = Run {
        lab,
        console,
        strike: None,
        healed: None,
        played: Played::default(),
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => run.played.interrupted = true,
        () = narrate(lab, console) => {}
        () = run.steps(scenario) => {}
    }
    Ok(run.played)
}

struct Run<'a> {
    lab: &'a Lab,
    console: &'a Console,
    strike: Option<Strike>,
    healed: Option<Duration>,
    played: Played,
}

impl Run<'_> {
    async fn steps(&mut self, scenario: &Scenario) {
        for (number, step) in scenario.steps().enumerate() {
            let at = self.lab.observer().elapsed().as_secs_f64();
            self.played
                .script
                .push(((at * 10.0).round() / 10.0, step.to_string()));
            let sign = if matches!(step, Step::Note(_)) { "#" } else { ">" };
            self.console.line(&format!("{sign} {step}"));
            if let Err(reason) = self.step(step).await {
                self.console.line(&format!("! step {}: {reason}", number + 1));
                self.played.aborted = Some(format!("step {} ({step}): {reason}", number + 1));
                return;
            }
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Note(_) => Ok(()),
            Step::Wait(wait) => self.wait(wait).await,
            Step::Cut(cut) => {
                let fault = Fault::Cut {
                    node: cut.node().to_owned(),
                    link: cut.link().to_owned(),
                    way: cut.way,
                    delay_ms: cut
                        .delay
                        .map(|delay| u64::try_from(delay.0.as_millis()).unwrap_or(u64::MAX)),
                    drop_percent: cut.drop_percent(),
                };
                let what = match cut.link() {
                    "cloud" => format!("{} cut off", cut.node()),
                    "peers" => format!("{} cut from its peers", cut.node()),
                    other => format!("{} cut from {other}", cut.node()),
                };
                let silences = cut.silences();
                self.strike(Some(cut.node().to_owned()), what, silences, fault)
                    .await
            }
            Step::Kill(victim) => {
                let node = self.victim(victim)?;
                let what = format!("{node} off");
                self.strike(Some(node.clone()), what, true, Fault::Kill { node })
                    .await
            }
            Step::Crash(Crash::Agent(node)) => {
                let node = node.value.clone();
                let what = format!("agent of {node} killed");
                self.strike(Some(node.clone()), what, false, Fault::CrashAgent { node })
                    .await
            }
            Step::Crash(Crash::Controller) => {
                self.strike(
                    None,
                    "controller killed".to_owned(),
                    false,
                    Fault::CrashController,
                )
                .await
            }
            Step::Heal(heal) => {
                self.healed = Some(self.lab.observer().elapsed());
                self.inflict(&Fault::Heal {
                    node: heal.node().map(str::to_owned),
                })
                .await
            }
            Step::Hold(hold) => {
                self.hold(*hold).await;
                Ok(())
            }
            Step::Expect(expect) => {
                self.expect(*expect).await;
                Ok(())
            }
        }
    }

    async fn strike(
        &mut self,
        node: Option<String>,
        what: String,
        silences: bool,
        fault: Fault,
    ) -> Result<(), String> {
        self.strike = Some(Strike {
            at: self.lab.observer().elapsed(),
            node,
            what,
            silences,
        });
        self.healed = None;
        self.inflict(&fault).await
    }

    async fn inflict(&self, fault: &Fault) -> Result<(), String> {
        let done = self.lab.inflict(fault).await?;
        self.console.line(&done);
        Ok(())
    }

    fn victim(&self, victim: &Victim) -> Result<String, String> {
        if let Some(node) = victim.node() {
            return Ok(node.to_owned());
        }
        let now = self.lab.observer().now();
        let spared: Vec<&str> = victim.except().collect();
        let found = now
            .nodes_running(&victim.running)
            .into_iter()
            .find(|node| !spared.contains(node));
        found
            .map(str::to_owned)
            .ok_or_else(|| format!("there is no such node: {victim}"))
    }

    async fn wait(&mut self, wait: &Wait) -> Result<(), String> {
        let nodes = usize::from(self.lab.settings().nodes);
        let missing = |now: &Moment| match wait.until {
            Condition::Ready => now.unready(nodes),
            Condition::Clean => now.unclean(nodes),
        };
        let observer = self.lab.observer();
        let begun = observer.elapsed();
        let met = observer.wait_for(wait.within.0, |now| missing(now).is_empty());
        let met = self.busily(&wait.until.to_string(), met).await;
        let left = met.map_or_else(|| missing(&observer.now()), |_| Vec::new());
        if let (Some(healed), Condition::Clean, Some(strike)) = (self.healed, wait.until, &self.strike) {
            let took = met.map(|met| met.saturating_sub(healed));
            let allowed = wait.within.0 + begun.saturating_sub(healed);
            let finding =
                assertions::cleaned(&format!("{} healed", strike.what), took, allowed, left.clone());
            self.found(vec![finding]);
        }
        if met.is_some() {
            self.console.line(&format!("{}", wait.until));
            return Ok(());
        }
        Err(format!(
            "not {} within {}: {}",
            wait.until,
            wait.within,
            left.join("; ")
        ))
    }

    async fn hold(&mut self, hold: Hold) {
        self.busily("holding", tokio::time::sleep(hold.r#for.0)).await;
        let (observer, Some(strike)) = (self.lab.observer(), &self.strike) else {
            return;
        };
        let findings = assertions::hold(&hold, &observer.changes(), strike, observer.elapsed());
        self.found(findings);
    }

    async fn expect(&mut self, expect: Expect) {
        let Some(strike) = self.strike.clone() else { return };
        let observer = self.lab.observer();
        let before = Moment::at(&observer.changes(), strike.at);
        let longest = expect
            .endpoints_out
            .max(expect.replaced)
            .map_or(Duration::ZERO, |span| span.0);
        let left = (strike.at + longest).saturating_sub(observer.elapsed());
        let met = observer.wait_for(left, |now| assertions::is_met(&expect, &before, now, &strike));
        self.busily("waiting for what is expected", met).await;
        let findings = assertions::expect(&expect, &observer.changes(), &strike, observer.elapsed());
        self.found(findings);
    }

    fn found(&mut self, findings: Vec<Finding>) {
        for finding in &findings {
            let verdict = if finding.held { "held  " } else { "FAILED" };
            self.console.line(&format!(
                "{verdict} {}: {} (wanted {})",
                finding.event, finding.measured, finding.limit
            ));
            for detail in &finding.detail {
                self.console.line(&format!("         {detail}"));
            }
        }
        self.played.findings.extend(findings);
    }

    /// Shows that time passes while something is awaited.
    async fn busily<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let begun = Instant::now();
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(Duration::from_millis(200)) => {
                    self.console.busy(&format!("{what}, {} s", begun.elapsed().as_secs()));
                }
            }
        }
    }
}

/// Tells what happens, as it happens. Never ends by itself.
async fn narrate(lab: &Lab, console: &Console) {
    let observer = lab.observer();
    let mut changed = observer.follow_changes();
    let mut before = observer.now();
    let mut known = observer.changes().len();
    loop {
        for change in observer.changes_after(known) {
            known += 1;
            for line in story::tell(&before, &change) {
                console.line(&format!("    {line}"));
            }
            before.apply(&change.what);
        }
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
