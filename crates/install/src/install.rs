//! What `evenkeel install` and `evenkeel upgrade` do, step by step.

use crate::cluster::{Named, apply};
use crate::error::InstallError;
use crate::objects::{
    AGENT, AGENT_SETTINGS, CONTROLLER, INSTALLATION, Options, PART_OF, ROSTER_SECRET, WEBHOOK_SECRET,
    objects, options_of,
};
use crate::rollout::{Progress, Sight, progress};
use crate::settings::SettingArgs;
use crate::{preflight, roster, uninstall};
use evenkeel_api::names;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often workloads are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Once something of both runs, what is missing gets this long without any progress.
const SETTLE: Duration = Duration::from_secs(30);
/// What does not mend itself is looked at for this long: a registry that hiccups looks like one without the
/// image.
const HOPELESS: Duration = Duration::from_secs(10);
/// Controllers get this long to end after a failed installation.
const UNDONE_WITHIN: Duration = Duration::from_secs(60);

/// Installs, and says what was done.
pub async fn install(
    client: &Client,
    options: &Options,
    timeout: Duration,
    shutdown: &CancellationToken,
) -> Result<String, InstallError> {
    let mut notes = Vec::from_iter(preflight::version(client).await?);
    refuse_second(client, &options.namespace).await?;
    let before = preflight::namespace(client, &options.namespace).await?;
    roster::check(client, &options.namespace).await?;
    let absent = before.is_none().then_some(options.namespace.as_str());
    let objects = preflight::acceptance(client, objects(options), absent, &mut notes).await?;

    let mut made = Made::default();
    claim(client, &options.namespace, before, &mut made).await?;
    let installed = async {
        // Another installation may have begun in another namespace meanwhile.
        refuse_second(client, &options.namespace).await?;
        put(client, options, &objects, timeout, shutdown, &mut made).await
    };
    let (_, told) = match installed.await {
        Ok(done) => done,
        Err(failure) => return Err(made.undo(client, &options.namespace, failure).await),
    };
    notes.push(told);
    let namespace = &options.namespace;
    let more = match options.mode.as_str() {
        "observe" => {
            "It decides, records and explains, and changes nothing. What it would have done: evenkeel status incidents\n\
             Let it act: evenkeel upgrade --mode act"
        }
        _ => "It acts. What it decides, and why: evenkeel status",
    };
    notes.push(format!(
        "Evenkeel {} is installed in namespace {namespace}, mode {}, profile {}.\n{more}\nWhat could go wrong: evenkeel doctor\n",
        env!("CARGO_PKG_VERSION"),
        options.mode,
        options.profile
    ));
    Ok(notes.join("\n"))
}

/// Changes an installation, and says what was done.
pub(crate) async fn upgrade(
    client: &Client,
    settings: &SettingArgs,
    timeout: Duration,
    shutdown: &CancellationToken,
) -> Result<String, InstallError> {
    let mut notes = Vec::from_iter(preflight::version(client).await?);
    let homes = preflight::homes(client).await?;
    if homes.len() > 1 {
        return Err(InstallError::Refused(preflight::several(&homes)));
    }
    let Some(home) = homes.first().cloned() else {
        return Err(InstallError::Refused(
            "Evenkeel is not installed on this cluster: use `evenkeel install`".to_owned(),
        ));
    };
    if let Some(other) = settings.namespace.as_ref().filter(|other| **other != home) {
        return Err(InstallError::Refused(format!(
            "Evenkeel is installed in namespace {home}, and an installation stays where it is: to move it to {other}, uninstall it first"
        )));
    }
    let (deployment, daemon_set) = workloads(client, &home).await?;
    let usual = Options {
        namespace: home.clone(),
        ..Options::default()
    };
    let (before, unread) = options_of(&deployment, &daemon_set, &usual);
    let lacking = settings.lacking(&unread);
    if !lacking.is_empty() {
        return Err(InstallError::Refused(format!(
            "a workload of namespace {home} is missing or was written anew, so that it does not say what Evenkeel was installed with: give \
             {} (`--controller-nodes none` is possible)",
            lacking.join(", ")
        )));
    }
    let options = settings.over(before.with_images_of(&usual));
    if options.image != usual.image && settings.image.is_none() {
        notes.push(format!(
            "note: the image stays {}, and this command is of version {}: --image names another",
            options.image,
            env!("CARGO_PKG_VERSION")
        ));
    }
    settings.check()?;
    roster::check(client, &home).await?;
    let objects = preflight::acceptance(client, objects(&options), None, &mut notes).await?;
    let mut made = Made::default();
    let changed = async {
        let (is_done, told) = put(client, &options, &objects, timeout, shutdown, &mut made).await?;
        notes.push(told);
        // What runs in the former version may still need what that had.
        if is_done {
            for named in prune(client, &home, &objects).await? {
                notes.push(format!("removed {named}, which this version does not have"));
            }
        }
        Ok(())
    };
    changed
        .await
        .map_err(|error| InstallError::Midway(Box::new(error), "evenkeel upgrade"))?;
    notes.push(format!(
        "Evenkeel is at version {} in namespace {home}: image {}, mode {}, profile {}.\n",
        env!("CARGO_PKG_VERSION"),
        options.image,
        options.mode,
        options.profile
    ));
    Ok(notes.join("\n"))
}

