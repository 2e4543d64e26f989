//! On Kubernetes' own control plane, where it is built: what other tests show on ours.

use crate::netns::lab::{Machines, a_lab_joins};
use crate::netns::process::client;
use crate::support::{evenkeel, outcome};
use crate::vnode::{kubectl, world::World};
use evenkeel_testkit::attacks::{Attacked, Who, attacks, duties};
use evenkeel_testkit::candidate::{Candidate, CandidateArgs, Timing, Told};
use evenkeel_testkit::interop::build_clientgo;
use evenkeel_testkit::real::Kubernetes;
use evenkeel_testkit::{Cluster, netns, skipped, until};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What a machine with other work needs for a Lease to run out and be taken.
const TAKEN: Duration = Duration::from_secs(60);

/// One test, since a control plane takes ten seconds of two cores to start.
#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_itself_takes_our_programs() {
    let test = "kubernetes_itself_takes_our_programs";
    let Some(kubernetes) = Kubernetes::start(test) else {
        return;
    };
    let world = World::on(kubernetes).await;
    match evenkeel_testkit::go() {
        Some(go) => elect_hands_over_to_client_go_and_back(&world, &go).await,
        None => skipped(test, "no go on PATH"),
    }
    the_lab_touches_nothing_where_others_have_nodes(&world).await;
    kubectl_reaches_into_virtual_nodes(&world, test).await;
    policies_stop_attackers(&world).await;
}

