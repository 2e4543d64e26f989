//! What `evenkeel uninstall` does, step by step.

use crate::cluster::{ATTEMPTS, Named, has_ended};
use crate::debts;
use crate::error::InstallError;
use crate::install::{LAST_COMMAND, all_parts};
use crate::objects::{
    AGENT_SETTINGS, CONTROLLER, INSTALLATION, Options, PART_OF, ROSTER_SECRET, WEBHOOK_SECRET, objects,
};
use crate::preflight;
use evenkeel_api::names;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether something is gone.
const LOOK: Duration = Duration::from_millis(500);
/// A pod of the controller has 40 s to end once it is told to.
const STOPPED_WITHIN: Duration = Duration::from_secs(50);
/// Replicas renew their Leases every 5 s.
const SILENT: Duration = Duration::from_secs(12);

/// Uninstalls, and says what was done.
pub async fn uninstall(
    client: &Client,
    namespace: &str,
    timeout: Duration,
    shutdown: &CancellationToken,
) -> Result<String, InstallError> {
    let options = Options {
        namespace: namespace.to_owned(),
        ..Options::default()
    };
    let objects = objects(&options);
    let homes = preflight::homes(client).await?;
    if !homes.is_empty() && !homes.contains(namespace) {
        let homes = Vec::from_iter(homes).join(", ");
        return Err(InstallError::Refused(format!(
            "Evenkeel is installed in namespace {homes}, and not in {namespace}: say so with --namespace"
        )));
    }
    let parts = all_parts(client, namespace, &objects).await?;
    let node = Named::new("v1", "Node", None, "");
    let deployment = Named::new("apps/v1", "Deployment", Some(namespace), CONTROLLER);
    let mut rights = BTreeSet::new();
    let of_parts = parts.iter().map(|part| (part, "delete"));
    for (what, verb) in [(&node, "patch"), (&deployment, "patch")]
        .into_iter()
        .chain(of_parts)
    {
        if rights.insert((what.kind(), &what.namespace, verb)) {
            preflight::permission(client, what, verb).await?;
        }
    }
    let removed = remove(
        client,
        namespace,
        (&objects, &parts),
        Instant::now() + timeout,
        shutdown,
    )
    .await;
    removed.map_err(|error| InstallError::Midway(Box::new(error), "evenkeel uninstall"))
}

/// Removes the parts, and says what was done.
async fn remove(
    client: &Client,
    namespace: &str,
    (objects, parts): (&[Value], &[Named]),
    end: Instant,
    shutdown: &CancellationToken,
) -> Result<String, InstallError> {
    let mut text = String::new();
    if parts.is_empty() {
        text.push_str("Evenkeel is not installed on this cluster.\n");
    } else if stop(client, namespace, end, shutdown).await? {
        text.push_str(
            "a controller had been killed before: pods that it kept Ready on nodes that are cut off stay so until their kubelets or \
             stock Kubernetes write them\n",
        );
    }
    // Of former versions it has no mark, and without an installation it is somebody else's.
    let webhook = Named::webhook();
    let found = webhook.get(client).await?;
    let mark = found.map(|found| found["metadata"]["labels"][INSTALLATION].clone());
    if !parts.is_empty() && mark.is_some_and(|mark| mark.is_null() || mark == namespace) {
        webhook.delete(client).await?;
    }
    let homes = preflight::homes(client).await?;
    if let Some(other) = homes.iter().find(|home| *home != namespace) {
        // A String takes everything.
        let _ = writeln!(
            text,
            "what is on nodes stays: Evenkeel in namespace {other} may need it"
        );
    } else {
        for node in settle(client, !parts.is_empty()).await? {
            let _ = writeln!(text, "took Evenkeel's taints and annotations off Node {node}");
        }
    }
    let kept = preflight::foreign(client, namespace).await?;
    // What runs goes first, then rights, and the namespace last.
    for part in parts.iter().rev() {
        if part.kind() != "Namespace" || kept.is_none() {
            part.delete(client).await?;
        }
    }
    // Without an installation the namespace is somebody else's, and so are its labels.
    if let Some(foreign) = kept.as_ref().filter(|_| !parts.is_empty()) {
        leave(client, namespace).await?;
        let _ = writeln!(text, "namespace {namespace} stays, because it holds {foreign}");
    }
    gone(client, namespace, objects, kept.is_some(), end, shutdown).await?;
    if !parts.is_empty() {
        let _ = writeln!(
            text,
            "Evenkeel is removed: {} objects. Keys of agents are still on the nodes, in /var/lib/evenkeel.",
            parts.len()
        );
    }
    Ok(text)
}

