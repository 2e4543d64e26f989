//! A lab on one machine, and the control plane that it joins on another one.

use super::process::{Process, client};
use crate::support::{evenkeel, outcome};
use evenkeel_lab::{cluster::controllers, join::LABEL};
use evenkeel_testkit::cluster::Cluster as Objects;
use evenkeel_testkit::kubectl::Kubectl;
use evenkeel_testkit::netns::{Namespace, missing};
use evenkeel_testkit::{SOON, eventually, skipped, until};
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node, Pod};
use kube::Client;
use kube::api::LogParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// What a wire between two machines needs many times less than.
const QUIET: Duration = Duration::from_millis(500);
const PORT: u16 = 6443;
const NODES: [&str; 3] = ["shore-1", "shore-2", "shore-3"];

/// The two machines.
pub(crate) struct Machines {
    /// Where the control plane is.
    pub(crate) cloud: Namespace,
    /// Where the lab is.
    shore: Namespace,
    /// Address of the control plane's machine.
    pub(crate) plane: IpAddr,
    /// That of the lab's.
    lab: IpAddr,
    pub(crate) home: TempDir,
}

impl Machines {
    pub(crate) fn new() -> Self {
        evenkeel_net::init_crypto();
        let (cloud, shore) = (Namespace::new("cloud"), Namespace::new("shore"));
        let (plane, lab) = (Ipv4Addr::new(10, 77, 3, 1), Ipv4Addr::new(10, 77, 3, 2));
        cloud.wire(&shore, plane, lab);
        Self {
            cloud,
            shore,
            plane: plane.into(),
            lab: lab.into(),
            home: TempDir::new().expect("a temporary directory"),
        }
    }