/// Nodes that nobody runs are enough to see that everything is admitted: pods by quota, priority and the
/// level of the namespace, and writes by the policies. A pod on such a node never ends, and must not keep
/// anything.
#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_itself_takes_an_installation_and_nothing_is_left_of_it() {
    let test = "kubernetes_itself_takes_an_installation_and_nothing_is_left_of_it";
    let Some(kubernetes) = Kubernetes::start(test) else {
        return;
    };
    evenkeel_net::init_crypto();
    let kubeconfig = kubernetes.kubeconfig();
    let run = |words: &[&str]| {
        let output = evenkeel()
            .args(words)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .output()
            .expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let cluster = Cluster::by(client(&kubeconfig).await).within(TAKEN);
    for name in ["shore-1", "shore-2", "shore-3"] {
        let labels = json!({"topology.kubernetes.io/zone": "shore", "kubernetes.io/os": "linux"});
        cluster
            .create::<Node>(json!({"metadata": {"name": name, "labels": labels}}))
            .await;
    }
    // The stock controllers have started.
    cluster
        .namespaced("kube-system")
        .until::<ServiceAccount>("node-controller", "is there", |_| true)
        .await;
    let (code, said, error) = run(&["doctor"]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("evenkeel install would be taken"), "{said}");

    let (code, said, error) = run(&["install", "--timeout", "0"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        !said.contains("left out") && said.contains("mode observe"),
        "{said}"
    );
    let home = cluster.namespaced("evenkeel-system");
    until("pods of controllers and agents are admitted", async || {
        let pods = home.list::<Pod>().await;
        let of = |component: &str| {
            let is = |pod: &&Pod| {
                pod.labels()
                    .get("app.kubernetes.io/component")
                    .is_some_and(|is| is == component)
            };
            pods.iter().filter(is).count()
        };
        (of("controller"), of("agent")) == (2, 3)
    })
    .await;
    let (code, _, error) = run(&["install", "--timeout", "0"]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("installed in namespace evenkeel-system already"),
        "{error}"
    );

    let (code, said, error) = run(&["doctor", "--output", "json"]);
    assert_eq!((code, error.as_str()), (Some(1), ""));
    let findings: Vec<Value> = serde_json::from_str(&said).expect("JSON");
    let found = |check: &str| {
        findings
            .iter()
            .filter(|finding| finding["check"] == check)
            .count()
    };
    // Nobody runs, and the rest is as it should be: the definitions too, to which Kubernetes adds its
    // defaults.
    assert!(
        found("controllers") > 0 && found("webhook") > 0 && found("agents") > 0,
        "{said}"
    );
    assert_eq!(
        (found("rights"), found("crds"), found("policies")),
        (0, 0, 0),
        "{said}"
    );

    let (code, said, error) = run(&["upgrade", "--mode", "act", "--timeout", "0"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("mode act") && !said.contains("removed"), "{said}");

    let (code, said, error) = run(&["uninstall", "--timeout", "4m"]);
    assert_eq!(code, Some(0), "{said}{error}");
    let left: Vec<String> = kubernetes
        .keys()
        .into_iter()
        .filter(|key| key.contains("evenkeel"))
        .collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// What `agent::it::identity` shows on our API server.
async fn policies_stop_attackers(world: &World) {
    world.install().await;
    world.apply_file("flowcontrol.yaml").await;
    let attacked = Attacked::new(&world.kubeconfig).await;
    for attack in attacks() {
        attacked.is_stopped_by_its_policy_alone(&attack).await;
    }
    for (name, who, write) in duties() {
        attacked.restore().await;
        assert_eq!(attacked.attempt(who, &write).await, Ok(()), "{name}, by {who:?}");
    }
    agents_and_controller_wait_in_queues_of_their_own(world, &attacked).await;
}

/// So an agent that floods the API server uses up no time of the controller's. Only Kubernetes' own server
/// has such queues; it names in each answer the one in which the request was.
async fn agents_and_controller_wait_in_queues_of_their_own(world: &World, attacked: &Attacked) {
    let levels: Api<PriorityLevelConfiguration> = world.api();
    for (who, level) in [
        (Who::Pod("a"), "evenkeel-agents"),
        (Who::Controller, "evenkeel-controller"),
    ] {
        let level = levels.get(level).await.expect("it was applied").metadata.uid;
        let client = attacked.client(who).await;
        until("the server uses the level", async || {
            let request = http::Request::get("/apis/evenkeel.io/v1alpha1/zonehealth/x");
            let request = request
                .body(kube::client::Body::empty())
                .expect("it is a request");
            let answer = client.send(request).await.expect("the server answers");
            let uid = answer.headers().get("x-kubernetes-pf-prioritylevel-uid");
            uid.and_then(|uid| uid.to_str().ok()) == level.as_deref()
        })
        .await;
    }
}

async fn elect_hands_over_to_client_go_and_back(world: &World, go: &Path) {
    let program =
        build_clientgo(go, Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("it is built elsewhere, too");
    let candidate = |identity: &str| {
        let args = CandidateArgs {
            kubeconfig: world.kubeconfig.clone(),
            namespace: "default".to_owned(),
            name: "mailer".to_owned(),
            identity: identity.to_owned(),
            timing: Timing::seconds(5, 3, 1),
            release: false,
            count: 1,
        };
        let mut command = tokio::process::Command::new(&program);
        command.args(args.words());
        Candidate::start(command, identity, &world.home().join("clientgo.log"))
    };
    let leads = |lines: &[_]| -> Option<()> {
        let led = |line: &evenkeel_testkit::candidate::Line| line.event == Told::Started;
        lines.iter().any(led).then_some(())
    };
    let mut theirs = candidate("theirs");
    theirs.until("it leads", TAKEN, leads).await;

    let runs = world.home().join("runs");
    let script = format!("echo $EVENKEEL_FENCING_TOKEN >{}; exec sleep 600", runs.display());
    let mut ours = evenkeel()
        .args([
            "elect",
            "--lease",
            "default/mailer",
            "--identity",
            "ours",
            "--listen",
            "127.0.0.1:0",
        ])
        .args([
            "--lease-duration=5s",
            "--renew-deadline=3s",
            "--retry-period=500ms",
        ])
        .arg("--kubeconfig")
        .arg(&world.kubeconfig)
        .args(["--", "sh", "-c", &script])
        .spawn()
        .expect("the runner starts");
    assert_eq!(world.holder("mailer").await, "theirs");
    theirs.kill().await;
    until("our command runs", async || runs.is_file()).await;
    assert_eq!(world.holder("mailer").await, "ours");

    let next = candidate("next");
    kill(Pid::from_raw(ours.id().cast_signed()), Signal::SIGTERM).expect("the runner runs");
    next.until("it leads", TAKEN, leads).await;
    assert_eq!(world.holder("mailer").await, "next");
    ours.wait().expect("it is our child");
}

async fn kubectl_reaches_into_virtual_nodes(world: &World, test: &str) {
    let kubectls = kubectl::all(world, test);
    let _vnode = world.vnode("kubectl", 2, &[]);
    approve_serving_certificates(world).await;
    if kubectls.is_empty() {
        return world.nodes_are_ready(2).await;
    }
    kubectl::reaches_into_containers(world, &kubectls).await;
}

/// What an operator does: `kubectl certificate approve`.
async fn approve_serving_certificates(cluster: &Cluster) {
    let requests: Api<CertificateSigningRequest> = cluster.api();
    until("the virtual nodes ask for their certificate", async || {
        let found = requests
            .list(&ListParams::default())
            .await
            .expect("requests can be listed");
        !found.items.is_empty()
    })
    .await;
    let approved = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "it is of this test"},
    ]}});
    for request in requests
        .list(&ListParams::default())
        .await
        .expect("requests can be listed")
    {
        let name = request.metadata.name.expect("it is stored");
        let patch = (PatchParams::default(), Patch::Merge(&approved));
        let done = requests.patch_subresource("approval", &name, &patch.0, &patch.1);
        done.await.expect("an administrator approves");
    }
}

