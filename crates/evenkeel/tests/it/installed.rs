//! What is installed is what is tested: `evenkeel install` in a lab, faults, an upgrade in the middle of one,
//! and `evenkeel uninstall`.

use crate::rights;
use crate::support::{Lab, evenkeel, is_tainted};
use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneHealth};
use evenkeel_testkit::objects::is_ready;
use evenkeel_testkit::{until, until_within};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use nix::sys::signal::Signal;
use serde_json::json;
use std::{fs, path::Path, time::Duration};

const NAMESPACE: &str = "evenkeel-system";
/// Longer than the stand-in for the stock controllers waits for a silent node, and time for what follows.
const LATE: Duration = Duration::from_secs(90);

/// All objects of a kind, in all namespaces.
async fn all(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> Vec<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let list = api.list(&ListParams::default()).await;
    list.map(|list| list.items).unwrap_or_default()
}

/// State of the open incident of a node.
pub(crate) async fn incident(lab: &Lab, node: &str) -> Option<String> {
    let incidents = all(
        &lab.client,
        "evenkeel.io",
        "v1alpha1",
        "NodeIncident",
        "nodeincidents",
    )
    .await;
    let open = |incident: &&DynamicObject| {
        incident.data["spec"]["nodeName"] == node && incident.data["status"]["closedAt"].is_null()
    };
    let found = incidents.iter().find(open)?;
    found.data["status"]["state"].as_str().map(str::to_owned)
}

/// Whether the pods of the sample on a node are ready, each of them.
async fn ready_on(lab: &Lab, node: &str) -> Vec<bool> {
    let pods = lab.pods("default").await;
    let there = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    pods.iter().filter(there).map(is_ready).collect()
}

async fn sample_is_ready(lab: &Lab) -> bool {
    let pods = lab.pods("default").await;
    pods.len() == 9 && pods.iter().all(is_ready)
}

/// Names of the controllers' pods.
async fn controllers(lab: &Lab) -> Vec<String> {
    let pods = lab.pods(NAMESPACE).await;
    let names = pods.iter().map(ResourceExt::name_any);
    names
        .filter(|name| name.starts_with("evenkeel-controller-"))
        .collect()
}

/// Lines of all logs that tell of a refusal for want of rights.
pub(crate) fn refusals(lab: &Path) -> Vec<String> {
    let logs = fs::read_dir(lab.join("logs"))
        .expect("the lab has logs")
        .flatten();
    let texts = logs.filter_map(|log| fs::read_to_string(log.path()).ok());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines
        .filter(|line| line.to_lowercase().contains("forbidden"))
        .collect()
}

