//! A lab as a user starts it, and what is asked of it.

use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::objects::is_ready;
use evenkeel_testkit::{Cluster, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// The binary under test: the one that was built for it, or the one that `EVENKEEL_BIN` names.
pub(crate) fn evenkeel() -> Command {
    let named = std::env::var_os("EVENKEEL_BIN");
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_evenkeel").into()));
    command.stdin(Stdio::null()).env_remove("KUBECONFIG");
    command
}

/// Exit code and standard error of a command that must end by itself.
pub(crate) fn outcome(command: &mut Command) -> (i32, String) {
    let output = command.output().expect("the command starts");
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A running lab; ends, with all its processes, when it is dropped.
pub(crate) struct Lab {
    child: Child,
    home: TempDir,
    pub(crate) client: Client,
}

impl Lab {
    /// Starts a lab and waits until every node is Ready, every agent stands in the roster, and the lab takes
    /// orders. `subnet` must differ between labs that run at the same time.
    pub(crate) async fn start(nodes: usize, subnet: u8) -> Self {
        Self::start_with(nodes, subnet, &[]).await
    }

    /// The same with more flags.
    pub(crate) async fn start_with(nodes: usize, subnet: u8, flags: &[&str]) -> Self {
        evenkeel_net::init_crypto();
        let home = TempDir::new().expect("a temporary directory");
        let output = File::create(home.path().join("output")).expect("the directory is writable");
        let child = evenkeel()
            .args([
                "lab",
                "--port",
                "0",
                "--nodes",
                &nodes.to_string(),
                "--subnet",
                &subnet.to_string(),
                "--dir",
            ])
            .arg(home.path().join("lab"))
            .args(flags)
            .stdout(output.try_clone().expect("the handle can be copied"))
            .stderr(output)
            .spawn()
            .expect("the lab starts");
        let kubeconfig = home.path().join("lab/kubeconfig");
        let args = ClientArgs {
            kubeconfig: Some(kubeconfig),
            ..ClientArgs::default()
        };
        let client = eventually("the lab writes its kubeconfig", Duration::from_secs(30), || {
            let args = args.clone();
            async move { args.client("test").await.ok() }
        })
        .await;
        let lab = Self { child, home, client };
        lab.wait_for_members(nodes).await;
        // Agents report before the lab itself has seen all of its processes ready.
        eventually("the lab takes orders", Duration::from_secs(30), || async {
            evenkeel_lab::control::status(&lab.dir()).await.ok()
        })
        .await;
        lab
    }

    /// Waits until so many nodes are Ready and the zone's roster holds as many members.
    async fn wait_for_members(&self, nodes: usize) {
        eventually(
            "all nodes are Ready and in the roster",
            Duration::from_secs(60),
            || async {
                let found: Api<Node> = Api::all(self.client.clone());
                let ready = found
                    .list(&ListParams::default())
                    .await
                    .ok()?
                    .items
                    .iter()
                    .filter(|node| is_ready(*node) && !is_of_control_plane(node))
                    .count();
                let reports = self.reports().await;
                let reported = reports.iter().any(|report| report["spec"]["members"] == nodes);
                (ready == nodes && reported).then_some(())
            },
        )
        .await;
    }

    /// The ZoneReports.
    async fn reports(&self) -> Vec<Value> {
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("evenkeel.io", "v1alpha1", "ZoneReport"),
            "zonereports",
        );
        let reports: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let list = reports.list(&ListParams::default()).await;
        let list = list.map(|list| list.items).unwrap_or_default();
        list.into_iter().map(|report| report.data).collect()
    }

    /// Verdict on a node as published; `None` if it is not listed.
    pub(crate) async fn verdict(&self, node: &str) -> Option<String> {
        let reports = self.reports().await;
        let nodes = reports
            .iter()
            .filter_map(|report| report["spec"]["nodes"].as_array());
        let listed = nodes.flatten().find(|entry| entry["name"] == node)?;
        listed["verdict"].as_str().map(str::to_owned)
    }

    /// Pods of a namespace.
    pub(crate) async fn pods(&self, namespace: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        pods.list(&ListParams::default())
            .await
            .map(|list| list.items)
            .unwrap_or_default()
    }

    /// Its objects, as tests name them.
    pub(crate) fn objects(&self) -> Cluster {
        Cluster::by(self.client.clone())
    }

    /// Sends a signal to the process that it has started with this command.
    pub(crate) fn signal(&self, command: &str, signal: Signal) {
        let lab = self.dir().display().to_string();
        let is = |process: &i32| {
            // One that has ended meanwhile has no command line.
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(&lab) && line.split('\0').any(|word| word == command)
        };
        let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
        let mut processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let process = processes.find(is).expect("the lab runs it");
        kill(Pid::from_raw(process), signal).expect("it is ours");
    }

    /// What it prints, its log included.
    pub(crate) fn output(&self) -> PathBuf {
        self.home.path().join("output")
    }

    /// The lab's directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.home.path().join("lab")
    }

    /// A scratch file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, text).expect("the directory is writable");
        path
    }

    /// Runs `evenkeel lab ARGS` against this lab.
    pub(crate) fn command(&self, args: &[&str]) -> (i32, String) {
        outcome(evenkeel().arg("lab").args(args).arg("--dir").arg(self.dir()))
    }

    /// Runs kubectl against this lab.
    pub(crate) fn kubectl(&self, kubectl: &Path, args: &[&str]) -> Output {
        self.kubectl_command(kubectl, args)
            .output()
            .expect("kubectl starts")
    }

    /// The standard output of a kubectl, or of another client of that name, that succeeds.
    pub(crate) fn succeeds(&self, program: &Path, args: &[&str]) -> String {
        let output = self.kubectl(program, args);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{} {args:?} failed\n{out}\n{err}",
            program.display()
        );
        out.into_owned()
    }

    /// A kubectl that is not started yet.
    pub(crate) fn kubectl_command(&self, kubectl: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(kubectl);
        command
            .args(args)
            .stdin(Stdio::null())
            .env("KUBECONFIG", self.dir().join("kubeconfig"))
            .env("HOME", self.home.path());
        command
    }

    /// Ends the lab itself by force; what becomes of its children is another matter.
    pub(crate) fn kill_9(&self) {
        let id = i32::try_from(self.child.id()).expect("process IDs are small");
        kill(Pid::from_raw(id), Signal::SIGKILL).expect("the lab is ours");
    }

    /// Process IDs of the lab's children whose command line holds all of `words`.
    pub(crate) fn children(&self, words: &[&str]) -> Vec<i32> {
        children_of(self.child.id(), words)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).expect("process IDs are small");
        // The lab may have ended already, which is what is wanted.
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            let output = fs::read_to_string(self.home.path().join("output")).unwrap_or_default();
            eprintln!("--- output of the lab\n{output}");
            let logs = fs::read_dir(self.dir().join("logs"))
                .into_iter()
                .flatten()
                .flatten();
            for log in logs {
                let text = fs::read_to_string(log.path()).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(20).collect();
                eprintln!("--- end of {}", log.path().display());
                last.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// Whether a node has a taint.
pub(crate) async fn is_tainted(cluster: &Cluster, name: &str, key: &str) -> bool {
    let node: Node = cluster.get(name).await;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

/// Whether it is a machine that controllers run on.
fn is_of_control_plane(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key("node-role.kubernetes.io/control-plane"))
}

/// Parent of a process that runs; `None` for one that is gone, or that has ended and nobody has asked how.
pub(crate) fn parent_of(id: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The fields after the name, which stands in brackets: state, parent.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    (fields.next()? != "Z").then_some(())?;
    fields.next()?.parse().ok()
}

/// Process IDs of the children of a process whose command line holds all of `words`.
pub(crate) fn children_of(parent: u32, words: &[&str]) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|id| parent_of(*id) == Some(parent))
        .filter(|id| {
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = line.replace('\0', " ");
            words.iter().all(|word| line.contains(word))
        })
        .collect()
}