/// Takes out of a namespace that stays what is beside the objects there, and its own marks.
async fn leave(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let own = |kind: &str, name: &str| Named::new("v1", kind, Some(namespace), name);
    for one in [
        own("Secret", ROSTER_SECRET.0),
        own("Secret", WEBHOOK_SECRET),
        own("ConfigMap", AGENT_SETTINGS.0),
    ] {
        one.delete(client).await?;
    }
    drop_leases(client, namespace).await?;
    let here = Named::new("v1", "Namespace", None, namespace);
    unmark(client, &here, &Value::Null).await
}

/// Removes the Leases of controllers and zones.
pub(crate) async fn drop_leases(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let lease = |name: &str| Named::new("coordination.k8s.io/v1", "Lease", Some(namespace), name);
    let leases = lease("").siblings(client).await?;
    let is_ours = |name: &&str| {
        *name == names::CONTROLLER_LEASE || is_replicas(name) || name.starts_with(names::ZONE_LEASE_PREFIX)
    };
    for name in leases.iter().filter_map(name).filter(is_ours) {
        lease(name).delete(client).await?;
    }
    Ok(())
}

/// Labels that an installation gives to objects that are not its own.
const LABELS: [&str; 5] = [
    PART_OF.0,
    INSTALLATION,
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/warn",
];

/// Gives an object that stays the marks that it had `before`; null: it had none.
pub(crate) async fn unmark(client: &Client, named: &Named, before: &Value) -> Result<(), InstallError> {
    let metadata = &before["metadata"];
    let labels: Value = LABELS
        .map(|label| (label, metadata["labels"][label].clone()))
        .into_iter()
        .collect();
    let annotations: Value = [names::annotations::PAUSE, LAST_COMMAND]
        .map(|name| (name, metadata["annotations"][name].clone()))
        .into_iter()
        .collect();
    let marks = json!({"metadata": {"labels": labels, "annotations": annotations}});
    match named.merge(client, &marks).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        merged => merged.map_err(InstallError::writing(named)),
    }
}

/// Stops the controllers. The last one gives back what it kept from the stock controllers. Whether one had
/// been killed before, and so had given nothing back.
pub(crate) async fn stop(
    client: &Client,
    namespace: &str,
    end: Instant,
    shutdown: &CancellationToken,
) -> Result<bool, InstallError> {
    let deployment = Named::new("apps/v1", "Deployment", Some(namespace), CONTROLLER);
    if deployment.get(client).await?.is_some() {
        let none = json!({"spec": {"replicas": 0}});
        deployment
            .merge(client, &none)
            .await
            .map_err(InstallError::writing(&deployment))?;
    }
    let leases = Named::new("coordination.k8s.io/v1", "Lease", Some(namespace), "");
    let pods = Named::new("v1", "Pod", Some(namespace), "");
    let mut patience = Patience::default();
    let mut had_been_killed = false;
    until(end, shutdown, async || {
        let all = pods.siblings(client).await?;
        let running = all.iter().filter(|pod| is_controller(pod)).filter_map(name);
        let running = running.map(|pod| (format!("Pod {pod}"), String::new(), STOPPED_WITHIN));
        let mut left: Vec<_> = running.collect();
        let all = leases.siblings(client).await?;
        for lease in all.iter().filter(|lease| name(lease).is_some_and(is_replicas)) {
            let renewed = lease["spec"]["renewTime"].to_string();
            let lease = format!("Lease {}", name(lease).unwrap_or_default());
            left.push((lease, renewed, SILENT));
        }
        let all = left.len();
        left.retain(|(what, as_it_is, longest)| patience.lasts(what, as_it_is, *longest));
        had_been_killed = left.len() < all;
        Ok(left
            .first()
            .map(|(what, ..)| format!("the controllers have not stopped: {what} is still there")))
    })
    .await?;
    Ok(had_been_killed)
}

/// Something that has been as it is for too long is not waited for: a killed replica leaves its Lease behind,
/// and a pod on a machine that is off never ends.
#[derive(Default)]
struct Patience(BTreeMap<String, (String, Option<Instant>)>);

impl Patience {
    /// Whether `what`, which is `as_it_is` now, is still worth waiting for.
    fn lasts(&mut self, what: &str, as_it_is: &str, longest: Duration) -> bool {
        let (known, since) = self.0.entry(what.to_owned()).or_default();
        if known != as_it_is {
            as_it_is.clone_into(known);
            *since = None;
        }
        since.get_or_insert_with(Instant::now).elapsed() < longest
    }
}