/// Runs a command of the binary against the lab, as its administrator.
fn administer(lab: &Lab, args: &[&str]) -> String {
    let kubeconfig = lab.dir().join("kubeconfig");
    let output = evenkeel()
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn inflict(lab: &Lab, args: &[&str]) {
    let (code, text) = lab.command(args);
    assert_eq!(code, 0, "{args:?}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_holds_through_faults_and_an_upgrade_and_leaves_nothing() {
    let flags: Vec<&str> = ["--installed"].into_iter().chain(rights::TOLD).collect();
    let lab = Lab::start_with(3, 50, &flags).await;
    until("the sample workload is ready", async || {
        sample_is_ready(&lab).await
    })
    .await;

    seldom_work(&lab).await;

    // A cut: the stand-in marks the node, and the webhook, called by its Service, keeps its pods.
    inflict(&lab, &["cut", "shore-2"]);
    until_within("shore-2 counts as cut off", LATE, async || {
        incident(&lab, "shore-2").await.as_deref() == Some("Disconnected")
            && is_tainted(&lab.objects(), "shore-2", "node.kubernetes.io/unreachable").await
    })
    .await;
    assert_eq!(ready_on(&lab, "shore-2").await, [true; 3]);
    inflict(&lab, &["heal"]);
    until_within("the incident is closed", LATE, async || {
        incident(&lab, "shore-2").await.is_none()
    })
    .await;

    // A machine without power, and an upgrade of the controllers before it is back. The stock controllers
    // would mark the node before its death is confirmed.
    lab.signal("node-lifecycle", Signal::SIGSTOP);
    inflict(&lab, &["kill", "shore-3"]);
    until_within(
        "shore-3 is dead, its pods take no traffic, and others are there for them",
        LATE,
        async || {
            let ready = lab
                .pods("default")
                .await
                .iter()
                .filter(|pod| is_ready(*pod))
                .count();
            is_tainted(&lab.objects(), "shore-3", "evenkeel.io/dead").await
                && !ready_on(&lab, "shore-3").await.contains(&true)
                && ready == 8
        },
    )
    .await;
    lab.signal("node-lifecycle", Signal::SIGCONT);
    // Controllers that start find a certificate that cannot be used.
    let unusable = json!({"data": {"tls.crt": "eA=="}});
    lab.objects()
        .namespaced(NAMESPACE)
        .merge::<Secret>("evenkeel-webhook", unusable)
        .await;
    let before = controllers(&lab).await;
    assert_eq!(before.len(), 2, "{before:?}");
    let image = format!("mirror.example/evenkeel:{}", env!("CARGO_PKG_VERSION"));
    let agent = format!("evenkeel-agent:{}", env!("CARGO_PKG_VERSION"));
    let told = administer(&lab, &["upgrade", "--image", &image, "--agent-image", &agent]);
    assert!(
        told.contains("2 of 2 controllers run") && told.contains(&image),
        "{told}"
    );
    let after = controllers(&lab).await;
    assert!(
        after.len() == 2 && after.iter().all(|name| !before.contains(name)),
        "{after:?}"
    );
    assert!(is_tainted(&lab.objects(), "shore-3", "evenkeel.io/dead").await);
    assert_eq!(incident(&lab, "shore-3").await.as_deref(), Some("Dead"));
    inflict(&lab, &["heal"]);
    until_within(
        "the new controllers take back what the old ones did",
        LATE,
        async || {
            incident(&lab, "shore-3").await.is_none()
                && !is_tainted(&lab.objects(), "shore-3", "evenkeel.io/dead").await
                && sample_is_ready(&lab).await
        },
    )
    .await;

    // All machines of the zone at once, of which nobody can tell whether they serve.
    for node in ["shore-1", "shore-2", "shore-3"] {
        inflict(&lab, &["kill", node]);
    }
    until_within("nobody can tell of shore-1", LATE, async || {
        incident(&lab, "shore-1").await.as_deref() == Some("Dark")
    })
    .await;
    inflict(&lab, &["heal"]);
    until_within("all is well again", LATE, async || {
        incident(&lab, "shore-1").await.is_none() && sample_is_ready(&lab).await
    })
    .await;
    seldom_work_is_done(&lab).await;

    // Nobody needed more rights than were installed, each of them was needed, and it would show if one were
    // missing.
    assert_eq!(refusals(&lab.dir()), [""; 0]);
    assert_eq!(rights::differences(&lab.output()), [""; 0]);
    let home = lab.objects().namespaced(NAMESPACE);
    home.delete::<RoleBinding>("evenkeel-agent").await;
    until_within("agents without rights say so", LATE, async || {
        !refusals(&lab.dir()).is_empty()
    })
    .await;

    administer(&lab, &["uninstall"]);
    nothing_is_left(&lab).await;
    assert!(sample_is_ready(&lab).await);
}

/// Gives the controllers to do what they seldom do.
async fn seldom_work(lab: &Lab) {
    let objects = lab.objects();
    objects
        .create::<FailoverPolicy>(json!({"metadata": {"name": "soon"}, "spec": {"evictAfterSeconds": 2}}))
        .await;
    // Of a zone that was larger once.
    let cell = json!({"metadata": {"name": "default.1"}, "spec": {"zone": "default", "cell": 1}});
    objects.create::<ZoneHealth>(cell).await;
    objects
        .merge_status::<AgentStatus>("shore-1", json!({"cell": "default.1"}))
        .await;
    // One more than are kept of a node.
    for number in 0..=10 {
        let name = format!("old-{number}");
        let spec = json!({"nodeName": "gone", "nodeUid": "gone", "zone": "default"});
        objects
            .create::<NodeIncident>(json!({"metadata": {"name": &name}, "spec": spec}))
            .await;
        let closed = json!({"state": "Healthy", "closedAt": "2026-01-01T00:00:00Z"});
        objects.merge_status::<NodeIncident>(&name, closed).await;
    }
}

async fn seldom_work_is_done(lab: &Lab) {
    let objects = lab.objects();
    until(
        "the policy's status, cells and incidents are in order",
        async || {
            let policy: FailoverPolicy = objects.get("soon").await;
            let agent: AgentStatus = objects.get("shore-1").await;
            let incidents = objects.list::<NodeIncident>().await;
            policy.status.is_some()
                && agent.status.unwrap_or_default().cell.is_empty()
                && objects.list::<ZoneHealth>().await.len() == 1
                && incidents
                    .iter()
                    .filter(|incident| incident.spec.node_name == "gone")
                    .count()
                    == 10
        },
    )
    .await;
}

/// No object of the installation is there, and nothing of it is on the objects of others.
async fn nothing_is_left(lab: &Lab) {
    let rights = "rbac.authorization.k8s.io";
    let admission = "admissionregistration.k8s.io";
    let kinds = [
        ("", "v1", "Namespace", "namespaces"),
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        ),
        (
            admission,
            "v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
        ),
        (
            admission,
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        ),
        (
            admission,
            "v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
        ),
        (
            admission,
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        ),
        (rights, "v1", "ClusterRole", "clusterroles"),
        (rights, "v1", "ClusterRoleBinding", "clusterrolebindings"),
        (rights, "v1", "Role", "roles"),
        (rights, "v1", "RoleBinding", "rolebindings"),
        ("coordination.k8s.io", "v1", "Lease", "leases"),
    ];
    // What the lab itself needs: the rights of its kubelets and controllers.
    let labs = [
        "evenkeel-vnode",
        "evenkeel-vnode-reviews",
        "evenkeel-vnode-serving",
        "evenkeel:lab-controllers",
    ];
    for (group, version, kind, plural) in kinds {
        let names = all(&lab.client, group, version, kind, plural).await;
        let left: Vec<String> = names
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| name.contains("evenkeel") && !labs.contains(&name.as_str()))
            .collect();
        assert_eq!(left, [""; 0], "{kind}");
    }
    nothing_is_left_on_objects(&lab.client).await;
}

/// No node and no pod has anything of an installation on it.
pub(crate) async fn nothing_is_left_on_objects(client: &Client) {
    for (kind, plural) in [("Node", "nodes"), ("Pod", "pods")] {
        for object in all(client, "", "v1", kind, plural).await {
            let name = object.name_any();
            let mut left: Vec<String> = object.finalizers().to_vec();
            left.extend(object.annotations().keys().cloned());
            let taints = object.data["spec"]["taints"].as_array().into_iter().flatten();
            left.extend(taints.filter_map(|taint| taint["key"].as_str().map(str::to_owned)));
            left.retain(|key| key.contains("evenkeel") || key.contains("superedge"));
            assert_eq!(left, [""; 0], "{kind} {name}");
        }
    }
}
