//! What Kubernetes accepts and warns of: pods and the kinds with a template.

use super::affinity::{PREFERRED, REQUIRED};
use super::checks::{containers, count, integer, members, quantity};
use super::errors::{has, items, text};
use super::kind_warnings::{self, claim_spec};
use super::pod_security::{SECCOMP, SECCOMP_OF};
use crate::gofmt::go_quote;
use crate::gvk::Gvk;
use crate::names;
use crate::strategy::{APPARMOR_OF, apparmor_profile};
use serde_json::{Value, json};
use std::net::IpAddr;

const USE_SECCOMP: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const USE_APPARMOR: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
const MATCHES_NONE: &str = "a null labelSelector results in matching no pod";

/// Labels of nodes that went out of use.
const OLD_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
    ),
    (
        "beta.kubernetes.io/os",
        r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        r#"use "node-role.kubernetes.io/control-plane" instead"#,
    ),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

/// Sources of volumes that went out of use: the member, its name in the warning, the warning.
pub(super) const OLD_VOLUMES: [(&str, &str, &str); 7] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
];
/// The same, of which upstream warns after those of claims.
pub(super) const LATER_OLD_VOLUMES: [(&str, &str); 2] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings of a create, in upstream's order.
pub(super) fn create(gvk: &Gvk, object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let name = text(&object["metadata"], "name");
    let wrong = names::dns_label(name).join(" ");
    let host_name = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => "the Pod's hostname",
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet")
        | ("batch", "Job" | "CronJob") => "Pod names and hostnames",
        _ => "",
    };
    if !host_name.is_empty() && !wrong.is_empty() {
        all.push(format!(
            "metadata.name: this is used in {host_name}, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"
        ));
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod(object, "", &mut all),
        ("", "PodTemplate") => pod(&object["template"], "template", &mut all),
        ("", "ReplicationController") | ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            pod(&object["spec"]["template"], "spec.template", &mut all);
        }
        ("apps", "StatefulSet") => {
            pod(&object["spec"]["template"], "spec.template", &mut all);
            stateful_set(object, "", &mut all);
        }
        _ => kind_warnings::write(gvk, None, object, &mut all),
    }
    all
}

/// Warnings of an update.
pub(super) fn update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let changed = old["metadata"]["generation"] != new["metadata"]["generation"];
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "PodTemplate") if changed => pod(&new["template"], "template", &mut all),
        // Upstream looks at the old template here.
        ("", "ReplicationController") if changed => pod(&old["spec"]["template"], "spec.template", &mut all),
        ("apps", "Deployment" | "ReplicaSet") if changed => {
            pod(&new["spec"]["template"], "spec.template", &mut all);
        }
        ("apps", "DaemonSet") if old["spec"]["template"] != new["spec"]["template"] => {
            pod(&new["spec"]["template"], "spec.template", &mut all);
        }
        ("apps", "StatefulSet") => {
            if changed {
                pod(&new["spec"]["template"], "spec.template", &mut all);
            }
            stateful_set(new, ".Spec", &mut all);
        }
        _ => kind_warnings::write(gvk, Some(old), new, &mut all),
    }
    all
}

/// Warnings of an update of the status.
pub(super) fn status(gvk: &Gvk, new: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if gvk.group.is_empty() && gvk.kind == "Pod" {
        for list in ["podIPs", "hostIPs"] {
            for (index, one) in items(&new["status"], list) {
                address(&format!("status.{list}[{index}].ip"), text(one, "ip"), &mut all);
            }
        }
    } else {
        kind_warnings::status(gvk, new, &mut all);
    }
    all
}