fn name(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str()
}

/// A pod of the controller that is not known to have ended.
fn is_controller(pod: &Value) -> bool {
    pod["metadata"]["labels"]["app.kubernetes.io/component"] == "controller" && !has_ended(pod)
}

/// A pod of the installation that was told to end.
fn is_ending(pod: &Value, namespace: &str) -> bool {
    let metadata = &pod["metadata"];
    metadata["labels"][INSTALLATION] == namespace && !metadata["deletionTimestamp"].is_null()
}

fn is_replicas(lease: &str) -> bool {
    lease.starts_with(names::REPLICA_LEASE_PREFIX)
}

/// Takes off the nodes what Evenkeel has put there; the names of those that had something.
pub(crate) async fn settle(client: &Client, was_installed: bool) -> Result<Vec<String>, InstallError> {
    let mut settled = Vec::new();
    for node in Named::new("v1", "Node", None, "").siblings(client).await? {
        let Some(name) = name(&node).map(str::to_owned) else {
            continue;
        };
        let named = Named::new("v1", "Node", None, &name);
        let mut present = Some(node);
        for attempt in 1.. {
            let settlement = |node| debts::settlement(node, was_installed);
            let Some(patch) = present.as_ref().and_then(settlement) else {
                break;
            };
            match named.merge(client, &patch).await {
                Ok(()) => {
                    settled.push(name);
                    break;
                }
                // Somebody else wrote the Node meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    present = named.get(client).await?;
                }
                Err(error) => return Err(InstallError::writing(&named)(error)),
            }
        }
    }
    Ok(settled)
}

/// Waits until nothing of the installation is left. A pod on a machine that is off is never said to have
/// ended, and would keep its namespace for ever. Those of an installation have no right any more and no
/// volume to share, so that nothing is lost when the API server forgets them.
async fn gone(
    client: &Client,
    namespace: &str,
    objects: &[Value],
    keeps_namespace: bool,
    end: Instant,
    shutdown: &CancellationToken,
) -> Result<(), InstallError> {
    let all = Named::new("v1", "Pod", Some(namespace), "");
    let mut patience = Patience::default();
    until(end, shutdown, async || {
        let pods = all.siblings(client).await?;
        for pod in pods
            .iter()
            .filter(|pod| is_ending(pod, namespace))
            .filter_map(name)
        {
            if !patience.lasts(pod, "", STOPPED_WITHIN) {
                let pod = Named::new("v1", "Pod", Some(namespace), pod);
                pod.delete_at_once(client).await?;
            }
        }
        let left = all_parts(client, namespace, objects).await?;
        let left = left
            .into_iter()
            .find(|part| !(keeps_namespace && part.kind() == "Namespace"));
        let Some(left) = left else { return Ok(None) };
        let found = left.get(client).await?.unwrap_or_default();
        let why = preflight::ending(client, &left, &found).await;
        let why = why.map(|why| format!(": it {why}")).unwrap_or_default();
        Ok(Some(format!("{left} is still there{why}")))
    })
    .await
}

/// Looks until nothing is left, and fails with what is.
async fn until(
    end: Instant,
    shutdown: &CancellationToken,
    mut look: impl AsyncFnMut() -> Result<Option<String>, InstallError>,
) -> Result<(), InstallError> {
    while let Some(left) = look().await? {
        if Instant::now() > end {
            return Err(InstallError::Left(left));
        }
        tokio::select! {
            () = shutdown.cancelled() => return Err(InstallError::Stopped(left)),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_others_are_left_to_their_kubelets() {
        let pod = |label: &str, value: &str| json!({"metadata": {"labels": {label: value}, "deletionTimestamp": "2026-11-28T00:00:00Z"}});
        assert!(is_ending(&pod(INSTALLATION, "pier"), "pier"));
        assert!(!is_ending(&pod(INSTALLATION, "elsewhere"), "pier"));
        assert!(!is_ending(&pod(PART_OF.0, PART_OF.1), "pier"));
        assert!(!is_ending(
            &json!({"metadata": {"labels": {INSTALLATION: "pier"}}}),
            "pier"
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_change_is_waited_for_so_long_and_no_longer() {
        let mut patience = Patience::default();
        let longest = Duration::from_secs(12);
        let mut lasts = |as_it_is: &str| patience.lasts("Lease a", as_it_is, longest);
        assert!(lasts("1"));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(lasts("1") && lasts("2"), "it was renewed");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(lasts("2"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!lasts("2"));
    }
}
