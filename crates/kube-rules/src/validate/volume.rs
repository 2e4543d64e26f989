//! Volumes of pods.

use super::checks::{first_of, integer, is_true, members, pattern, quantity};
use super::container::pull_policy;
use super::environment::{self, Target};
use super::errors::{Errors, has, items, text};
use super::{meta, storage};
use crate::names;
use evenkeel_kube_values::Quantity;
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

const MORE: &str = "may not specify more than 1 volume type";

/// Sources in the order in which upstream looks at them, with the members that must not be empty.
const SOURCES: [(&str, &[&str]); 30] = [
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &[]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &["volumeName"]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("image", &[]),
];

/// What may be asked of a path of the host.
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Metadata that a template of a claim has not.
const OTHER_METADATA: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

static IQN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"iqn\.\d{4}-\d{2}\.([[:alnum:]\-.]+)(:[^,;*&$|\s]+)$"));
static EUI: LazyLock<Regex> = LazyLock::new(|| pattern("^eui.[[:alnum:]]{16}$"));
static NAA: LazyLock<Regex> = LazyLock::new(|| pattern("^naa.[[:alnum:]]{32}$"));

/// Validates the list, and gives those that containers may refer to. `pod` is the pod's name, empty for
/// templates.
pub(super) fn list<'a>(
    spec: &'a Value,
    path: &str,
    pod: Option<&str>,
    errors: &mut Errors,
) -> Vec<&'a Value> {
    let mut good: Vec<&Value> = Vec::new();
    let claim_of = |volume: &Value| match pod {
        Some(pod) if !pod.is_empty() => Some(format!("{pod}-{}", text(volume, "name"))),
        _ => None,
    };
    let made: Vec<String> = items(spec, "volumes")
        .filter(|(_, volume)| has(volume, "ephemeral"))
        .filter_map(|(_, volume)| claim_of(volume))
        .collect();
    for (index, volume) in items(spec, "volumes") {
        let path = format!("{path}.volumes[{index}]");
        let (before, name) = (errors.list.len(), text(volume, "name"));
        source(volume, &path, pod, claim_of(volume).as_deref(), errors);
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
        }
        if good.iter().any(|other| text(other, "name") == name) {
            errors.duplicate(&format!("{path}.name"), &json!(name));
        }
        if errors.list.len() == before {
            good.push(volume);
        }
        let claim = text(&volume["persistentVolumeClaim"], "claimName");
        if made.iter().any(|other| other == claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.bad(&format!("{path}.persistentVolumeClaim.claimName"), claim, why);
        }
    }
    good
}

