//! Security contexts, and what one operating system or the other has not.

use super::checks::{containers, is_true, members, pattern};
use super::errors::{Errors, has, items, text};
use crate::names;
use crate::strategy::APPARMOR_OF;
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

const IDS: (i64, i64) = (0, i32::MAX as i64);
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";
const MIRROR: &str = "kubernetes.io/config.mirror";
pub(super) const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_OF: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LOCALHOST: &str = "localhost/";

static SYSCTL_NAME: LazyLock<Regex> = LazyLock::new(|| pattern(SYSCTL));
static NETBIOS: LazyLock<Regex> = LazyLock::new(|| pattern(r#"^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$"#));
static DOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
    pattern(&format!(r"^{label}(?:\.{label})*$"))
});

/// The security context of a container.
pub(super) fn container(container: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    let context = &container["securityContext"];
    let path = format!("{path}.securityContext");
    errors.range(context, &path, "runAsUser", IDS);
    errors.range(context, &path, "runAsGroup", IDS);
    errors.known(context, &path, "procMount", &["Default", "Unmasked"]);
    if text(context, "procMount") == "Unmasked" && spec["hostUsers"] != json!(false) {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&format!("{path}.procMount"), &context["procMount"], why);
    }
    seccomp(context, &path, errors);
    if context["allowPrivilegeEscalation"] == json!(false) {
        if is_true(context, "privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(&path, context, why);
        }
        let added = items(&context["capabilities"], "add");
        for _ in added.filter(|(_, capability)| *capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(&path, context, why);
        }
    }
    windows_options(context, &path, errors);
    apparmor(context, &path, errors);
}

/// What depends on the owner of a pod's spec, and on the spec before an update.
///
/// Upstream lets through more of what older versions stored. This server has no older versions: a rule that
/// holds for new objects holds for all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tolerance {
    /// The old spec says already how volumes are relabelled: then it may say so in any way.
    pub(super) any_relabelling: bool,
}

impl Tolerance {
    /// What the old spec allows, if there is one.
    pub(super) fn of(old: Option<&Value>) -> Self {
        Self {
            any_relabelling: old.is_some_and(|spec| has(&spec["securityContext"], "seLinuxChangePolicy")),
        }
    }
}

/// The security context of a pod.
pub(super) fn pod(spec: &Value, path: &str, tolerance: Tolerance, errors: &mut Errors) {
    let context = &spec["securityContext"];
    let path = format!("{path}.securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.range(context, &path, name, IDS);
    }
    for (index, group) in items(context, "supplementalGroups") {
        let name = format!("supplementalGroups[{index}]");
        errors.range(&json!({name.as_str(): group}), &path, &name, IDS);
    }
    if is_true(spec, "shareProcessNamespace") && is_true(spec, "hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&format!("{path}.shareProcessNamespace"), &json!(true), why);
    }
    sysctls(spec, &format!("{path}.sysctls"), errors);
    errors.known(
        context,
        &path,
        "fsGroupChangePolicy",
        &["Always", "OnRootMismatch"],
    );
    seccomp(context, &path, errors);
    windows_options(context, &path, errors);
    apparmor(context, &path, errors);
    errors.known(context, &path, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    let policies: &[&str] = if tolerance.any_relabelling {
        &["MountOption", "Recursive"]
    } else {
        &["Recursive"]
    };
    errors.known(context, &path, "seLinuxChangePolicy", policies);
}

fn sysctls(spec: &Value, list: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, sysctl) in items(&spec["securityContext"], "sysctls") {
        let (path, name) = (format!("{list}[{index}].name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.required(&path, "");
        } else if name.len() > 253 || !SYSCTL_NAME.is_match(name) {
            let why = format!("must have at most 253 characters and match regex {SYSCTL}");
            errors.bad(&path, name, &why);
        } else if seen.contains(&name) {
            errors.duplicate(&path, &json!(name));
        }
        let namespace = namespace_of(name);
        for (of, host) in [("net", "hostNetwork"), ("ipc", "hostIPC")] {
            if namespace == of && is_true(spec, host) {
                errors.bad(
                    &path,
                    name,
                    &format!("may not be specified when '{host}' is true"),
                );
            }
        }
        seen.push(name);
    }
}

/// The kernel's namespace that a setting belongs to.
fn namespace_of(name: &str) -> &'static str {
    const OF_IPC: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    // A name whose first separator is a slash has dots and slashes the other way round.
    let swapped = name
        .find(['.', '/'])
        .is_some_and(|at| name.as_bytes()[at] == b'/');
    let name: String = if swapped {
        let swap = |c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        };
        name.chars().map(swap).collect()
    } else {
        name.to_owned()
    };
    if name.starts_with("net.") {
        "net"
    } else if OF_IPC.contains(&name.as_str()) || name.starts_with("fs.mqueue.") {
        "ipc"
    } else {
        ""
    }
}