/// Warnings of a new pod before its profiles move from annotations to fields.
pub(super) fn before_create(gvk: &Gvk, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    if !gvk.group.is_empty() || gvk.kind != "Pod" || text(&spec["os"], "name") == "windows" {
        return Vec::new();
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    let mut all = Vec::new();
    for (_, container) in containers(spec, "") {
        let key = format!("{APPARMOR_OF}{}", text(container, "name"));
        let annotation = object["metadata"]["annotations"][&key].as_str();
        if let Some(annotation) = annotation
            && !has(&container["securityContext"], "appArmorProfile")
            && apparmor_profile(annotation).is_none_or(|profile| profile != *of_pod)
        {
            all.push(format!("metadata.annotations[{key}]: {USE_APPARMOR}"));
        }
    }
    all
}

fn stateful_set(object: &Value, place: &str, all: &mut Vec<String>) {
    let spec = &object["spec"];
    for (index, claim) in items(spec, "volumeClaimTemplates") {
        claim_spec(
            &claim["spec"],
            &format!("spec.volumeClaimTemplates[{index}]{place}"),
            all,
        );
    }
    if integer(&spec["revisionHistoryLimit"]) < 0 {
        all.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
    }
}

pub(super) fn whole_bytes(resources: &Value, path: &str, list: &str, name: &str, all: &mut Vec<String>) {
    if let Some(amount) = quantity(&resources[list][name]).filter(|amount| amount.milli() % 1000 != 0) {
        let place = if list.is_empty() {
            path.to_owned()
        } else {
            format!("{path}.{list}")
        };
        all.push(format!(
            "{place}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"
        ));
    }
}

/// A pod at the top, or a template at `path`.
pub(super) fn pod(object: &Value, path: &str, all: &mut Vec<String>) {
    if !object.is_object() {
        return;
    }
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let at = |place: &str| {
        if path.is_empty() {
            place.to_owned()
        } else {
            format!("{path}.{place}")
        }
    };
    let own = at("spec");
    nodes(spec, &own, all);
    for (key, message) in OLD_ANNOTATIONS {
        if has(&metadata["annotations"], key) {
            all.push(format!("{}[{key}]: {message}", at("metadata.annotations")));
        }
    }
    volumes(spec, &own, all);
    overlaps(spec, all);
    let mut seen: Vec<&str> = Vec::new();
    for (list, name, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        seen.clear();
        for (index, item) in items(spec, list) {
            let value = text(item, name);
            if seen.contains(&value) {
                all.push(format!(
                    "{own}.{list}[{index}].{name}: duplicate {what} {}",
                    go_quote(value)
                ));
            }
            seen.push(value);
        }
    }
    for (index, _) in items(spec, "imagePullSecrets").filter(|(_, one)| text(one, "name").is_empty()) {
        all.push(format!(
            "{own}.imagePullSecrets[{index}].name: invalid empty name \"\""
        ));
    }
    let overhead = json!({"": spec["overhead"]});
    for name in ["memory", "ephemeral-storage"] {
        whole_bytes(&overhead, &format!("{own}.overhead"), "", name, all);
    }
    if !has(&spec["securityContext"], "seccompProfile") && has(&metadata["annotations"], SECCOMP) {
        all.push(format!(
            "{}[{SECCOMP}]: {USE_SECCOMP}",
            at("metadata.annotations")
        ));
    }
    for (place, container) in containers(spec, &own) {
        annotated(metadata, spec, container, path, all);
        for name in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                whole_bytes(
                    &container["resources"],
                    &format!("{place}.resources"),
                    list,
                    name,
                    all,
                );
            }
        }
        hidden_variables(container, &place, all);
    }
    ports(spec, &own, all);
    if integer(&spec["terminationGracePeriodSeconds"]) < 0 {
        all.push(format!(
            "{own}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (terms, place) = (&spec["affinity"][kind], format!("{own}.affinity.{kind}"));
        for (list, inner) in [(REQUIRED, ""), (PREFERRED, ".podAffinityTerm")] {
            for (index, term) in items(terms, list) {
                let term = if inner.is_empty() {
                    term
                } else {
                    &term["podAffinityTerm"]
                };
                if !has(term, "labelSelector") {
                    all.push(format!(
                        "{place}.{list}[{index}]{inner}.labelSelector: {MATCHES_NONE}"
                    ));
                }
            }
        }
    }
    for (index, server) in items(&spec["dnsConfig"], "nameservers") {
        let server = server.as_str().unwrap_or_default();
        address(&format!("{own}.dnsConfig.nameservers[{index}]"), server, all);
    }
    for (index, alias) in items(spec, "hostAliases") {
        address(&format!("{own}.hostAliases[{index}].ip"), text(alias, "ip"), all);
    }
}

pub(super) fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS
        .iter()
        .find(|(old, _)| *old == key)
        .map(|(_, message)| *message)
}

