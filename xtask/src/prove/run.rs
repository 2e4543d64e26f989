//! Plays scenarios on control planes of their own.

use crate::real;
use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Time in which controllers have made, or removed, what follows from what was done last.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_secs(1);

/// What is to be played.
pub(super) struct Task {
    /// Names its file.
    pub(super) name: String,
    pub(super) scenario: String,
    pub(super) runs: usize,
    pub(super) agents: bool,
    /// Whether they are installed.
    pub(super) installed: bool,
    /// Hash of the scenario's text.
    pub(super) state: String,
}

/// The programs.
pub(super) struct Tools {
    evenkeel: PathBuf,
    kubernetes: PathBuf,
}

impl Tools {
    pub(super) fn build(root: &Path) -> anyhow::Result<Self> {
        let kubernetes = real::build(root)?;
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release"])
            .current_dir(root)
            .status();
        if !built.context("cannot start cargo")?.success() {
            bail!("cannot build evenkeel");
        }
        Ok(Self {
            evenkeel: root.join("target/release/evenkeel"),
            kubernetes,
        })
    }

    /// Plays a task in a folder that no other slot uses. What the lab reports of each run.
    pub(super) fn play(&self, folder: &Path, slot: u8, task: &Task) -> anyhow::Result<Vec<Value>> {
        // Left by a run that was interrupted; its processes ended with it.
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let plane = Plane::start(&self.kubernetes, &folder.join("plane"))?;
        let before = self.settled(&plane)?;
        let (log, report) = (folder.join("log"), folder.join("report.json"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let errors = file.try_clone().context("cannot write the log")?;
        let control = format!("{} --dir {}", self.kubernetes.display(), plane.dir.display());
        let mut lab = with_parent(&self.evenkeel);
        lab.args(["lab", "run", &task.scenario, "--yes", "--repeat"])
            .arg(task.runs.to_string())
            .args(["--control-plane", &control, "--subnet"])
            .arg((100 + slot).to_string())
            .arg("--join")
            .arg(plane.kubeconfig())
            .arg("--dir")
            .arg(folder.join("lab"))
            .arg("--report")
            .arg(&report)
            .args((!task.agents).then_some("--without-agents"))
            .args(task.installed.then_some("--installed"))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors);
        let status = lab.status().context("cannot start evenkeel")?;
        // 1: an assertion did not hold, which the report says.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!(
                "`evenkeel lab run {}` ended with {status}; its log is {}",
                task.scenario,
                log.display()
            );
        }
        let text = std::fs::read(&report).with_context(|| format!("the log is {}", log.display()))?;
        let report: Value = serde_json::from_slice(&text)
            .with_context(|| format!("the lab's report is not JSON; its log is {}", log.display()))?;
        self.check_nothing_is_left(&plane, folder, &before)?;
        Ok(match report {
            Value::Object(mut many) if many.contains_key("runs") => match many.remove("runs") {
                Some(Value::Array(runs)) => runs,
                _ => Vec::new(),
            },
            one => vec![one],
        })
    }

    /// Whether the control plane holds what it held before the lab, and no process of the lab is left.
    fn check_nothing_is_left(
        &self,
        plane: &Plane,
        folder: &Path,
        before: &BTreeSet<String>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + SETTLED_WITHIN;
        let left = loop {
            let left: Vec<String> = self.keys(plane)?.difference(before).cloned().collect();
            if left.is_empty() || Instant::now() > end {
                break left;
            }
            std::thread::sleep(POLL);
        };
        if !left.is_empty() {
            bail!("the lab left objects behind: {}", left.join(", "));
        }
        let lab = folder.join("lab").display().to_string();
        let ours = std::process::id().to_string();
        for entry in std::fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            // A process that has ended meanwhile has no command line.
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if pid != ours && String::from_utf8_lossy(&line).contains(&lab) {
                bail!("the lab left process {pid} behind");
            }
        }
        Ok(())
    }

    /// What is stored once the control plane has made its own objects: the same at two looks.
    fn settled(&self, plane: &Plane) -> anyhow::Result<BTreeSet<String>> {
        let end = Instant::now() + SETTLED_WITHIN;
        let mut before = self.keys(plane)?;
        loop {
            std::thread::sleep(3 * POLL);
            let now = self.keys(plane)?;
            if now == before {
                return Ok(now);
            }
            if Instant::now() > end {
                bail!("the control plane does not come to rest");
            }
            before = now;
        }
    }

    /// The keys of all objects but Events.
    fn keys(&self, plane: &Plane) -> anyhow::Result<BTreeSet<String>> {
        let output = Command::new(&self.kubernetes)
            .arg("--dir")
            .arg(&plane.dir)
            .arg("keys")
            .output()
            .context("cannot read what is stored")?;
        if !output.status.success() {
            bail!(
                "cannot read what is stored: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// A command that ends when this process does, however that ends.
fn with_parent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// A control plane that runs.
struct Plane {
    dir: PathBuf,
    process: Child,
}

impl Plane {
    fn start(program: &Path, dir: &Path) -> anyhow::Result<Self> {
        let mut process = with_parent(program)
            .arg("--dir")
            .arg(dir)
            .arg("up")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the control plane; is setpriv installed?")?;
        let mut said = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output)
                .read_line(&mut said)
                .context("cannot hear the control plane")?;
        }
        let plane = Self {
            dir: dir.to_owned(),
            process,
        };
        if !said.starts_with("ready: ") {
            bail!(
                "the control plane did not start; its logs are in {}",
                dir.display()
            );
        }
        Ok(plane)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // By SIGTERM, so that it ends its components in order.
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
