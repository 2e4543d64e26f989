//! Every object of an installation, in the order in which they are applied. Pure.

use crate::manifest;
use evenkeel_api::names::{self, service_accounts};
use serde_json::{Value, json};

/// Custom resources.
pub const CRDS: &str = include_str!("../../../deploy/crds.yaml");
/// ServiceAccounts and rights.
pub const RBAC: &str = include_str!("../../../deploy/rbac.yaml");
/// Which process may write which object.
pub const POLICIES: &str = include_str!("../../../deploy/policies.yaml");
/// How the API server shares its time.
const FLOW_CONTROL: &str = include_str!("../../../deploy/flowcontrol.yaml");
/// What runs.
const WORKLOADS: &str = include_str!("../../../deploy/workloads.yaml");

/// The files of an installation. What runs comes last, so that nothing runs without its rights.
const FILES: [(&str, &str); 5] = [
    (CRDS, "crds.yaml"),
    (RBAC, "rbac.yaml"),
    (POLICIES, "policies.yaml"),
    (FLOW_CONTROL, "flowcontrol.yaml"),
    (WORKLOADS, "workloads.yaml"),
];

/// Label of every object of an installation, with its namespace, and of nothing else. By it objects are found
/// that go at an upgrade or at the end, so that it is none of the common labels, which others use as well.
pub const INSTALLATION: &str = "evenkeel.io/installation";
/// The common label of the same objects, for people.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "evenkeel");
/// The common label of both workloads with the version of the command that applied them.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The Secret with the key that signs rosters, and the key's name in it.
pub const ROSTER_SECRET: (&str, &str) = ("evenkeel-roster", "roster.key");
/// The ConfigMap with the settings of agents, and the file's name in it.
pub const AGENT_SETTINGS: (&str, &str) = ("evenkeel-agent", "agent.yaml");
/// The Secret with the certificate of the webhook, which controllers make.
pub const WEBHOOK_SECRET: &str = "evenkeel-webhook";
/// The Deployment of the controller.
pub const CONTROLLER: &str = service_accounts::CONTROLLER;
/// The DaemonSet of the agents.
pub const AGENT: &str = service_accounts::AGENT;

/// What an installation is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Namespace of everything that has one.
    pub namespace: String,
    /// Image with `/evenkeel`.
    pub image: String,
    /// Image with `/evenkeel-agent`.
    pub agent_image: String,
    /// Value of the controller's `--mode`.
    pub mode: String,
    /// Value of the controller's `--profile`.
    pub profile: String,
    /// Zone of nodes without a label of one, for controller and agents; `None`: they are in no zone, with the
    /// built-in profile.
    pub zone_default: Option<String>,
    /// Labels that nodes need to run the controller.
    pub controller_nodes: Vec<(String, String)>,
}

impl Default for Options {
    /// A first installation: it decides, records and explains, and changes nothing.
    fn default() -> Self {
        // As `cargo xtask image` names it: a node that has loaded it pulls nothing.
        let image = format!("localhost/evenkeel:{}", env!("CARGO_PKG_VERSION"));
        Self {
            namespace: names::NAMESPACE.to_owned(),
            agent_image: agent_image(&image),
            image,
            mode: "observe".to_owned(),
            profile: "builtin".to_owned(),
            zone_default: None,
            controller_nodes: Vec::new(),
        }
    }
}

impl Options {
    /// The same with these images where its own are those that a build of another version names. Images from
    /// elsewhere stay.
    #[must_use]
    pub fn with_images_of(mut self, usual: &Self) -> Self {
        if is_of_build(&self.image, &usual.image) {
            self.image.clone_from(&usual.image);
        }
        if is_of_build(&self.agent_image, &usual.agent_image) {
            self.agent_image.clone_from(&usual.agent_image);
        }
        self
    }
}

/// Whether an image is called as a build of some version of our own calls it.
fn is_of_build(image: &str, usual: &str) -> bool {
    let name = usual.rsplit_once(':').map_or(usual, |(name, _)| name);
    image.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
}

/// The agent's image beside this one: `HOST/evenkeel-agent:1.2` for `HOST/evenkeel:1.2`. A digest names one
/// image alone, so that there it is asked for by name.
pub fn agent_image(image: &str) -> String {
    let image = image.split('@').next().unwrap_or(image);
    let directory = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[directory..].find(':') {
        Some(colon) => {
            let (name, tag) = image.split_at(directory + colon);
            format!("{name}-agent{tag}")
        }
        None => format!("{image}-agent"),
    }
}

/// The objects of an installation, CRDs and the namespace first, what runs last.
pub fn objects(options: &Options) -> Vec<Value> {
    let mut objects: Vec<Value> = FILES.iter().flat_map(|(text, file)| own(text, file)).collect();
    // The namespace stands in two files, because each can be applied alone: the last one says more.
    let is_namespace = |object: &Value| object["kind"] == "Namespace";
    let namespace = objects
        .iter()
        .rposition(is_namespace)
        .map(|at| objects.remove(at));
    if let (Some(first), Some(namespace)) = (objects.iter().position(is_namespace), namespace) {
        objects[first] = namespace;
    }
    for object in &mut objects {
        rename(object, &options.namespace);
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            label(object, labels, &options.namespace);
        }
        match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
            (Some("Deployment"), Some(CONTROLLER)) => controller(object, options),
            (Some("DaemonSet"), Some(AGENT)) => agent(object, options),
            _ => continue,
        }
        object["metadata"]["labels"][VERSION_LABEL] = json!(env!("CARGO_PKG_VERSION"));
    }
    objects
}