fn nodes(spec: &Value, path: &str, all: &mut Vec<String>) {
    for (key, _) in members(&spec["nodeSelector"]) {
        all.extend(old_label(key).map(|message| format!("{path}.nodeSelector[{key}]: {message}")));
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let place = format!("{path}.affinity.nodeAffinity");
    for (index, term) in items(&affinity[REQUIRED], "nodeSelectorTerms") {
        node_term(
            term,
            false,
            &format!("{place}.{REQUIRED}.nodeSelectorTerms[{index}]"),
            all,
        );
    }
    for (index, term) in items(affinity, PREFERRED) {
        node_term(
            &term["preference"],
            true,
            &format!("{place}.{PREFERRED}[{index}].preference"),
            all,
        );
    }
    for (index, one) in items(spec, "topologySpreadConstraints") {
        let (place, key) = (
            format!("{path}.topologySpreadConstraints[{index}]"),
            text(one, "topologyKey"),
        );
        all.extend(old_label(key).map(|message| format!("{place}.topologyKey: {key} is {message}")));
        if !has(one, "labelSelector") {
            all.push(format!("{place}.labelSelector: {MATCHES_NONE}"));
        }
    }
}

pub(super) fn node_term(term: &Value, with_values: bool, path: &str, all: &mut Vec<String>) {
    for (index, one) in items(term, "matchExpressions") {
        let (place, key) = (format!("{path}.matchExpressions[{index}]"), text(one, "key"));
        all.extend(old_label(key).map(|message| format!("{place}.key: {key} is {message}")));
        for (number, value) in items(one, "values").filter(|_| with_values) {
            let value = value.as_str().unwrap_or_default();
            for wrong in names::label_value(value) {
                all.push(format!("{place}.values[{number}]: {value} is invalid, {wrong}"));
            }
        }
    }
}

fn volumes(spec: &Value, path: &str, all: &mut Vec<String>) {
    for (index, volume) in items(spec, "volumes") {
        let place = format!("{path}.volumes[{index}]");
        for (_, shown, message) in OLD_VOLUMES.iter().filter(|(kind, ..)| has(volume, kind)) {
            all.push(format!("{place}.{shown}: {message}"));
        }
        let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
        claim_spec(claim, &format!("{place}.ephemeral.volumeClaimTemplate.spec"), all);
        for (kind, message) in LATER_OLD_VOLUMES.iter().filter(|(kind, _)| has(volume, kind)) {
            all.push(format!("{place}.{kind}: {message}"));
        }
    }
}

/// A path in a volume, and where it comes from.
type Place = (String, String);

fn shown((path, source): &Place) -> String {
    if source.is_empty() {
        go_quote(path)
    } else {
        format!("{} ({source})", go_quote(path))
    }
}

/// Files of one volume that hide each other.
fn overlaps(spec: &Value, all: &mut Vec<String>) {
    for (_, volume) in items(spec, "volumes") {
        let name = go_quote(text(volume, "name"));
        for (kind, title, key) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let source = &volume[kind];
            let title = titled(title, source, key);
            let mut seen = Vec::new();
            for (_, item) in items(source, "items") {
                clash(
                    &mut seen,
                    (text(item, "path").to_owned(), String::new()),
                    &name,
                    &title,
                    all,
                );
            }
        }
        let mut seen = Vec::new();
        for (_, source) in items(&volume["projected"], "sources") {
            if members(source).all(|(_, value)| value.is_null()) {
                all.push(format!("volume {name} (Projected) has no sources provided"));
                continue;
            }
            for place in projected(source) {
                clash(&mut seen, place, &name, "Projected", all);
            }
        }
    }
}

fn titled(title: &str, source: &Value, key: &str) -> String {
    if key.is_empty() {
        title.to_owned()
    } else {
        format!("{title} {}", go_quote(text(source, key)))
    }
}

/// The files of the first source that names some.
fn projected(source: &Value) -> Vec<Place> {
    for (kind, title, key) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "name"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        if count(&source[kind], "items") > 0 {
            let title = titled(title, &source[kind], key);
            let places = items(&source[kind], "items");
            return places
                .map(|(_, item)| (text(item, "path").to_owned(), title.clone()))
                .collect();
        }
    }
    if has(source, "serviceAccountToken") {
        let path = text(&source["serviceAccountToken"], "path");
        return vec![(path.to_owned(), "ServiceAccountToken".to_owned())];
    }
    Vec::new()
}