/// Refuses where Evenkeel is installed already. Marks without workloads are what an interrupted installation
/// has left: it can be repeated.
async fn refuse_second(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let homes = preflight::homes(client).await?;
    let home = match homes.iter().find(|home| *home != namespace) {
        Some(elsewhere) => elsewhere,
        None if !homes.contains(namespace) => return Ok(()),
        None if workloads(client, namespace).await? == (Value::Null, Value::Null) => return Ok(()),
        None => namespace,
    };
    Err(InstallError::Refused(format!(
        "Evenkeel is installed in namespace {home} already: change or mend it with `evenkeel upgrade`, or remove it first with `evenkeel \
         uninstall --namespace {home}`"
    )))
}

/// Marks the namespace before anything else is written, so that of two installations at once one finds the
/// other. `before` is the Namespace as it was read.
pub(crate) async fn claim(
    client: &Client,
    namespace: &str,
    before: Option<Value>,
    made: &mut Made,
) -> Result<(), InstallError> {
    let here = Named::new("v1", "Namespace", None, namespace);
    let labels = json!({PART_OF.0: PART_OF.1, INSTALLATION: namespace});
    let (claimed, done) = match &before {
        Some(before) if before["metadata"]["labels"][INSTALLATION] == namespace => {
            made.is_repeated = true;
            return Ok(());
        }
        Some(before) => {
            let version = &before["metadata"]["resourceVersion"];
            let mark = json!({"metadata": {"labels": labels, "resourceVersion": version}});
            (here.merge(client, &mark).await, "changed")
        }
        None => {
            let new = json!({"metadata": {"name": namespace, "labels": labels}});
            (here.create(client, &new).await, "made")
        }
    };
    match claimed {
        Ok(()) => match before {
            Some(before) => made.changed.push((here, before)),
            None => made.new.push(here),
        },
        Err(kube::Error::Api(status)) if status.code == 409 => {
            return Err(InstallError::Refused(format!(
                "namespace {namespace} was just {done}: does another `evenkeel install` run?"
            )));
        }
        Err(error) => {
            let error = InstallError::writing(&here)(error);
            return Err(InstallError::Midway(Box::new(error), "evenkeel install"));
        }
    }
    Ok(())
}

/// The Deployment of the controller and the DaemonSet of the agents; null: it is not there.
async fn workloads(client: &Client, namespace: &str) -> Result<(Value, Value), InstallError> {
    let named = |kind, name| Named::new("apps/v1", kind, Some(namespace), name);
    let deployment = named("Deployment", CONTROLLER).get(client).await?;
    let daemon_set = named("DaemonSet", AGENT).get(client).await?;
    Ok((deployment.unwrap_or_default(), daemon_set.unwrap_or_default()))
}

