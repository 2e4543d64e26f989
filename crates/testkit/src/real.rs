//! Kubernetes' own control plane (`interop/kubernetes`), where it has been built.

use crate::skipped;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A control plane of a test; ends with its thread, or when it is dropped.
pub struct Kubernetes {
    /// Where everything of it lies, and what the test wants to put there.
    pub home: TempDir,
    process: Child,
}

impl Kubernetes {
    /// Starts one and waits until it is ready; `None` where it is not built, after saying that the test is
    /// skipped.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(test: &str) -> Option<Self> {
        Self::start_with(test, &[])
    }

    /// The same with further flags of components: `kube-apiserver=--NAME=VALUE`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_with(test: &str, flags: &[&str]) -> Option<Self> {
        let program = program();
        if !program.is_file() {
            let why = "target/real/kubernetes is not built: cargo xtask real --build-only";
            skipped(test, why);
            return None;
        }
        let home = TempDir::new().expect("a temporary directory");
        // The thread that starts it is the test's, so that it does not outlive a test that is killed.
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(program)
            .arg("--dir")
            .arg(home.path())
            .arg("up")
            .args(flags.iter().flat_map(|flag| ["--flag", *flag]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv is part of util-linux");
        let mut said = String::new();
        let output = process.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut said);
        let kubernetes = Self { home, process };
        assert!(
            read.is_ok() && said.starts_with("ready: "),
            "the control plane did not start: {read:?} {said:?}"
        );
        Some(kubernetes)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// The keys of all objects in etcd but Events.
    ///
    /// # Panics
    /// If etcd cannot be read.
    pub fn keys(&self) -> BTreeSet<String> {
        self.order(&["keys"]).lines().map(str::to_owned).collect()
    }

    /// What the program says to these words: `stop kube-scheduler`, for one.
    ///
    /// # Panics
    /// If it fails.
    pub fn order(&self, words: &[&str]) -> String {
        let output = Command::new(program())
            .arg("--dir")
            .arg(self.home.path())
            .args(words)
            .output()
            .expect("the program was started before");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The process of a component.
    ///
    /// # Panics
    /// If there is none.
    pub fn process_of(&self, component: &str) -> u32 {
        // The kernel lists children by the thread that started them.
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let lists = threads
            .expect("it runs")
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let lists: String = lists.collect();
        let is = |process: &&str| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0)
                .any(|word| word == component.as_bytes())
        };
        let found = lists.split_whitespace().find(is);
        let found = found.unwrap_or_else(|| unreachable!("{component} does not run"));
        found.parse().expect("processes have numbers")
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        // It ends its components in order.
        let asked = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
        if asked.is_err() {
            // It has ended by itself, or cannot be told: in either case there is nothing to wait for.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    crate::root().join("target/real/kubernetes")
}
