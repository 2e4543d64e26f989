//! What is installed is what is tested: `evenkeel install` in a lab, faults, an upgrade in the middle of one,
//! and `evenkeel uninstall`.

use crate::support::{Lab, evenkeel};
use evenkeel_testkit::{until, until_within};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;
use std::{fs, time::Duration};

const NAMESPACE: &str = "evenkeel-system";
/// Longer than the stand-in for the stock controllers waits for a silent node, and time for what follows.
const LATE: Duration = Duration::from_secs(90);

/// All objects of a kind, in all namespaces.
async fn all(lab: &Lab, group: &str, version: &str, kind: &str, plural: &str) -> Vec<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(lab.client.clone(), &resource);
    let list = api.list(&ListParams::default()).await;
    list.map(|list| list.items).unwrap_or_default()
}

async fn node(lab: &Lab, name: &str) -> Value {
    let nodes = all(lab, "", "v1", "Node", "nodes").await;
    let node = nodes.into_iter().find(|node| node.name_any() == name);
    serde_json::to_value(node.expect("the node is there")).expect("it is an object")
}

/// Whether a node has a taint.
async fn is_tainted(lab: &Lab, name: &str, key: &str) -> bool {
    let node = node(lab, name).await;
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == key)
}

/// State of the open incident of a node.
pub(crate) async fn incident(lab: &Lab, node: &str) -> Option<String> {
    let incidents = all(lab, "evenkeel.io", "v1alpha1", "NodeIncident", "nodeincidents").await;
    let open = |incident: &&DynamicObject| {
        incident.data["spec"]["nodeName"] == node && incident.data["status"]["closedAt"].is_null()
    };
    let found = incidents.iter().find(open)?;
    found.data["status"]["state"].as_str().map(str::to_owned)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    conditions
        .clone()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
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
fn refusals(lab: &Lab) -> Vec<String> {
    let logs = fs::read_dir(lab.dir().join("logs"))
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
    let lab = Lab::start_with(3, 50, &["--installed"]).await;
    until("the sample workload is ready", async || {
        sample_is_ready(&lab).await
    })
    .await;

    // A cut: the stand-in marks the node, and the webhook, called by its Service, keeps its pods.
    inflict(&lab, &["cut", "shore-2"]);
    until_within("shore-2 counts as cut off", LATE, async || {
        incident(&lab, "shore-2").await.as_deref() == Some("Disconnected")
            && is_tainted(&lab, "shore-2", "node.kubernetes.io/unreachable").await
    })
    .await;
    assert_eq!(ready_on(&lab, "shore-2").await, [true; 3]);
    inflict(&lab, &["heal"]);
    until_within("the incident is closed", LATE, async || {
        incident(&lab, "shore-2").await.is_none()
    })
    .await;

    // A machine without power, and an upgrade of the controllers before it is back.
    inflict(&lab, &["kill", "shore-3"]);
    until_within(
        "shore-3 is dead, and its pods take no traffic",
        LATE,
        async || {
            is_tainted(&lab, "shore-3", "evenkeel.io/dead").await
                && ready_on(&lab, "shore-3").await == [false; 3]
        },
    )
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
    assert!(is_tainted(&lab, "shore-3", "evenkeel.io/dead").await);
    assert_eq!(incident(&lab, "shore-3").await.as_deref(), Some("Dead"));
    inflict(&lab, &["heal"]);
    until_within(
        "the new controllers take back what the old ones did",
        LATE,
        async || {
            incident(&lab, "shore-3").await.is_none()
                && !is_tainted(&lab, "shore-3", "evenkeel.io/dead").await
                && sample_is_ready(&lab).await
        },
    )
    .await;

    // Nobody needed more rights than were installed; and it would show if somebody did.
    assert_eq!(refusals(&lab), [""; 0]);
    let bindings = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
    ));
    let bindings: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), NAMESPACE, &bindings);
    let removed = bindings.delete("evenkeel-agent", &DeleteParams::default()).await;
    removed.expect("the agents' rights are bound");
    until_within("agents without rights say so", LATE, async || {
        !refusals(&lab).is_empty()
    })
    .await;

    administer(&lab, &["uninstall"]);
    nothing_is_left(&lab).await;
    assert!(sample_is_ready(&lab).await);
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
        let names = all(lab, group, version, kind, plural).await;
        let left: Vec<String> = names
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| name.contains("evenkeel") && !labs.contains(&name.as_str()))
            .collect();
        assert_eq!(left, [""; 0], "{kind}");
    }
    for (kind, plural) in [("Node", "nodes"), ("Pod", "pods")] {
        for object in all(lab, "", "v1", kind, plural).await {
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