    /// The same with IPv6; `Err` where the machine has none.
    fn with_ipv6() -> Result<Self, String> {
        let mut machines = Self::new();
        let address = |last| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last);
        let (plane, lab) = (address(1), address(2));
        for (namespace, address) in [(&machines.cloud, plane), (&machines.shore, lab)] {
            // Usable at once: nobody else can have it.
            let line = format!("address add {address}/64 dev wire0 nodad");
            let (code, error) = outcome(namespace.command("ip").args(line.split(' ')));
            if code != 0 {
                return Err(format!("no IPv6: {}", error.trim()));
            }
        }
        (machines.plane, machines.lab) = (plane.into(), lab.into());
        Ok(machines)
    }

    /// Our own API server, alone.
    fn api_server(&self) -> (Process, PathBuf) {
        let kubeconfig = self.home.path().join("kubeconfig");
        let mut command = self.cloud.command(evenkeel().get_program());
        command
            .args(["apiserver", "--bind", &self.plane.to_string()])
            .args(["--port", &PORT.to_string(), "--kubeconfig-out"])
            .arg(&kubeconfig);
        let log = self.home.path().join("apiserver.log");
        (Process::start("apiserver", &mut command, log), kubeconfig)
    }

    /// Runs this on the control plane's machine.
    pub(crate) fn in_the_cloud(&self, work: impl AsyncFnOnce() + Send) {
        self.cloud.inside(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(work());
        });
    }

    /// `evenkeel lab` on its machine.
    fn lab(&self, kubeconfig: &Path) -> Command {
        let mut command = self.shore.command(evenkeel().get_program());
        command
            .args(["lab", "--yes", "--dir"])
            .arg(self.home.path().join("lab"))
            .arg("--join")
            .arg(kubeconfig);
        command
    }

    /// What a running lab is told.
    fn order(&self, words: &[&str]) {
        let dir = self.home.path().join("lab");
        let (code, said) = outcome(evenkeel().arg("lab").args(words).arg("--dir").arg(dir));
        assert_eq!(code, 0, "{words:?}: {said}");
    }

    /// What the lab's controller has been asked by its webhook: lines of its metrics.
    fn decisions(&self) -> Option<String> {
        let answer = self.shore.inside(|| {
            let mut stream = TcpStream::connect("127.76.0.1:9103")?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        let answer = answer.ok()?;
        let line = |line: &&str| line.starts_with("evenkeel_webhook_decisions_total{");
        answer.lines().find(line).map(str::to_owned)
    }
}

/// Who does on our own API server what controllers of Kubernetes do, each under its name.
async fn run_controllers(kubeconfig: &Path, stop: CancellationToken) {
    let config = Kubeconfig::read_from(kubeconfig).expect("it was written");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .expect("the kubeconfig is good");
    let admin = Client::try_from(config.clone()).expect("the kubeconfig is good");
    let client_of = move |user: &str, _: &[&str]| {
        let mut config = config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        Client::try_from(config).expect("the kubeconfig is good")
    };
    controllers::run(admin, client_of, String::new(), stop).await;
}

fn joins_our_own(test: &str, machines: &Machines) {
    let (_server, kubeconfig) = machines.api_server();
    machines.in_the_cloud(async || {
        let client = client(&kubeconfig).await;
        let stop = CancellationToken::new();
        let _ends = stop.clone().drop_guard();
        let controllers = kubeconfig.clone();
        tokio::spawn(async move { run_controllers(&controllers, stop).await });
        a_lab_joins(machines, test, &kubeconfig, client).await;
    });
}

/// Whether somebody on this machine can open a connection; `None`: no answer.
async fn answers(address: SocketAddr) -> Option<()> {
    let connecting = tokio::time::timeout(QUIET, tokio::net::TcpStream::connect(address));
    connecting
        .await
        .ok()
        .map(|connected| drop(connected.expect("a refusal is an answer of nobody")))
}

/// Where the API server finds the kubelet of a node.
fn kubelet(node: &Node) -> Option<SocketAddr> {
    let status = node.status.as_ref()?;
    let mut addresses = status.addresses.iter().flatten();
    let internal = addresses.find(|address| address.type_ == "InternalIP")?;
    let port = status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port;
    Some((internal.address.parse::<IpAddr>().ok()?, port.try_into().ok()?).into())
}

/// A lab runs there, the control plane reaches into its containers and asks its webhook, a cut holds, and
/// nothing is left.
pub(crate) async fn a_lab_joins(machines: &Machines, test: &str, kubeconfig: &Path, client: Client) {
    let objects = Objects::by(client).within(2 * SOON);
    it_is_refused_without_a_good_address(machines, kubeconfig, &objects).await;
    let address = machines.lab.to_string();
    let mut command = machines.lab(kubeconfig);
    command.args(["--nodes", "3", "--address", &address]);
    let mut lab = Process::start("lab", &mut command, machines.home.path().join("lab.log"));
    for node in NODES {
        objects.ready::<Node>(node).await;
    }
    let at = objects
        .list::<Node>()
        .await
        .iter()
        .map(kubelet)
        .collect::<Option<Vec<_>>>()
        .expect("they say where they are");
    let wanted: Vec<SocketAddr> = (10_250..)
        .take(3)
        .map(|port| (machines.lab, port).into())
        .collect();
    assert_eq!(at, wanted);

    // Its label has it removed with what is the lab's.
    let talks = json!({"metadata": {"labels": {LABEL.0: LABEL.1},
        "annotations": {"simulated.evenkeel.io/log": "line {n}"}}});
    objects.pod("talker", NODES[0], talks).await;
    objects.ready::<Pod>("talker").await;
    let logs = async || objects.pods().logs("talker", &LogParams::default()).await;
    until("logs", async || {
        logs().await.is_ok_and(|text| text.starts_with("line "))
    })
    .await;
    for kubectl in Kubectl::all(test, kubeconfig, &[]) {
        let said = kubectl
            .succeeds(&["exec", "talker", "--", "cat", "/etc/hostname"])
            .await;
        assert_eq!(said, "talker\n", "{kubectl}");
    }
    until("the webhook is asked", async || machines.decisions().is_some()).await;

    machines.order(&["cut", NODES[0]]);
    // An attempt of the first milliseconds may be accepted, into a queue that nobody serves.
    eventually("no answer of the machine that is cut", SOON, async || {
        answers(at[0]).await.is_none().then_some(())
    })
    .await;
    assert!(answers(at[1]).await.is_some(), "only one machine is cut");
    let unanswered = tokio::time::timeout(4 * QUIET, logs()).await;
    assert!(!matches!(unanswered, Ok(Ok(_))), "{unanswered:?}");
    machines.order(&["heal"]);
    until("logs again", async || logs().await.is_ok()).await;

    // The controllers of this machine go on meanwhile.
    let ended = tokio::task::spawn_blocking(move || lab.end()).await;
    let (status, said) = ended.expect("nothing panics");
    assert!(status.success(), "{status}: {said}");
    assert!(objects.list::<Node>().await.is_empty());
    let (code, said) = outcome(machines.lab(kubeconfig).arg("clean"));
    assert_eq!(code, 0, "{said}");
}

async fn it_is_refused_without_a_good_address(machines: &Machines, kubeconfig: &Path, objects: &Objects) {
    let namespaces = objects.list::<KubeNamespace>().await.len();
    for (address, said) in [
        (None, "with --address IP"),
        (Some("192.0.2.1"), "--address 192.0.2.1: Cannot assign"),
        (Some("::"), "--address ::: "),
    ] {
        let mut command = machines.lab(kubeconfig);
        command.args(
            address
                .map(|address| ["--address", address])
                .into_iter()
                .flatten(),
        );
        let (code, error) = outcome(&mut command);
        assert_eq!(code, 2, "{address:?}: {error}");
        assert!(
            error.contains(said) && error.trim_end().lines().count() == 1,
            "{address:?}: {error}"
        );
    }
    assert!(objects.list::<Node>().await.is_empty());
    assert_eq!(
        objects.list::<KubeNamespace>().await.len(),
        namespaces,
        "nothing was touched"
    );
}

#[test]
fn a_control_plane_on_another_machine_is_joined() {
    let test = "a_control_plane_on_another_machine_is_joined";
    match missing() {
        Some(why) => skipped(test, &why),
        None => joins_our_own(test, &Machines::new()),
    }
}

#[test]
fn a_control_plane_on_another_machine_is_joined_by_ipv6() {
    let test = "a_control_plane_on_another_machine_is_joined_by_ipv6";
    match missing().map_or_else(Machines::with_ipv6, Err) {
        Err(why) => skipped(test, &why),
        Ok(machines) => joins_our_own(test, &machines),
    }
}
