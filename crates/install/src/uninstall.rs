//! What `evenkeel uninstall` does, step by step.

use crate::cluster::Named;
use crate::debts;
use crate::error::InstallError;
use crate::install::all_parts;
use crate::objects::{AGENT_SETTINGS, CONTROLLER, Options, PART_OF, ROSTER_SECRET, objects};
use crate::preflight::is_every_namespaces;
use evenkeel_api::names;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether something is gone.
const LOOK: Duration = Duration::from_millis(500);
/// Attempts to write a Node that others write, too.
const ATTEMPTS: usize = 5;
/// A pod of the controller has 40 s to end once it is told to.
const STOPPED_WITHIN: Duration = Duration::from_secs(50);
/// Replicas renew their Leases every 5 s.
const SILENT: Duration = Duration::from_secs(12);
/// The Secret of the webhook, which controllers make.
const WEBHOOK_SECRET: &str = "evenkeel-webhook";

/// Uninstalls, and says what was done.
pub(crate) async fn uninstall(
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
    let parts = all_parts(client, &objects).await?;
    let elsewhere = parts.iter().find(|part| {
        part.kind() == "Deployment" && part.namespace.as_deref().is_some_and(|found| found != namespace)
    });
    if let Some(found) = elsewhere {
        return Err(InstallError::Refused(format!(
            "{found} is there, and nothing of Evenkeel in namespace {namespace}: say which one with --namespace"
        )));
    }
    let end = Instant::now() + timeout;
    let mut text = String::new();
    if parts.is_empty() {
        text.push_str("Evenkeel is not installed on this cluster.\n");
    } else {
        stop(client, namespace, end, shutdown).await?;
    }
    let webhook = Named::new(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        None,
        names::WEBHOOK_CONFIGURATION,
    );
    webhook
        .delete(client)
        .await
        .map_err(InstallError::writing(&webhook))?;
    for node in settle(client).await? {
        let _ = writeln!(text, "took Evenkeel's taints and annotations off Node {node}");
    }
    let kept = foreign(client, namespace).await?;
    let count = parts.len();
    // What runs goes first, then rights, and the namespace last.
    for part in parts.iter().rev() {
        if part.kind() != "Namespace" || kept.is_none() {
            part.delete(client).await.map_err(InstallError::writing(part))?;
        }
    }
    if let Some(foreign) = &kept {
        for (kind, name) in [
            ("Secret", ROSTER_SECRET.0),
            ("Secret", WEBHOOK_SECRET),
            ("ConfigMap", AGENT_SETTINGS.0),
        ] {
            let own = Named::new("v1", kind, Some(namespace), name);
            own.delete(client).await.map_err(InstallError::writing(&own))?;
        }
        let _ = writeln!(text, "namespace {namespace} stays, because it holds {foreign}");
    }
    gone(client, namespace, &objects, kept.is_some(), end, shutdown).await?;
    if count > 0 {
        let _ = writeln!(
            text,
            "Evenkeel is removed: {count} objects. Keys of agents are still on the nodes, in /var/lib/evenkeel."
        );
    }
    Ok(text)
}