fn source(volume: &Value, path: &str, pod: Option<&str>, claim: Option<&str>, errors: &mut Errors) {
    let kinds = SOURCES.map(|(kind, _)| kind);
    let (before, name) = (errors.list.len(), text(volume, "name"));
    let check = |kind: &'static str, source: &Value, errors: &mut Errors| {
        // Upstream's own words for two of the places.
        let place = if kind == "gcePersistentDisk" {
            "persistentDisk"
        } else {
            kind
        };
        let path = format!("{path}.{place}");
        let needed = SOURCES.iter().find(|(other, _)| *other == kind);
        errors.need_members(source, &path, needed.map_or(&[], |(_, needed)| needed));
        of_kind(kind, source, &path, pod.is_some(), errors);
        if let Some(claim) = claim.filter(|_| kind == "ephemeral" && !name.is_empty()) {
            for wrong in names::dns_subdomain(claim) {
                errors.bad(
                    &format!("{}.name", path.trim_end_matches(".ephemeral")),
                    name,
                    &format!("PVC name {claim:?}: {wrong}"),
                );
            }
        }
    };
    let found = first_of(volume, path, &kinds, MORE, errors, check);
    for error in &mut errors.list[before..] {
        for (kind, shown) in [("cephfs", "cephFS"), ("downwardAPI", "downwarAPI")] {
            if error.message.ends_with(MORE) && error.field.ends_with(&format!(".{kind}")) {
                error.field = format!("{path}.{shown}");
            }
        }
    }
    let portal = text(&volume["iscsi"], "targetPortal");
    if has(&volume["iscsi"], "initiatorName") && name.len() + 1 + portal.len() > 64 {
        errors.bad(
            &format!("{path}.name"),
            name,
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        );
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

impl Errors {
    /// As [`Errors::need`], for members that may be objects, too.
    fn need_members(&mut self, object: &Value, path: &str, names: &[&str]) {
        for name in names.iter().filter(|name| !object[**name].is_object()) {
            self.need(object, path, &[name]);
        }
    }
}

/// A source of persistent volumes that pods may name, too.
pub(super) fn persistent(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let needed = SOURCES.iter().find(|(name, _)| *name == kind);
    let needed = needed.map_or(&[][..], |(_, needed)| needed);
    errors.need_members(source, path, needed);
    match kind {
        "iscsi" => iscsi(source, path, "must be valid format", errors),
        "azureFile" if source["secretNamespace"] == "" => {
            errors.bad(
                &format!("{path}.secretNamespace"),
                "",
                "secretNamespace can not be empty",
            );
        }
        _ => of_kind(kind, source, path, false, errors),
    }
    if matches!(kind, "iscsi" | "cinder") && has(source, "secretRef") {
        let needed: &[&str] = if kind == "iscsi" {
            &["name"]
        } else {
            &["name", "namespace"]
        };
        errors.need(&source["secretRef"], &format!("{path}.secretRef"), needed);
    }
}

/// What is asked of a source beyond the members that must be there.
fn of_kind(kind: &str, source: &Value, path: &str, is_pod: bool, errors: &mut Errors) {
    let get = |name: &str| text(source, name);
    match kind {
        "emptyDir" if quantity(&source["sizeLimit"]).is_some_and(Quantity::is_negative) => {
            let why = "SizeLimit field must be a valid resource quantity";
            errors.forbidden(&format!("{path}.sizeLimit"), why);
        }
        "hostPath" if !get("path").is_empty() => {
            errors.without_backsteps(&format!("{path}.path"), get("path"));
            errors.known(source, path, "type", &HOST_PATH_TYPES);
        }
        "gitRepo" => errors.descending(&format!("{path}.directory"), get("directory")),
        "gcePersistentDisk" | "awsElasticBlockStore"
            if !(0..=255).contains(&integer(&source["partition"])) =>
        {
            let path = format!("{path}.partition");
            errors.invalid(
                &path,
                &source["partition"],
                "must be between 1 and 255, inclusive",
            );
        }
        "secret" | "configMap" => {
            errors.file_mode(source, path, "defaultMode");
            items(source, "items")
                .for_each(|(index, item)| file(item, &format!("{path}.items[{index}]"), errors));
        }
        "nfs" if !get("path").starts_with('/') => {
            errors.bad(&format!("{path}.path"), get("path"), "must be an absolute path");
        }
        "iscsi" => iscsi(
            source,
            path,
            "must be valid format starting with iqn, eui, or naa",
            errors,
        ),
        "flocker" => flocker(source, path, errors),
        "cinder" | "storageos" => {
            for name in ["volumeName", "volumeNamespace"] {
                if kind == "storageos" && !get(name).is_empty() {
                    errors.invalid_text(&format!("{path}.{name}"), get(name), names::dns_label(get(name)));
                }
            }
            if has(source, "secretRef") {
                errors.need(&source["secretRef"], &format!("{path}.secretRef"), &["name"]);
            }
        }
        "quobyte" => quobyte(source, path, errors),
        "downwardAPI" => {
            errors.file_mode(source, path, "defaultMode");
            // Upstream names no item.
            items(source, "items").for_each(|(_, item)| downward_file(item, path, errors));
        }
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => {
            for (key, _) in members(&source["options"]) {
                let space = key.split('/').next().unwrap_or_default().to_lowercase();
                let space = format!(".{space}");
                if space.ends_with(".kubernetes.io") || space.ends_with(".k8s.io") {
                    let why = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.bad(&format!("{path}.options[{key}]"), key, why);
                }
            }
        }
        "azureDisk" => azure_disk(source, path, errors),
        "projected" => {
            errors.file_mode(source, path, "defaultMode");
            projected(source, path, errors);
        }
        "csi" => csi(source, path, errors),
        "ephemeral" if has(source, "volumeClaimTemplate") => {
            claim_template(
                &source["volumeClaimTemplate"],
                &format!("{path}.volumeClaimTemplate"),
                errors,
            );
        }
        "image" => {
            if is_pod {
                errors.need(source, path, &["reference"]);
            }
            pull_policy(source, path, "pullPolicy", errors);
        }
        _ => {}
    }
}

fn file(item: &Value, path: &str, errors: &mut Errors) {
    errors.need(item, path, &["key", "path"]);
    errors.unreserved(&format!("{path}.path"), text(item, "path"));
    errors.file_mode(item, path, "mode");
}

fn downward_file(item: &Value, path: &str, errors: &mut Errors) {
    errors.need(item, path, &["path"]);
    errors.unreserved(&format!("{path}.path"), text(item, "path"));
    if has(item, "fieldRef") {
        environment::field(
            &item["fieldRef"],
            &format!("{path}.fieldRef"),
            Target::File,
            errors,
        );
        if has(item, "resourceFieldRef") {
            errors.bad(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if has(item, "resourceFieldRef") {
        let path = format!("{path}.resourceFieldRef");
        environment::resource(&item["resourceFieldRef"], &path, Target::File, errors);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    errors.file_mode(item, path, "mode");
}

/// Sources that come together in one volume. Trust bundles and certificates of pods are none of them: their
/// gates are closed, so that they were dropped before.
fn projected(source: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, one) in items(source, "sources") {
        let own = format!("{path}.sources[{index}]");
        let mut found = 0;
        for kind in ["secret", "configMap", "downwardAPI"]
            .into_iter()
            .filter(|kind| has(one, kind))
        {
            found += 1;
            let (part, own) = (&one[kind], format!("{own}.{kind}"));
            if kind != "downwardAPI" {
                errors.need(part, &own, &["name"]);
            }
            for (number, item) in items(part, "items") {
                let place = text(item, "path");
                let shown = if kind == "downwardAPI" {
                    downward_file(item, &own, errors);
                    place
                } else {
                    file(item, &format!("{own}.items[{number}]"), errors);
                    text(part, "name")
                };
                if seen.contains(&place) {
                    errors.bad(path, shown, "conflicting duplicate paths");
                } else if !place.is_empty() {
                    seen.push(place);
                }
            }
        }
        if has(one, "serviceAccountToken") {
            found += 1;
            token(
                &one["serviceAccountToken"],
                path,
                &format!("{own}.serviceAccountToken"),
                errors,
            );
        }
        if found > 1 {
            errors.forbidden(&own, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(token: &Value, volume: &str, path: &str, errors: &mut Errors) {
    let seconds = &token["expirationSeconds"];
    let detail = match integer(seconds) {
        ..600 => "may not specify a duration less than 10 minutes",
        4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
        _ => "",
    };
    if !detail.is_empty() {
        errors.invalid(&format!("{path}.expirationSeconds"), seconds, detail);
    }
    // Upstream takes the volume's place for the token's.
    errors.need(token, volume, &["path"]);
    errors.unreserved(&format!("{volume}.path"), text(token, "path"));
}

/// `unknown`: what is said of a name of no known kind.
fn iscsi(source: &Value, path: &str, unknown: &str, errors: &mut Errors) {
    errors.need(source, path, &["iqn"]);
    let is_known = |name: &str| ["iqn", "eui", "naa"].iter().any(|kind| name.starts_with(kind));
    let is_good = |name: &str| match name.get(..3) {
        Some("iqn") => IQN.is_match(name),
        Some("eui") => EUI.is_match(name),
        Some("naa") => NAA.is_match(name),
        _ => true,
    };
    let mut name = |path: String, name: &str| {
        if !is_known(name) {
            errors.bad(&path, name, unknown);
        } else if !is_good(name) {
            errors.bad(&path, name, "must be valid format");
        }
    };
    if !text(source, "iqn").is_empty() {
        name(format!("{path}.iqn"), text(source, "iqn"));
    }
    errors.range(source, path, "lun", (0, 255));
    let asks = is_true(source, "chapAuthDiscovery") || is_true(source, "chapAuthSession");
    if asks && !has(source, "secretRef") {
        errors.required(&format!("{path}.secretRef"), "");
    }
    if has(source, "initiatorName") {
        let (path, initiator) = (format!("{path}.initiatorname"), text(source, "initiatorName"));
        if !is_known(initiator) {
            errors.bad(&path, initiator, unknown);
        } else if !is_good(initiator) {
            errors.bad(&path, initiator, "must be valid format");
        }
    }
}

fn flocker(source: &Value, path: &str, errors: &mut Errors) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => errors.bad(
            path,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        ),
        _ => {}
    }
    if name.contains('/') {
        errors.bad(&format!("{path}.datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(source: &Value, path: &str, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.required(&format!("{path}.registry"), PAIRS);
    } else if text(source, "tenant").len() >= 65 {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&format!("{path}.tenant"), why);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.bad(&format!("{path}.registry"), registry, PAIRS);
        }
    }
    errors.need(source, path, &["volume"]);
}

/// As Go's `net.SplitHostPort` reads it.
fn is_host_and_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').is_some_and(|(host, port)| {
            !host.contains('[') && port.starts_with(':') && !port[1..].contains([':', '[', ']'])
        }),
        None => text.matches(':').count() == 1 && !text.contains(['[', ']']),
    }
}

fn fibre_channel(source: &Value, path: &str, errors: &mut Errors) {
    let has_items = |name: &str| items(source, name).next().is_some();
    let names = format!("{path}.targetWWNs");
    match (has_items("targetWWNs"), has_items("wwids")) {
        (false, false) => errors.required(&names, "must specify either targetWWNs or wwids, but not both"),
        (true, true) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&names, &source["targetWWNs"], why);
        }
        _ => {}
    }
    if has_items("targetWWNs") {
        if has(source, "lun") {
            errors.range(source, path, "lun", (0, 255));
        } else {
            errors.required(
                &format!("{path}.lun"),
                "lun is required if targetWWNs is specified",
            );
        }
    }
}