fn clash(seen: &mut Vec<Place>, (path, source): Place, volume: &str, title: &str, all: &mut Vec<String>) {
    let place = (path.trim_end_matches('/').to_owned(), source);
    let below = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
    let clashing =
        |other: &&Place| !other.0.is_empty() && (below(&other.0, &place.0) || below(&place.0, &other.0));
    if !place.0.is_empty() {
        for other in seen.iter().filter(clashing) {
            let (place, other) = (shown(&place), shown(other));
            all.push(format!(
                "volume {volume} ({title}): overlapping paths: {place} with {other}"
            ));
        }
    }
    seen.push(place);
}

/// Annotations that fields took the place of.
fn annotated(metadata: &Value, spec: &Value, container: &Value, path: &str, all: &mut Vec<String>) {
    let (name, context) = (text(container, "name"), &container["securityContext"]);
    let annotations = &metadata["annotations"];
    let place = if path.is_empty() {
        "metadata.annotations".to_owned()
    } else {
        format!("{path}.metadata.annotations")
    };
    let key = format!("{SECCOMP_OF}{name}");
    if !has(context, "seccompProfile") && has(annotations, &key) {
        all.push(format!("{place}[{key}]: {USE_SECCOMP}"));
    }
    let key = format!("{APPARMOR_OF}{name}");
    if !path.is_empty()
        && !has(context, "appArmorProfile")
        && let Some(annotation) = annotations[&key].as_str()
        && apparmor_profile(annotation)
            .is_none_or(|profile| spec["securityContext"]["appArmorProfile"] != profile)
    {
        all.push(format!("{place}[{key}]: {USE_APPARMOR}"));
    }
}

fn hidden_variables(container: &Value, path: &str, all: &mut Vec<String>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, variable) in items(container, "env") {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if !seen.contains(&name) {
            seen.push(name);
            continue;
        }
        let reference = format!("$({name})");
        if has(variable, "valueFrom") || value == reference || !value.contains(&reference) {
            let name = go_quote(name);
            all.push(format!(
                "{path}.env[{index}]: hides previous definition of {name}, which may be dropped when using apply"
            ));
        }
    }
}

fn ports(spec: &Value, path: &str, all: &mut Vec<String>) {
    let listed = || {
        containers(spec, path).flat_map(|(path, container)| {
            items(container, "ports").map(move |(index, port)| (format!("{path}.ports[{index}]"), port))
        })
    };
    let mut seen: Vec<(String, &Value)> = Vec::new();
    for (place, port) in listed() {
        let (ip, host) = (text(port, "hostIP"), integer(&port["hostPort"]));
        if !ip.is_empty() && host == 0 {
            all.push(format!(
                "{place}: hostIP set without hostPort: {{Name:{} HostPort:{host} ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                text(port, "name"),
                integer(&port["containerPort"]),
                text(port, "protocol"),
            ));
        }
        let same = |other: &Value| {
            integer(&other["containerPort"]) == integer(&port["containerPort"])
                && text(other, "protocol") == text(port, "protocol")
        };
        for (other_place, other) in seen.iter().filter(|(_, other)| same(other)) {
            let (other_ip, other_host) = (text(other, "hostIP"), integer(&other["hostPort"]));
            let what = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            all.push(format!("{place}: {what} port definition with {other_place}"));
        }
        seen.push((place, port));
    }
    let mut named: Vec<(&str, String)> = Vec::new();
    for (place, port) in listed().filter(|(_, port)| !text(port, "name").is_empty()) {
        let name = text(port, "name");
        match named.iter().find(|(other, _)| *other == name) {
            Some((_, other)) => all.push(format!(
                "{place}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                go_quote(name)
            )),
            None => named.push((name, place)),
        }
    }
}

/// An IPv6 address in another form than RFC 5952's.
pub(super) fn address(path: &str, written: &str, all: &mut Vec<String>) {
    if let Ok(address @ IpAddr::V6(_)) = written.parse::<IpAddr>()
        && address.to_string() != written
    {
        all.push(format!(
            "{path}: IPv6 address {} should be in RFC 5952 canonical format (\"{address}\")",
            go_quote(written)
        ));
    }
}