async fn the_lab_touches_nothing_where_others_have_nodes(world: &World) {
    let kubernetes = world.kubernetes();
    world
        .create::<Node>(json!({"metadata": {"name": "prod-7"}}))
        .await;
    let home = world.home().join("lab");
    let lab = |kubeconfig: &Path, more: &[&str]| {
        let mut command = evenkeel();
        command
            .args(["lab", "--dir"])
            .arg(&home)
            .arg("--join")
            .arg(kubeconfig)
            .args(more);
        outcome(&mut command)
    };
    let before = kubernetes.keys();
    let broken = world.home().join("broken");
    std::fs::write(&broken, "clusters: 5").expect("the directory is writable");
    let stranger = world.home().join("stranger");
    let text = std::fs::read_to_string(&world.kubeconfig).expect("it was written");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    config["users"][0]["user"] = json!({"token": "stolen"});
    std::fs::write(&stranger, config.to_string()).expect("the directory is writable");
    for (kubeconfig, more, said) in [
        (world.kubeconfig.as_path(), &["--yes"][..], "prod-7"),
        (world.kubeconfig.as_path(), &["--yes", "run", "tour"], "prod-7"),
        (broken.as_path(), &["--yes"], "broken"),
        (stranger.as_path(), &["--yes"], "Unauthorized"),
        (
            Path::new("/nowhere/kubeconfig"),
            &["--yes"],
            "/nowhere/kubeconfig",
        ),
    ] {
        let (code, error) = lab(kubeconfig, more);
        assert_eq!(code, 2, "{more:?}: {error}");
        assert!(
            error.contains(said) && error.trim_end().lines().count() == 1,
            "{more:?}: {error}"
        );
    }
    world.delete::<Node>("prod-7").await;
    let (code, error) = lab(&world.kubeconfig, &[]);
    assert!(code == 2 && error.contains("--yes"), "{code}: {error}");
    // Leases are renewed, and so they are written; none is new.
    let made: Vec<String> = kubernetes.keys().difference(&before).cloned().collect();
    assert_eq!(made, Vec::<String>::new(), "nothing was touched");
}

#[test]
fn kubernetes_on_another_machine_takes_a_lab() {
    let test = "kubernetes_on_another_machine_takes_a_lab";
    if let Some(why) = netns::missing() {
        return skipped(test, &why);
    }
    let machines = Machines::new();
    machines.in_the_cloud(async || {
        // It is started by the thread of that machine, so it is there as well.
        let flags = ["kube-apiserver=--bind-address=0.0.0.0"];
        let Some(kubernetes) = Kubernetes::start_with(test, &flags) else {
            return;
        };
        let kubeconfig = machines.home.path().join("kubeconfig");
        let text = std::fs::read_to_string(kubernetes.kubeconfig()).expect("it was written");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let cluster = &mut config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().expect("it has one");
        let elsewhere = server.replace("127.0.0.1", &machines.plane.to_string());
        assert_ne!(server, elsewhere);
        cluster["server"] = elsewhere.into();
        // Its certificate does not name the wire's address.
        cluster["tls-server-name"] = "localhost".into();
        std::fs::write(&kubeconfig, config.to_string()).expect("the directory is writable");
        let client = client(&kubeconfig).await;
        a_lab_joins(&machines, test, &kubeconfig, client).await;
    });
}