fn seccomp(context: &Value, path: &str, errors: &mut Errors) {
    let profile = &context["seccompProfile"];
    if profile.is_null() {
        return;
    }
    let path = format!("{path}.seccompProfile");
    match text(profile, "type") {
        "" => errors.required(
            &format!("{path}.type"),
            "type is required when seccompProfile is set",
        ),
        _ => errors.known(profile, &path, "type", &PROFILES),
    }
    let local = format!("{path}.localhostProfile");
    match (
        text(profile, "type") == "Localhost",
        has(profile, "localhostProfile"),
    ) {
        (true, false) => errors.required(&local, "must be set when seccomp type is Localhost"),
        (true, true) => errors.descending(&local, text(profile, "localhostProfile")),
        (false, true) => errors.invalid(&local, profile, "can only be set when seccomp type is Localhost"),
        (false, false) => {}
    }
}

fn apparmor(context: &Value, path: &str, errors: &mut Errors) {
    const NEEDS: &str = "must be set when AppArmor type is Localhost";
    let profile = &context["appArmorProfile"];
    if profile.is_null() {
        return;
    }
    let path = format!("{path}.appArmorProfile");
    let local = format!("{path}.localhostProfile");
    let place = text(profile, "localhostProfile");
    match text(profile, "type") {
        "Localhost" if place.trim() != place => {
            errors.bad(&local, place, "must not be padded with whitespace");
        }
        "Localhost" if place.is_empty() => errors.required(&local, NEEDS),
        "Localhost" => {}
        "RuntimeDefault" | "Unconfined" if has(profile, "localhostProfile") => {
            errors.bad_pointer(&local, place, "can only be set when AppArmor type is Localhost");
        }
        "" => errors.required(
            &format!("{path}.type"),
            "type is required when appArmorProfile is set",
        ),
        _ => errors.known(profile, &path, "type", &PROFILES),
    }
    if text(profile, "type") == "Localhost" && place.len() > 4095 {
        errors.too_long(&local, 4095);
    }
}

fn windows_options(context: &Value, path: &str, errors: &mut Errors) {
    let options = &context["windowsOptions"];
    let path = format!("{path}.windowsOptions");
    if has(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        for wrong in names::dns_subdomain(name) {
            errors.bad_pointer(&format!("{path}.gmsaCredentialSpecName"), name, &wrong);
        }
    }
    if has(options, "gmsaCredentialSpec") {
        let spec = text(options, "gmsaCredentialSpec");
        let path = format!("{path}.gmsaCredentialSpec");
        match spec.len() {
            0 => errors.bad_pointer(&path, spec, "gmsaCredentialSpec cannot be an empty string"),
            1..=65_536 => {}
            _ => errors.bad_pointer(&path, spec, "gmsaCredentialSpec size must be under 64 KiB"),
        }
    }
    if has(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        for wrong in user_name(name) {
            errors.bad_pointer(
                &format!("{path}.runAsUserName"),
                name,
                &format!("runAsUserName{wrong}"),
            );
        }
    }
}