/// What an installation has made so far.
#[derive(Default)]
pub(crate) struct Made {
    /// Objects that were not there before, in their order.
    new: Vec<Named>,
    /// Objects that were there before without its mark, as they were.
    changed: Vec<(Named, Value)>,
    /// Something of an earlier installation in this namespace was there: that stays after a failure.
    is_repeated: bool,
}

impl Made {
    /// Takes everything away again after a failure. Controllers that were started may have acted: they end
    /// first, and what they have put on nodes goes.
    async fn undo(self, client: &Client, namespace: &str, failure: InstallError) -> InstallError {
        tracing::warn!(
            "taking back what was made; a second signal ends this at once and leaves the rest: run evenkeel uninstall then"
        );
        let mut left = Vec::new();
        let mut note =
            |done: Result<(), InstallError>| left.extend(done.err().map(|error| error.to_string()));
        let has = |kind: &str| self.new.iter().any(|named| named.kind() == kind);
        if has("Deployment") {
            let end = Instant::now() + UNDONE_WITHIN;
            let patient = CancellationToken::new();
            let settled = async {
                uninstall::stop(client, namespace, end, &patient).await?;
                uninstall::settle(client, true).await
            };
            note(settled.await.map(drop));
        }
        for named in self.new.iter().rev() {
            note(named.delete(client).await);
        }
        for (named, before) in &self.changed {
            if named.kind() == "Namespace" {
                note(uninstall::drop_leases(client, namespace).await);
            }
            note(uninstall::unmark(client, named, before).await);
        }
        if !left.is_empty() {
            let (failure, left) = (Box::new(failure), left.join(", "));
            return InstallError::HalfInstalled { failure, left };
        }
        let stays =
            format!("; what was there before stays: `evenkeel uninstall --namespace {namespace}` removes it");
        match failure {
            // All that was written is taken back, as its message says.
            InstallError::Refused(_) => failure,
            _ if self.is_repeated => InstallError::Undone(Box::new(failure), stays),
            _ => InstallError::Undone(Box::new(failure), String::new()),
        }
    }
}

/// Applies all objects and waits for the workloads; the line to print about them.
async fn put(
    client: &Client,
    options: &Options,
    objects: &[Value],
    timeout: Duration,
    shutdown: &CancellationToken,
    made: &mut Made,
) -> Result<(bool, String), InstallError> {
    let is_workload = |object: &&Value| object["kind"] == "DaemonSet" || object["kind"] == "Deployment";
    let (workloads, rest): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(is_workload);
    let of_ours = |kind: &str, name: &str| Named::new("v1", kind, Some(&options.namespace), name);
    apply_all(client, &rest, shutdown, made).await?;
    // The last one is the controllers' work.
    for named in [
        of_ours("Secret", ROSTER_SECRET.0),
        of_ours("ConfigMap", AGENT_SETTINGS.0),
        of_ours("Secret", WEBHOOK_SECRET),
    ] {
        if named.get(client).await?.is_none() {
            made.new.push(named);
        }
    }
    roster::ensure(client, &options.namespace).await?;
    apply_all(client, &workloads, shutdown, made).await?;
    if timeout.is_zero() {
        let told = "nobody waited for controllers and agents: evenkeel doctor says whether they run";
        return Ok((false, told.to_owned()));
    }
    rolled_out(client, &options.namespace, timeout, shutdown).await
}

async fn apply_all(
    client: &Client,
    objects: &[&Value],
    shutdown: &CancellationToken,
    made: &mut Made,
) -> Result<(), InstallError> {
    for object in objects {
        if shutdown.is_cancelled() {
            return Err(InstallError::Stopped("not everything was applied".to_owned()));
        }
        let named = Named::of(object);
        let before = named.get(client).await?;
        let mark = &object["metadata"]["labels"][INSTALLATION];
        // Also a write without an answer may have been made.
        match before {
            None => made.new.push(named.clone()),
            Some(before) if before["metadata"]["labels"][INSTALLATION] != *mark => {
                made.changed.push((named.clone(), before));
            }
            // The namespace has its mark from us.
            Some(_) => made.is_repeated |= named.kind() != "Namespace",
        }
        apply(client, object, false)
            .await
            .map_err(InstallError::writing(&named))?;
    }
    Ok(())
}