/// The documents of a file of our own, which tests read.
fn own(text: &str, file: &str) -> Vec<Value> {
    manifest::parse(text, file).expect("the files under deploy/ are manifests")
}

/// Marks an object, and the pods of a workload, as part of the installation.
fn label(object: &mut Value, pointer: &str, namespace: &str) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    if let Some(metadata) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        let labels = metadata.entry(field).or_insert_with(|| json!({}));
        labels[PART_OF.0] = json!(PART_OF.1);
        labels[INSTALLATION] = json!(namespace);
    }
}

fn controller(object: &mut Value, options: &Options) {
    let pod = &mut object["spec"]["template"]["spec"];
    for (key, value) in &options.controller_nodes {
        pod["nodeSelector"][key] = json!(value);
    }
    let container = &mut pod["containers"][0];
    container["image"] = json!(options.image);
    set(container, "--mode", &options.mode);
    set(container, "--profile", &options.profile);
    zone(container, options);
}

fn agent(object: &mut Value, options: &Options) {
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(options.agent_image);
    zone(container, options);
}

/// Controller and agents have to put a node into the same zone. The profile for the edge names one for nodes
/// without a label.
fn zone(container: &mut Value, options: &Options) {
    let named = options.zone_default.as_deref();
    let edge = (options.profile == "edge").then_some(names::DEFAULT_ZONE);
    if let Some(zone) = named.or(edge) {
        set(container, "--zone-default", zone);
    }
}

/// Gives a flag a value, in its place where it has one, else at the end.
fn set(container: &mut Value, flag: &str, value: &str) {
    let Some(args) = container["args"].as_array_mut() else {
        return;
    };
    let given = json!(format!("{flag}={value}"));
    match args.iter_mut().find(|arg| value_of(arg, flag).is_some()) {
        Some(arg) => *arg = given,
        None => args.push(given),
    }
}

/// The value of a flag in an argument.
pub(crate) fn value_of<'a>(arg: &'a Value, flag: &str) -> Option<&'a str> {
    arg.as_str()?.strip_prefix(flag)?.strip_prefix('=')
}

/// Puts an object into another namespace than our own, wherever it names it: in its metadata, in subjects of
/// bindings, and in the expressions of policies.
fn rename(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) if text.contains(names::NAMESPACE) => {
            *text = text.replace(names::NAMESPACE, namespace);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, namespace)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, namespace)),
        _ => {}
    }
}

/// What an installation was installed with, as its Deployment and its DaemonSet say (null: it is not there),
/// and the flags of which neither says the value, because it is missing or was written anew. In `options`
/// these are as `usual`, and so is the namespace.
pub fn options_of(deployment: &Value, daemon_set: &Value, usual: &Options) -> (Options, Vec<&'static str>) {
    let container = |object: &Value| object.pointer("/spec/template/spec/containers/0").cloned();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let flag = |container: &Value, flag: &str| {
        let args = container["args"].as_array()?;
        args.iter().find_map(|arg| value_of(arg, flag)).map(str::to_owned)
    };
    // Without a mode it is not as it was applied, and its image may be anything.
    let controller = container(deployment).filter(|found| flag(found, "--mode").is_some());
    let controller = controller.unwrap_or_default();
    let agent = container(daemon_set).unwrap_or_default();
    let selector = deployment.pointer("/spec/template/spec/nodeSelector");
    let labels = selector.and_then(Value::as_object).into_iter().flatten();
    let mut unread = Vec::new();
    let mut known = |value: Option<String>, name: &'static str, otherwise: &str| {
        value.unwrap_or_else(|| {
            unread.push(name);
            otherwise.to_owned()
        })
    };
    let mode = known(flag(&controller, "--mode"), "--mode", &usual.mode);
    let profile = known(flag(&controller, "--profile"), "--profile", &usual.profile);
    let of_the_profile = |zone: &String| profile == "edge" && zone == names::DEFAULT_ZONE;
    let zone = flag(&controller, "--zone-default").or_else(|| flag(&agent, "--zone-default"));
    let image = text(&controller["image"]);
    // A build of our own names both of its images.
    let built = image.as_ref().filter(|image| is_of_build(image, &usual.image));
    let of_agent = text(&agent["image"]).or(built.map(|_| usual.agent_image.clone()));
    let options = Options {
        namespace: usual.namespace.clone(),
        image: known(image, "--image", &usual.image),
        agent_image: known(of_agent, "--agent-image", &usual.agent_image),
        zone_default: zone.filter(|zone| !of_the_profile(zone)),
        controller_nodes: labels
            .filter(|(key, _)| *key != "kubernetes.io/os")
            .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
            .collect(),
        mode,
        profile,
    };
    if deployment.is_null() {
        unread.push("--controller-nodes");
    }
    // Both have the same one.
    if controller.is_null() && agent.is_null() {
        unread.push("--zone-default");
    }
    (options, unread)
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
