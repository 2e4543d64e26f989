//! Who has run README's two commands goes on: Kubernetes' own control plane with machines of the lab,
//! `evenkeel install`, a node whose link is cut, `evenkeel status` that explains it, an upgrade meanwhile, a
//! machine without power, `evenkeel uninstall`.

use crate::installed::{nothing_is_left_on_objects, refusals};
use crate::netns::process::{Process, client};
use crate::support::{evenkeel, is_tainted};
use evenkeel_lab::switch::ROUTED_PODS;
use evenkeel_testkit::netns::{Namespace, missing};
use evenkeel_testkit::objects::is_ready;
use evenkeel_testkit::real::Kubernetes;
use evenkeel_testkit::{Cluster, skipped, until, until_within};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use std::path::PathBuf;
use std::time::Duration;

/// Kubernetes marks a silent node after 50 s.
const LATE: Duration = Duration::from_secs(120);

/// The control plane, and what is done with it from a shell.
struct Shell {
    cluster: Cluster,
    kubeconfig: PathBuf,
    lab: PathBuf,
}

impl Shell {
    /// Standard output of a command that must succeed; `status` says by exit code 1 that a node is not
    /// healthy.
    async fn run(&self, words: &[&str]) -> String {
        let mut command = evenkeel();
        command.args(words).env("EVENKEEL_LAB_DIR", &self.lab);
        if words.first() != Some(&"lab") {
            command.env("KUBECONFIG", &self.kubeconfig);
        }
        let output = tokio::process::Command::from(command).output().await;
        let output = output.expect("the command starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        let is_told = words.first() == Some(&"status") && output.status.code() == Some(1);
        assert!(output.status.success() || is_told, "{words:?}: {said}{error}");
        said
    }

    /// UIDs of the sample's pods that are ready.
    async fn serving(&self) -> Vec<String> {
        let pods = self.cluster.list::<Pod>().await;
        let ready = pods.iter().filter(|pod| is_ready(*pod));
        ready.filter_map(ResourceExt::uid).collect()
    }

    async fn all_serve(&self) {
        until_within("the sample workload serves", LATE, async || {
            self.serving().await.len() == 9
        })
        .await;
    }
}

#[test]
fn who_is_new_installs_cuts_a_node_understands_and_uninstalls() {
    let test = "who_is_new_installs_cuts_a_node_understands_and_uninstalls";
    if let Some(why) = missing() {
        return skipped(test, &why);
    }
    let machine = Namespace::new("newcomer");
    machine.own(ROUTED_PODS);
    machine.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            if let Some(kubernetes) = Kubernetes::start(test) {
                Box::pin(path(&kubernetes)).await;
            }
        });
    });
}

async fn path(kubernetes: &Kubernetes) {
    evenkeel_net::init_crypto();
    let kubeconfig = kubernetes.kubeconfig();
    let shell = Shell {
        cluster: Cluster::by(client(&kubeconfig).await).within(LATE),
        lab: kubernetes.home.path().join("lab"),
        kubeconfig,
    };
    let mut command = evenkeel();
    command.args(["lab", "--installable", "--zones", "shore=3", "--yes", "--join"]);
    command.arg(&shell.kubeconfig).arg("--dir").arg(&shell.lab);
    let mut lab = Process::start("lab", &mut command, kubernetes.home.path().join("lab.log"));
    shell.all_serve().await;

    let said = shell.run(&["doctor"]).await;
    assert!(said.contains("evenkeel install would be taken"), "{said}");
    let said = shell.run(&["install"]).await;
    assert!(
        said.contains("2 of 2 controllers run; 5 of 5 agents run") && said.contains("mode observe"),
        "{said}"
    );
    until("status says that it observes", async || {
        let said = shell.run(&["status"]).await;
        said.contains("  observe  ") && !said.contains("  act  ")
    })
    .await;
    let said = shell
        .run(&["upgrade", "--mode", "act", "--profile", "edge"])
        .await;
    assert!(said.contains("mode act"), "{said}");
    shell.run(&["doctor"]).await;

    // Only the link is cut: nothing moves, and nothing is taken out of service when Kubernetes marks the
    // node.
    let before = shell.serving().await;
    shell.run(&["lab", "cut", "shore-2"]).await;
    until_within("Kubernetes marks shore-2", LATE, async || {
        is_tainted(&shell.cluster, "shore-2", "node.kubernetes.io/unreachable").await
    })
    .await;
    let said = shell.run(&["status", "shore-2"]).await;
    for wanted in [
        "Node shore-2: Disconnected",
        "a majority of its zone vouches for it",
        "What would change",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("mirror.example/evenkeel:{version}");
    let agent = format!("localhost/evenkeel-agent:{version}");
    let said = shell
        .run(&["upgrade", "--image", &image, "--agent-image", &agent])
        .await;
    assert!(said.contains("2 of 2 controllers run"), "{said}");
    assert!(shell.run(&["status"]).await.contains("1 Disconnected"));
    assert_eq!(shell.serving().await, before);
    shell.run(&["lab", "heal"]).await;
    until_within("the incident is over", LATE, async || {
        shell.run(&["status"]).await.contains("5 nodes: 5 Healthy")
    })
    .await;
    assert_eq!(shell.serving().await, before);

    // A machine is dead: its pods are out of service at once, and stateless ones run elsewhere.
    shell.run(&["lab", "kill", "shore-3"]).await;
    until("shore-3 is dead", async || {
        is_tainted(&shell.cluster, "shore-3", "evenkeel.io/dead").await
    })
    .await;
    until_within("pods run elsewhere in their place", LATE, async || {
        shell.serving().await.len() == 8
    })
    .await;
    let said = shell.run(&["status", "shore-3"]).await;
    assert!(said.contains("Node shore-3: Dead"), "{said}");
    shell.run(&["lab", "heal"]).await;
    shell.all_serve().await;

    assert_eq!(refusals(&shell.lab), [""; 0]);

    let said = shell.run(&["uninstall"]).await;
    assert!(said.contains("Evenkeel is removed"), "{said}");
    let labs_own = |key: &str| key.contains("evenkeel-vnode");
    let left = || {
        let keys = kubernetes.keys().into_iter();
        keys.filter(|key| key.contains("evenkeel") && !labs_own(key))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(), [""; 0]);
    nothing_is_left_on_objects(&shell.cluster.client).await;
    shell.all_serve().await;
    let ended = tokio::task::spawn_blocking(move || lab.end()).await;
    let (status, said) = ended.expect("nothing panics");
    assert!(status.success(), "{status}: {said}");
    assert_eq!(shell.cluster.list::<Node>().await.len(), 0);
}