/// Waits until the workloads run; whether all of them do, and the line to print.
async fn rolled_out(
    client: &Client,
    namespace: &str,
    timeout: Duration,
    shutdown: &CancellationToken,
) -> Result<(bool, String), InstallError> {
    let end = Instant::now() + timeout;
    // What was seen last, and since when.
    let mut seen: Option<(Progress, Instant)> = None;
    loop {
        let now = match sight(client, namespace).await {
            Ok(sight) => progress(&sight),
            // An API server that starts again is no reason to take an installation back.
            Err(error) => Progress::Waiting(error.to_string()),
        };
        let since = match &seen {
            Some((before, since)) if *before == now => *since,
            _ => Instant::now(),
        };
        match &now {
            Progress::Done(told) => return Ok((true, told.clone())),
            Progress::Failed(why) if since.elapsed() > HOPELESS || Instant::now() > end => {
                return Err(InstallError::NotRunning(why.clone()));
            }
            Progress::Enough(told) if since.elapsed() > SETTLE || Instant::now() > end => {
                return Ok((false, format!("{told}; evenkeel doctor names what is missing")));
            }
            Progress::Waiting(told) if Instant::now() > end => {
                let seconds = timeout.as_secs();
                return Err(InstallError::NotRunning(format!("after {seconds} s {told}")));
            }
            _ => {}
        }
        seen = Some((now, since));
        tokio::select! {
            () = shutdown.cancelled() => return Err(InstallError::Stopped("not everything runs yet".to_owned())),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Events say why something is missing, and nothing is missing without them: who may not read them
/// installs all the same.
fn readable(events: Result<Vec<Value>, InstallError>) -> Result<Vec<Value>, InstallError> {
    match events {
        Err(InstallError::Read {
            is_forbidden: true, ..
        }) => Ok(Vec::new()),
        events => events,
    }
}

pub(crate) async fn sight(client: &Client, namespace: &str) -> Result<Sight, InstallError> {
    let (deployment, daemon_set) = workloads(client, namespace).await?;
    let [pods, events] = ["Pod", "Event"].map(|kind| Named::new("v1", kind, Some(namespace), ""));
    Ok(Sight {
        deployment,
        daemon_set,
        pods: pods.siblings(client).await?,
        events: readable(events.siblings(client).await)?,
    })
}

/// Removes parts of an earlier version that are not among `objects`, and says which. Definitions of kinds
/// stay, because their objects would go with them.
async fn prune(client: &Client, namespace: &str, objects: &[Value]) -> Result<Vec<Named>, InstallError> {
    let wanted: Vec<Named> = objects.iter().map(Named::of).collect();
    let mut removed = Vec::new();
    for part in all_parts(client, namespace, objects).await? {
        let is_kept = part.kind() == "Namespace" || part.kind() == "CustomResourceDefinition";
        if !is_kept && !wanted.contains(&part) {
            part.delete(client).await?;
            removed.push(part);
        }
    }
    Ok(removed)
}

/// Everything on the cluster that is marked as part of this installation and is of a kind that `objects`
/// have. Pods, and what the commands make beside the objects, are not. Whoever puts the mark on an object in
/// a namespace where no installation has any gets it neither deleted nor counted.
pub(crate) async fn all_parts(
    client: &Client,
    namespace: &str,
    objects: &[Value],
) -> Result<Vec<Named>, InstallError> {
    let mut kinds = BTreeSet::new();
    let mut parts = Vec::new();
    for object in objects {
        let named = Named::of(object);
        if kinds.insert(named.kind().to_owned()) {
            parts.extend(named.marked(client).await?);
        }
    }
    parts.retain(|(_, home, _)| home == namespace);
    let mut parts: Vec<Named> = parts.into_iter().map(|(part, ..)| part).collect();
    parts.retain(|part| match &part.namespace {
        Some(found) => found == namespace || found == names::NODE_LEASE_NAMESPACE,
        None => part.kind() != "Namespace" || part.name == namespace,
    });
    Ok(parts)
}
