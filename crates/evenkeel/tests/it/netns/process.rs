//! A process of ours on a machine of a test, and how to speak to one that is an API server.

use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{SOON, eventually};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A client of an API server that starts.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let args = ClientArgs {
        kubeconfig: Some(kubeconfig.to_owned()),
        ..ClientArgs::default()
    };
    eventually("the API server answers", SOON, || {
        let args = args.clone();
        async move {
            let client = args.client("test").await.ok()?;
            client.apiserver_version().await.ok()?;
            Some(client)
        }
    })
    .await
}

/// Definitions and the namespace that our components expect.
pub(crate) async fn install(client: &Client) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds.yaml");
    let text = fs::read_to_string(file).expect("the manifests are in the repository");
    let crds: Vec<CustomResourceDefinition> =
        serde_saphyr::from_multiple(&text).expect("the manifests can be read");
    let definitions = Api::all(client.clone());
    for crd in crds {
        definitions.add(&crd).await;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "evenkeel-system" } }));
    namespaces.add(&namespace.expect("a Namespace")).await;
}

/// A process; killed when it is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command, which writes its output to a file.
    pub(crate) fn start(name: &str, command: &mut Command, log: PathBuf) -> Self {
        let output = File::create(&log).expect("the directory is writable");
        let child = command
            .env_remove("KUBECONFIG")
            // Ends with its standard input, which ends with the test.
            .env("EVENKEEL_PARENT_STDIN", "1")
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("the handle can be copied"))
            .stderr(output)
            .spawn()
            .expect("`ip` starts");
        let name = name.to_owned();
        Self { name, child, log }
    }

    /// Its process id: `ip` has become the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// It stands still until [`Process::resume`].
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Asks it to end, and waits until it has. How it ended, and all that it said.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        // `wait` would close it, and a process that has lost its parent gets less time.
        let _stdin = self.child.stdin.take();
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().expect("it is our child");
        (status, fs::read_to_string(&self.log).expect("it was made"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(30).collect();
            eprintln!("--- end of the log of {}", self.name);
            last.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}