fn azure_disk(source: &Value, path: &str, errors: &mut Errors) {
    errors.known(source, path, "cachingMode", &["None", "ReadOnly", "ReadWrite"]);
    errors.known(source, path, "kind", &["Dedicated", "Managed", "Shared"]);
    let (prefix, shown) = if text(source, "kind") == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        )
    };
    let uri = text(source, "diskURI");
    if !uri.starts_with(prefix) {
        errors.not_supported(&format!("{path}.diskURI"), &json!(uri), &[shown]);
    }
}

fn csi(source: &Value, path: &str, errors: &mut Errors) {
    let driver = text(source, "driver");
    if driver.len() > 63 {
        errors.too_long(&format!("{path}.driver"), 63);
    }
    if !driver.is_empty() {
        errors.invalid_text(
            &format!("{path}.driver"),
            driver,
            names::dns_subdomain(&driver.to_lowercase()),
        );
    }
    if has(source, "nodePublishSecretRef") {
        let name = text(&source["nodePublishSecretRef"], "name");
        if name.is_empty() {
            errors.required(&format!("{path}.nodePublishSecretRef.name"), "");
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_subdomain(name));
        }
    }
}

/// A claim that is made with the pod.
fn claim_template(template: &Value, path: &str, errors: &mut Errors) {
    let metadata = &template["metadata"];
    meta::annotations(
        &metadata["annotations"],
        &format!("{path}.metadata.annotations"),
        errors,
    );
    meta::labels(&metadata["labels"], &format!("{path}.metadata.labels"), errors);
    for name in OTHER_METADATA.into_iter().filter(|name| has(metadata, name)) {
        // Upstream lowers the first letter of Go's `UID` alone.
        let shown = if name == "uid" { "uID" } else { name };
        errors.forbidden(&format!("{path}.metadata.{shown}"), "cannot be set");
    }
    claim_spec(&template["spec"], &format!("{path}.spec"), errors);
}

/// The spec of a claim that stands somewhere else than in a claim.
pub(super) fn claim_spec(spec: &Value, path: &str, errors: &mut Errors) {
    let mut own = Errors::default();
    storage::claim(&json!({"spec": spec}), &mut own);
    for mut error in own.list {
        if let Some(rest) = error.field.strip_prefix("spec") {
            error.field = format!("{path}{rest}");
        }
        errors.list.push(error);
    }
}