/// Stops the controllers. The last one gives back what it kept from the stock controllers.
async fn stop(
    client: &Client,
    namespace: &str,
    end: Instant,
    shutdown: &CancellationToken,
) -> Result<(), InstallError> {
    let deployment = Named::new("apps/v1", "Deployment", Some(namespace), CONTROLLER);
    let found = deployment
        .get(client)
        .await
        .map_err(InstallError::reading(&deployment))?;
    if found.is_none() {
        return Ok(());
    }
    let none = json!({"spec": {"replicas": 0}});
    deployment
        .merge(client, &none)
        .await
        .map_err(InstallError::writing(&deployment))?;
    let leases = Named::new("coordination.k8s.io/v1", "Lease", Some(namespace), "");
    let pods = Named::new("v1", "Pod", Some(namespace), "");
    let mut patience = Patience::default();
    until(end, shutdown, async || {
        let all = pods
            .siblings(client)
            .await
            .map_err(InstallError::reading("pods"))?;
        let running = all.iter().filter(|pod| is_controller(pod)).filter_map(name);
        let running = running.map(|pod| (format!("Pod {pod}"), String::new(), STOPPED_WITHIN));
        let mut left: Vec<_> = running.collect();
        let all = leases
            .siblings(client)
            .await
            .map_err(InstallError::reading("leases"))?;
        for lease in all.iter().filter(|lease| name(lease).is_some_and(is_replicas)) {
            let renewed = lease["spec"]["renewTime"].to_string();
            let lease = format!("Lease {}", name(lease).unwrap_or_default());
            left.push((lease, renewed, SILENT));
        }
        let left = left
            .into_iter()
            .find(|(what, as_it_is, longest)| patience.lasts(what, as_it_is, *longest));
        Ok(left.map(|(what, ..)| format!("the controllers have not stopped: {what} is still there")))
    })
    .await
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
    let ended = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    pod["metadata"]["labels"]["app.kubernetes.io/component"] == "controller" && !ended
}

fn is_replicas(lease: &str) -> bool {
    lease.starts_with(names::REPLICA_LEASE_PREFIX)
}

/// Takes off the nodes what Evenkeel has put there; the names of those that had something.
async fn settle(client: &Client) -> Result<Vec<String>, InstallError> {
    let all = Named::new("v1", "Node", None, "");
    let nodes = all
        .siblings(client)
        .await
        .map_err(InstallError::reading("nodes"))?;
    let mut settled = Vec::new();
    for node in nodes {
        let Some(name) = name(&node).map(str::to_owned) else {
            continue;
        };
        let named = Named::new("v1", "Node", None, &name);
        let mut present = Some(node);
        for attempt in 1.. {
            let Some(patch) = present.as_ref().and_then(debts::settlement) else {
                break;
            };
            match named.merge(client, &patch).await {
                Ok(()) => {
                    settled.push(name);
                    break;
                }
                // Somebody else wrote the Node meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    present = named.get(client).await.map_err(InstallError::reading(&named))?;
                }
                Err(error) => return Err(InstallError::writing(&named)(error)),
            }
        }
    }
    Ok(settled)
}

/// Something in the namespace that is not of the installation, if there is any.
async fn foreign(client: &Client, namespace: &str) -> Result<Option<String>, InstallError> {
    for (api_version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "StatefulSet"),
        ("v1", "Pod"),
        ("v1", "ServiceAccount"),
    ] {
        let kind = Named::new(api_version, kind, Some(namespace), "");
        let all = kind
            .siblings(client)
            .await
            .map_err(InstallError::reading(&kind))?;
        let other = all.iter().find(|object| {
            object["metadata"]["labels"][PART_OF.0] != PART_OF.1 && !is_every_namespaces(kind.kind(), object)
        });
        if let Some(object) = other {
            return Ok(Some(format!(
                "{} {}",
                kind.kind(),
                name(object).unwrap_or_default()
            )));
        }
    }
    Ok(None)
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
        let pods = all
            .siblings(client)
            .await
            .map_err(InstallError::reading("pods"))?;
        let ends = |pod: &&Value| {
            pod["metadata"]["labels"][PART_OF.0] == PART_OF.1
                && !pod["metadata"]["deletionTimestamp"].is_null()
        };
        for pod in pods.iter().filter(ends).filter_map(name) {
            if !patience.lasts(pod, "", STOPPED_WITHIN) {
                let pod = Named::new("v1", "Pod", Some(namespace), pod);
                pod.delete_at_once(client)
                    .await
                    .map_err(InstallError::writing(&pod))?;
            }
        }
        let left = all_parts(client, objects).await?;
        let left = left
            .into_iter()
            .find(|part| !(keeps_namespace && part.kind() == "Namespace"));
        Ok(left.map(|left| format!("{left} is still there")))
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
            return Err(InstallError::Left(format!("{left}; repeat `evenkeel uninstall`")));
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