/// What is wrong with the name of a user, as Windows has them.
fn user_name(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec![" cannot be an empty string"];
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return vec![" cannot contain control characters"];
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => return vec![" cannot contain more than one backslash"],
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut wrong = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            wrong.push("'s Domain length must be under 256 characters");
        }
        if !NETBIOS.is_match(domain) && !DOMAIN.is_match(domain) {
            wrong.push("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    match user.len() {
        0 => wrong.push("'s User cannot be empty"),
        1..=104 => {}
        _ => wrong.push("'s User length must not be longer than 104 characters"),
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        wrong.push("'s User cannot contain only periods or spaces");
    }
    if user.contains([
        '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
    ]) {
        wrong.push(r#"'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
    wrong
}

/// Containers that are processes of a Windows host: all of a pod, or none.
pub(super) fn host_processes(spec: &Value, path: &str, errors: &mut Errors) {
    let host_process = |owner: &Value| owner["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let of_pod = host_process(spec);
    let (mut all, mut on_host) = (0, 0);
    for (path, container) in containers(spec, path) {
        let own = host_process(container);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let why = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let path = format!("{path}.securityContext.windowsOptions.hostProcess");
            errors.invalid(&path, &json!(own), &why);
        }
        all += 1;
        on_host += usize::from(own.or(of_pod) == Some(true));
    }
    if on_host > 0 && on_host != all {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.bad(path, "", why);
    }
    if on_host > 0 && !is_true(spec, "hostNetwork") {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&format!("{path}.hostNetwork"), &json!(false), why);
    }
}

/// What a pod with users of its own does not share with its host.
pub(super) fn host_users(spec: &Value, path: &str, errors: &mut Errors) {
    const WHY: &str = "when `hostUsers` is false";
    if spec["hostUsers"] != json!(false) {
        return;
    }
    for (name, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if is_true(spec, name) {
            errors.forbidden(&format!("{path}.{shown}"), WHY);
        }
    }
    for (path, container) in containers(spec, path) {
        if items(container, "volumeDevices").next().is_some() {
            errors.forbidden(&format!("{path}.volumeDevices"), WHY);
        }
    }
}

/// What the operating system that a pod names has not.
pub(super) fn system(spec: &Value, path: &str, errors: &mut Errors) {
    const POD: [&str; 15] = [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "securityContext.seccompProfile",
        "securityContext.fsGroup",
        "securityContext.fsGroupChangePolicy",
        "securityContext.sysctls",
        "shareProcessNamespace",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
        "securityContext.supplementalGroups",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    if !has(spec, "os") {
        return;
    }
    let (of_pod, of_container, why): (&[&str], &[&str], &str) = match text(&spec["os"], "name") {
        "" => return errors.required(&format!("{path}.os.name"), ""),
        "linux" => (
            &["securityContext.windowsOptions"],
            &["windowsOptions"],
            NOT_ON_LINUX,
        ),
        "windows" => (&POD, &CONTAINER, NOT_ON_WINDOWS),
        other => return errors.not_supported(&format!("{path}.os"), &json!(other), &["linux", "windows"]),
    };
    for place in of_pod {
        let (owner, name) = match place.split_once('.') {
            Some((owner, name)) => (&spec[owner], name),
            None => (spec, *place),
        };
        if has(owner, name) {
            errors.forbidden(&format!("{path}.{place}"), why);
        }
    }
    for (path, container) in containers(spec, path) {
        for name in of_container {
            if has(&container["securityContext"], name) {
                errors.forbidden(&format!("{path}.securityContext.{name}"), why);
            }
        }
    }
}

/// Whether a pod mirrors one that its kubelet has from elsewhere.
pub(super) fn is_mirror(metadata: &Value) -> bool {
    has(&metadata["annotations"], MIRROR)
}

/// Annotations of a pod that say something to Kubernetes itself.
pub(super) fn annotations(metadata: &Value, spec: &Value, path: &str, errors: &mut Errors) {
    let annotations = &metadata["annotations"];
    if is_mirror(metadata) && text(spec, "nodeName").is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.bad(&format!("{path}[{MIRROR}]"), text(annotations, MIRROR), why);
    }
    super::affinity::annotated_tolerations(annotations, path, errors);
    if let Some(cost) = annotations[DELETION_COST].as_str() {
        let first = cost.bytes().next().unwrap_or_default();
        let starts = first == b'-' || cost == "0" || (b'1'..=b'9').contains(&first);
        if !starts || cost.parse::<i32>().is_err() {
            errors.bad(
                &format!("{path}[{DELETION_COST}]"),
                cost,
                "must be a 32bit integer",
            );
        }
    }
    let of_pod = annotations.get(SECCOMP).map(|value| (SECCOMP, value));
    let others = members(annotations).map(|(key, value)| (key.as_str(), value));
    for (key, value) in of_pod
        .into_iter()
        .chain(others.filter(|(key, _)| key.starts_with(SECCOMP_OF)))
    {
        let (path, value) = (format!("{path}.{key}"), value.as_str().unwrap_or_default());
        match value.strip_prefix(LOCALHOST) {
            Some(place) => errors.descending(&path, place),
            None if ["runtime/default", "docker/default", "unconfined"].contains(&value) => {}
            None => errors.bad(&path, value, "must be a valid seccomp profile"),
        }
    }
    for (key, value) in members(annotations) {
        let Some(name) = key.strip_prefix(APPARMOR_OF) else {
            continue;
        };
        let (path, value) = (format!("{path}[{key}]"), value.as_str().unwrap_or_default());
        if !containers(spec, "").any(|(_, container)| text(container, "name") == name) {
            errors.bad(&path, name, "container not found");
        }
        if !["", "runtime/default", "unconfined"].contains(&value) && !value.starts_with(LOCALHOST) {
            errors.bad(&path, value, &format!("invalid AppArmor profile name: {value:?}"));
        }
    }
}

/// Profiles in annotations and in fields, where there are both, are the same.
pub(super) fn profiles_agree(metadata: &Value, spec: &Value, path: &str, errors: &mut Errors) {
    let annotations = &metadata["annotations"];
    let places = std::iter::once((path.to_owned(), spec, SECCOMP.to_owned()));
    let places = places.chain(containers(spec, path).map(|(path, container)| {
        let key = format!("{SECCOMP_OF}{}", text(container, "name"));
        (path, container, key)
    }));
    for (path, owner, key) in places {
        let profile = &owner["securityContext"]["seccompProfile"];
        let known = ["runtime/default", "docker/default"];
        let path = format!("{path}.securityContext.seccompProfile");
        agrees(annotations, &key, profile, &known, &path, "seccomp", errors);
    }
    if text(&spec["os"], "name") == "windows" {
        return;
    }
    for (path, container) in containers(spec, path) {
        let own = &container["securityContext"]["appArmorProfile"];
        let profile = if own.is_null() {
            &spec["securityContext"]["appArmorProfile"]
        } else {
            own
        };
        let key = format!("{APPARMOR_OF}{}", text(container, "name"));
        let path = format!("{path}.securityContext.appArmorProfile");
        agrees(
            annotations,
            &key,
            profile,
            &["runtime/default"],
            &path,
            "apparmor",
            errors,
        );
    }
}

fn agrees(
    annotations: &Value,
    key: &str,
    profile: &Value,
    defaults: &[&str],
    path: &str,
    what: &str,
    errors: &mut Errors,
) {
    let Some(annotation) = annotations[key].as_str() else {
        return;
    };
    let same_type = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => defaults.contains(&annotation),
        "Localhost" => annotation.starts_with(LOCALHOST),
        _ => return,
    };
    if !same_type {
        let why = format!("{what} type in annotation and field must match");
        errors.forbidden(&format!("{path}.type"), &why);
    } else if text(profile, "type") == "Localhost"
        && annotation.strip_prefix(LOCALHOST) != profile["localhostProfile"].as_str()
    {
        let why = format!("{what} profile in annotation and field must match");
        errors.forbidden(&format!("{path}.localhostProfile"), &why);
    }
}

/// Annotations that an update keeps.
pub(super) fn annotations_stay(old: &Value, new: &Value, errors: &mut Errors) {
    let path = "metadata.annotations";
    let (old, new) = (&old["annotations"], &new["annotations"]);
    let is_kept = |key: &str| key.starts_with(APPARMOR_OF) || key == MIRROR;
    let what = |key: &str, verb: &str| match key {
        MIRROR => format!("may not {verb} mirror pod annotation"),
        _ => format!("may not {verb} AppArmor annotations"),
    };
    for (key, value) in members(old).filter(|(key, _)| is_kept(key)) {
        if new[key] != *value {
            errors.forbidden(&format!("{path}[{key}]"), &what(key, "remove or update"));
        }
    }
    for (key, _) in members(new).filter(|(key, _)| is_kept(key) && old.get(key.as_str()).is_none()) {
        errors.forbidden(&format!("{path}[{key}]"), &what(key, "add"));
    }
}
