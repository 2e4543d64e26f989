//! Plays scenarios on control planes of their own.

use crate::real;
use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// What is to be played.
pub(super) struct Task {
    /// Names its file.
    pub(super) name: String,
    pub(super) scenario: String,
    pub(super) runs: usize,
    pub(super) agents: bool,
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
        let report: Value = serde_json::from_slice(&text).context("the lab's report is not JSON")?;
        self.check_nothing_is_left(&plane)?;
        Ok(match report {
            Value::Object(mut many) if many.contains_key("runs") => match many.remove("runs") {
                Some(Value::Array(runs)) => runs,
                _ => Vec::new(),
            },
            one => vec![one],
        })
    }

    fn check_nothing_is_left(&self, plane: &Plane) -> anyhow::Result<()> {
        let output = Command::new(&self.evenkeel)
            .args(["lab", "clean", "--yes", "--join"])
            .arg(plane.kubeconfig())
            .output()
            .context("cannot start evenkeel")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if said.trim() != "nothing of a lab is there" {
            bail!(
                "the lab left something behind: {said}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
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
