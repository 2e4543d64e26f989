//! Plays a scenario in a running lab.

use crate::{
    console::Console,
    control::Fault,
    observe::{description, moment::Moment},
    running::{Lab, SetupError},
    scenario::{
        Scenario, Span,
        assertions::{self, Finding, Strike},
        crash::{ApiServerCrash, Crash},
        step::{Condition, Expect, Hold, Step, Timed, Victim, Wait},
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

/// Applies the scenario's manifests and takes its steps. Failed assertions are collected. A wait whose
/// condition is not met in time, or a step that cannot be taken, ends the run.
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
        first: None,
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

/// A fault, as far as the assertions that follow it need to know it.
struct Struck {
    node: Option<String>,
    what: String,
    lasts: Duration,
    silences: bool,
}

impl Struck {
    /// A fault of a node whose kubelet still reaches the API server.
    fn node(node: &str, what: String) -> Self {
        Self {
            node: Some(node.to_owned()),
            ..Self::beside(what)
        }
    }

    /// A fault of something that runs beside the nodes.
    fn beside(what: String) -> Self {
        Self {
            node: None,
            what,
            lasts: Duration::ZERO,
            silences: false,
        }
    }
}

struct Run<'a> {
    lab: &'a Lab,
    console: &'a Console,
    strike: Option<Strike>,
    /// When the first fault struck since everything was last found ready or clean.
    first: Option<Duration>,
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
                    delay_ms: cut.delay.map(Span::millis),
                    drop_percent: cut.drop_percent(),
                };
                let what = match cut.link() {
                    "cloud" => format!("{} cut off", cut.node()),
                    "peers" => format!("{} cut from its peers", cut.node()),
                    other => format!("{} cut from {other}", cut.node()),
                };
                let struck = Struck {
                    silences: cut.silences(),
                    ..Struck::node(cut.node(), what)
                };
                self.strike(struck, fault).await
            }
            Step::Kill(victim) => {
                let node = self.victim(victim)?;
                let struck = Struck {
                    silences: true,
                    ..Struck::node(&node, format!("{node} off"))
                };
                self.strike(struck, Fault::Kill { node }).await
            }
            Step::Crash(Crash::Agent(node)) => {
                let node = node.value.clone();
                let struck = Struck::node(&node, format!("agent of {node} killed"));
                self.strike(struck, Fault::CrashAgent { node }).await
            }
            Step::Crash(Crash::Controller(replica)) => {
                let which = replica.value;
                let what = format!("{which} killed").trim_start_matches("the ").to_owned();
                self.strike(Struck::beside(what), Fault::CrashController { which })
                    .await
            }
            Step::Crash(Crash::ApiServer(ApiServerCrash { r#for: time, stock })) => {
                let what = format!("API server down for {time}");
                let struck = Struck {
                    lasts: time.0,
                    ..Struck::beside(what)
                };
                let fault = Fault::CrashApiServer {
                    for_ms: time.millis(),
                    stock: *stock,
                };
                self.strike(struck, fault).await
            }
            Step::Stall(Timed { node, r#for: time }) => {
                let node = node.value.clone();
                let struck = Struck {
                    lasts: time.0,
                    ..Struck::node(&node, format!("{node} frozen for {time}"))
                };
                let for_ms = time.millis();
                self.strike(struck, Fault::Stall { node, for_ms }).await
            }
            Step::RestartAgent(Timed { node, r#for: time }) => {
                let node = node.value.clone();
                let struck = Struck {
                    lasts: time.0,
                    ..Struck::node(&node, format!("agent of {node} down for {time}"))
                };
                let for_ms = time.millis();
                self.strike(struck, Fault::RestartAgent { node, for_ms }).await
            }
            Step::RestartKubelet(Timed { node, r#for: time }) => {
                let node = node.value.clone();
                let struck = Struck {
                    lasts: time.0,
                    ..Struck::node(&node, format!("kubelet of {node} down for {time}"))
                };
                let for_ms = time.millis();
                self.strike(struck, Fault::RestartKubelet { node, for_ms }).await
            }
            Step::Heal(heal) => {
                self.healed = Some(self.lab.observer().elapsed());
                self.inflict(&Fault::Heal {
                    node: heal.node().map(str::to_owned),
                })
                .await
            }
            Step::Hold(hold) => {
                self.hold(hold).await;
                Ok(())
            }
            Step::Expect(expect) => {
                self.expect(expect).await;
                Ok(())
            }
        }
    }

    async fn strike(&mut self, struck: Struck, fault: Fault) -> Result<(), String> {
        let at = self.lab.observer().elapsed();
        self.strike = Some(Strike {
            at,
            lasts: struck.lasts,
            first: *self.first.get_or_insert(at),
            node: struck.node,
            what: struck.what,
            silences: struck.silences,
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
        let nodes = self.lab.settings().layout.len();
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
            self.first = None;
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

    async fn hold(&mut self, hold: &Hold) {
        self.busily("holding", tokio::time::sleep(hold.r#for.0)).await;
        let (observer, Some(strike)) = (self.lab.observer(), &self.strike) else {
            return;
        };
        let findings = assertions::hold(hold, &observer.changes(), strike, observer.elapsed());
        self.found(findings);
    }

    async fn expect(&mut self, expect: &Expect) {
        let Some(strike) = self.strike.clone() else { return };
        let observer = self.lab.observer();
        let before = Moment::at(&observer.changes(), strike.at);
        let longest = expect.longest(&strike);
        let left = (strike.at + longest).saturating_sub(observer.elapsed());
        let met = observer.wait_for(left, |now| assertions::is_met(expect, &before, now, &strike));
        self.busily("waiting for what is expected", met).await;
        let findings = assertions::expect(expect, &observer.changes(), &strike, observer.elapsed());
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

/// Prints what happens, as it happens. Never ends by itself.
async fn narrate(lab: &Lab, console: &Console) {
    let observer = lab.observer();
    let mut changed = observer.follow_changes();
    let mut before = observer.now();
    let mut known = observer.changes().len();
    loop {
        for change in observer.changes_after(known) {
            known += 1;
            for line in description::describe(&before, &change) {
                console.line(&format!("    {line}"));
            }
            before.apply(&change.what);
        }
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
