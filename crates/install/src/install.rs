//! What `evenkeel install` and `evenkeel upgrade` do, step by step.

use crate::cluster::{Named, apply};
use crate::doctor::facts::{REACHED_SO, Reach};
use crate::doctor::read::reach;
use crate::error::InstallError;
use crate::objects::{
    AGENT, AGENT_SETTINGS, CONTROLLER, INSTALLATION, Options, PART_OF, ROSTER_SECRET, VERSION_LABEL,
    WEBHOOK_SECRET, objects, options_of,
};
use crate::rollout::{Progress, Sight, progress};
use crate::settings::SettingArgs;
use crate::{preflight, roster, uninstall};
use evenkeel_api::names;
use kube::Client;
use semver::Version;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The version of this command.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Annotation of the namespace: which command has installed or changed this last, so that one that fails
/// takes nothing away from another one.
pub(crate) const LAST_COMMAND: &str = "evenkeel.io/last-command";
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

    let mut made = Made::by(options);
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
        VERSION,
        options.mode,
        options.profile
    ));
    Ok(notes.join("\n"))
}

/// What an upgrade is told.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) settings: &'a SettingArgs,
    /// Also where a newer version was applied last.
    pub(crate) downgrade: bool,
}

/// Changes an installation, and says what was done.
pub(crate) async fn upgrade(
    client: &Client,
    Change { settings, downgrade }: Change<'_>,
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
    let applied = applied_version(&deployment, &daemon_set);
    if let Some(newer) = applied
        .as_ref()
        .filter(|applied| !downgrade && is_newer(applied, VERSION))
    {
        return Err(InstallError::Refused(format!(
            "Evenkeel was installed or upgraded by a command of version {newer}, and this one is of version {VERSION}: it would take away what \
             only the newer one knows. Use that one, or --downgrade"
        )));
    }
    let agent_stays = options.agent_image != usual.agent_image && settings.agent_image.is_none();
    let image_stays = settings.image.is_none() && (options.image != usual.image || agent_stays);
    if let Some(other) = applied
        .as_ref()
        .filter(|applied| image_stays && **applied != VERSION)
    {
        return Err(InstallError::Refused(format!(
            "image {} was installed by a command of version {other}, and this one is of version {VERSION}: name the images of this version with \
             --image and, where it is not beside that, --agent-image",
            options.image
        )));
    }
    if image_stays {
        notes.push(format!(
            "note: the image stays {}, and this command is of version {VERSION}: --image names another",
            options.image,
        ));
    }
    settings.check()?;
    roster::check(client, &home).await?;
    let objects = preflight::acceptance(client, objects(&options), None, &mut notes).await?;
    let mut made = Made::by(&options);
    let changed = async {
        made.take_over(client, &home).await?;
        let (is_done, told) = put(client, &options, &objects, timeout, shutdown, &mut made).await?;
        notes.push(told);
        // What runs in the former version may still need what that had.
        let of_before = leftovers(client, &home, &objects).await?;
        if is_done && (!image_stays || applied.is_some()) {
            for named in &of_before {
                named.delete(client).await?;
                notes.push(format!("removed {named}, which this version does not have"));
            }
        } else if !of_before.is_empty() {
            let of_before: Vec<String> = of_before.iter().map(ToString::to_string).collect();
            notes.push(format!(
                "of an earlier version stays, because not every pod is known to be of this one: {}. Repeat `evenkeel upgrade` once all are",
                of_before.join(", ")
            ));
        }
        Ok(())
    };
    changed
        .await
        .map_err(|error| InstallError::Midway(Box::new(error), "evenkeel upgrade"))?;
    notes.push(format!(
        "Evenkeel is at version {} in namespace {home}: image {}, mode {}, profile {}.\n",
        VERSION, options.image, options.mode, options.profile
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
    let mut metadata = json!({
        "labels": {PART_OF.0: PART_OF.1, INSTALLATION: namespace},
        "annotations": {LAST_COMMAND: made.command},
    });
    let (claimed, done) = if let Some(before) = &before {
        metadata["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        let mark = json!({"metadata": metadata});
        (here.merge(client, &mark).await, "changed")
    } else {
        metadata["name"] = json!(namespace);
        (here.create(client, &json!({"metadata": metadata})).await, "made")
    };
    match claimed {
        Ok(()) => match before {
            Some(before) if before["metadata"]["labels"][INSTALLATION] == namespace => {
                made.is_repeated = true;
            }
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

/// The version of the command that applied the workloads, if one that says it did.
fn applied_version(deployment: &Value, daemon_set: &Value) -> Option<String> {
    let mut both = [deployment, daemon_set].into_iter();
    let version = both.find_map(|workload| workload["metadata"]["labels"][VERSION_LABEL].as_str());
    version.map(str::to_owned)
}

/// Whether a version is newer than another one. What is no version is not.
pub(crate) fn is_newer(version: &str, than: &str) -> bool {
    let (Ok(version), Ok(than)) = (Version::parse(version), Version::parse(than)) else {
        return false;
    };
    version.cmp_precedence(&than).is_gt()
}

/// What an installation has made so far.
pub(crate) struct Made {
    /// Which command it is.
    command: String,
    /// Its controllers act, so that they may have put something on nodes.
    acts: bool,
    /// Objects that were not there before, in their order.
    new: Vec<Named>,
    /// Objects that were there before without its mark, as they were.
    changed: Vec<(Named, Value)>,
    /// Something of an earlier installation in this namespace was there: that stays after a failure.
    is_repeated: bool,
}

impl Made {
    /// Of a command with these options.
    pub(crate) fn by(options: &Options) -> Self {
        Self {
            command: format!("{:016x}", rand::random::<u64>()),
            acts: options.mode == "act",
            new: Vec::new(),
            changed: Vec::new(),
            is_repeated: false,
        }
    }

    /// From now on the installation is this command's.
    async fn take_over(&self, client: &Client, namespace: &str) -> Result<(), InstallError> {
        let here = Named::new("v1", "Namespace", None, namespace);
        let mark = json!({"metadata": {"annotations": {LAST_COMMAND: self.command}}});
        let marked = here.merge(client, &mark).await;
        marked.map_err(InstallError::writing(&here))
    }

    /// Whether it still is.
    async fn is_last(&self, client: &Client, namespace: &str) -> Result<bool, InstallError> {
        let here = Named::new("v1", "Namespace", None, namespace).get(client).await?;
        Ok(here.is_none_or(|here| here["metadata"]["annotations"][LAST_COMMAND] == self.command))
    }

    /// Takes everything away again after a failure. Controllers that were started may have acted: they end
    /// first, and what they have put on nodes goes.
    async fn undo(self, client: &Client, namespace: &str, failure: InstallError) -> InstallError {
        match self.is_last(client, namespace).await {
            Ok(true) => {}
            Ok(false) => return InstallError::Overtaken(Box::new(failure)),
            Err(error) => {
                let (failure, left) = (Box::new(failure), error.to_string());
                return InstallError::HalfInstalled { failure, left };
            }
        }
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
                uninstall::settle(client, self.acts).await
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
    if !made.is_last(client, &options.namespace).await? {
        return Err(InstallError::Stopped("not everything was applied".to_owned()));
    }
    apply_all(client, &workloads, shutdown, made).await?;
    if timeout.is_zero() {
        let told = "nobody waited for controllers and agents: evenkeel doctor says whether they run";
        return Ok((false, told.to_owned()));
    }
    let done = rolled_out(client, &options.namespace, timeout, shutdown).await?;
    reached(client, &options.namespace, shutdown).await?;
    Ok(done)
}

/// Refuses where the API server does not reach the webhook: Kubernetes' own controllers would wait for it at
/// each write of nodes, pods and endpoints in the whole cluster. A Service without endpoints holds nobody up.
pub(crate) async fn reached(
    client: &Client,
    namespace: &str,
    shutdown: &CancellationToken,
) -> Result<(), InstallError> {
    let begun = Instant::now();
    loop {
        match reach(client, namespace).await {
            Reach::Fails(why) if why.contains("no endpoints available") => return Ok(()),
            Reach::Fails(why) if begun.elapsed() > HOPELESS => {
                return Err(InstallError::NotRunning(format!(
                    "the API server does not reach the webhook, and would wait for it up to 2 s at each write of nodes, pods and endpoints: \
                     {why}. Let {REACHED_SO}"
                )));
            }
            Reach::Fails(_) => {}
            Reach::Answers | Reach::Unknown => return Ok(()),
        }
        tokio::select! {
            () = shutdown.cancelled() => {
                return Err(InstallError::Stopped("the webhook was not reached yet".to_owned()));
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
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

/// Parts of an earlier version that are not among `objects`. Definitions of kinds stay, because their objects
/// would go with them.
async fn leftovers(client: &Client, namespace: &str, objects: &[Value]) -> Result<Vec<Named>, InstallError> {
    let wanted: Vec<Named> = objects.iter().map(Named::of).collect();
    let stays = |part: &Named| part.kind() == "Namespace" || part.kind() == "CustomResourceDefinition";
    let mut parts = all_parts(client, namespace, objects).await?;
    parts.retain(|part| !stays(part) && !wanted.contains(part));
    Ok(parts)
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
