//! Columns and cells of the kinds that need little logic.

use super::cells::{NONE, access_modes, int, items, joined, labels, or, size, text, three};
use super::{age, human_duration};
use crate::gvk::Gvk;
use crate::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Columns as words: `_` is a blank; after the colon `1` is the wide priority, `i`, `b`, `d` the types integer, boolean, date.
pub(super) fn columns(gvk: &Gvk) -> &'static str {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => "Name Ready Status Restarts Age IP:1 Node:1 Nominated_Node:1 Readiness_Gates:1",
        ("", "Node") => {
            "Name Status Roles Age Version Internal-IP:1 External-IP:1 OS-Image:1 Kernel-Version:1 Container-Runtime:1"
        }
        ("", "Service") => "Name Type Cluster-IP External-IP Port(s) Age Selector:1",
        ("", "Endpoints") => "Name Endpoints Age",
        ("discovery.k8s.io", "EndpointSlice") => "Name AddressType Ports Endpoints Age",
        ("", "ReplicationController") | ("apps", "ReplicaSet") => {
            "Name Desired:i Current:i Ready:i Age Containers:1 Images:1 Selector:1"
        }
        ("apps", "Deployment") => "Name Ready Up-to-date Available Age Containers:1 Images:1 Selector:1",
        ("apps", "StatefulSet") => "Name Ready Age Containers:1 Images:1",
        ("apps", "DaemonSet") => {
            "Name Desired:i Current:i Ready:i Up-to-date:i Available:i Node_Selector Age Containers:1 Images:1 Selector:1"
        }
        ("apps", "ControllerRevision") => "Name Controller Revision Age",
        ("batch", "Job") => "Name Status Completions Duration Age Containers:1 Images:1 Selector:1",
        ("batch", "CronJob") => {
            "Name Schedule Timezone Suspend:b Active:i Last_Schedule Age Containers:1 Images:1 Selector:1"
        }
        ("", "ConfigMap") => "Name Data Age",
        ("", "Secret") => "Name Type Data Age",
        ("", "Namespace") => "Name Status Age",
        ("", "ServiceAccount") => "Name Secrets Age",
        ("", "Event") | ("events.k8s.io", "Event") => {
            "Last_Seen Type Reason Object Subobject:1 Source:1 Message First_Seen:1 Count:1 Name:1"
        }
        ("", "PersistentVolume") => {
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode:1"
        }
        ("", "PersistentVolumeClaim") => {
            "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode:1"
        }
        ("storage.k8s.io", "StorageClass") => {
            "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"
        }
        ("storage.k8s.io", "VolumeAttachment") => "Name Attacher PV Node Attached Age",
        ("storage.k8s.io", "CSINode") => "Name Drivers:i Age",
        ("policy", "PodDisruptionBudget") => "Name Min_Available Max_Unavailable Allowed_Disruptions:i Age",
        ("coordination.k8s.io", "Lease") => "Name Holder Age",
        ("coordination.k8s.io", "LeaseCandidate") => "Name LeaseName BinaryVersion EmulationVersion Age",
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            "Name Role Age Users:1 Groups:1 ServiceAccounts:1"
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => "Name Webhooks:i Age",
        ("scheduling.k8s.io", "PriorityClass") => "Name Value:i Global-Default:b Age PreemptionPolicy",
        ("node.k8s.io", "RuntimeClass") => "Name Handler Age",
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            "Name Age SignerName Requestor RequestedDuration Condition"
        }
        ("networking.k8s.io", "IngressClass") => "Name Controller Parameters Age",
        ("networking.k8s.io", "NetworkPolicy") => "Name Pod-Selector Age",
        ("networking.k8s.io", "Ingress") => "Name Class Hosts Address Ports Age",
        ("metrics.k8s.io", _) => "Name cpu memory Window",
        _ => "Name Created_At:d",
    }
}

/// One value per column.
pub(super) fn cells(gvk: &Gvk, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let old = json!(age(&object["metadata"]["creationTimestamp"], now));
    let spec = &object["spec"];
    let status = &object["status"];
    let template = |pointer: &str| {
        let containers = items(spec, pointer);
        (
            json!(joined(containers, "/name")),
            json!(joined(containers, "/image")),
        )
    };
    let (containers, images) = template("/template/spec/containers");
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Service") => {
            let cluster_ip = or(text(spec, "/clusterIP"), NONE);
            vec![
                name,
                spec["type"].clone(),
                json!(cluster_ip),
                json!(external_ip(object)),
                json!(service_ports(spec)),
                old,
                json!(labels(&spec["selector"])),
            ]
        }
        ("", "Endpoints") => vec![name, json!(endpoints(object)), old],
        ("certificates.k8s.io", "CertificateSigningRequest") => vec![
            name,
            old,
            json!(or(text(spec, "/signerName"), NONE)),
            json!(text(spec, "/username")),
            json!(match spec["expirationSeconds"].as_i64() {
                Some(seconds) => human_duration(seconds),
                None => NONE.to_owned(),
            }),
            json!(signing_status(status)),
        ],
        ("discovery.k8s.io", "EndpointSlice") => vec![
            name,
            object["addressType"].clone(),
            json!(slice_ports(object)),
            json!(slice_addresses(object)),
            old,
        ],
        ("", "ReplicationController") => {
            let [desired, current, ready] = replicas(object);
            vec![
                name,
                desired,
                current,
                ready,
                old,
                containers,
                images,
                json!(labels(&spec["selector"])),
            ]
        }
        ("apps", "ReplicaSet") => {
            let [desired, current, ready] = replicas(object);
            vec![
                name,
                desired,
                current,
                ready,
                old,
                containers,
                images,
                selector(spec),
            ]
        }
        ("apps", "Deployment") => vec![
            name,
            json!(format!(
                "{}/{}",
                int(status, "/readyReplicas"),
                int(spec, "/replicas")
            )),
            json!(int(status, "/updatedReplicas")),
            json!(int(status, "/availableReplicas")),
            old,
            containers,
            images,
            selector(spec),
        ],
        ("apps", "StatefulSet") => vec![
            name,
            json!(format!(
                "{}/{}",
                int(status, "/readyReplicas"),
                int(spec, "/replicas")
            )),
            old,
            containers,
            images,
        ],
        ("apps", "DaemonSet") => {
            let mut cells = vec![name];
            for counter in [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ] {
                cells.push(json!(status[counter].as_i64().unwrap_or(0)));
            }
            cells.extend([
                json!(labels(&spec["template"]["spec"]["nodeSelector"])),
                old,
                containers,
                images,
                selector(spec),
            ]);
            cells
        }
        ("apps", "ControllerRevision") => {
            let owner = items(object, "/metadata/ownerReferences")
                .iter()
                .find(|one| one["controller"] == json!(true));
            let owner = owner.map_or_else(
                || NONE.to_owned(),
                |one| controlled_by(text(one, "/apiVersion"), text(one, "/kind"), text(one, "/name")),
            );
            vec![name, json!(owner), object["revision"].clone(), old]
        }
        ("batch", "Job") => vec![
            name,
            json!(job_status(object)),
            json!(completions(object)),
            json!(job_duration(status, now)),
            old,
            containers,
            images,
            selector(spec),
        ],
        ("batch", "CronJob") => {
            let (containers, images) = template("/jobTemplate/spec/template/spec/containers");
            let last = match &status["lastScheduleTime"] {
                Value::Null => NONE.to_owned(),
                time => age(time, now),
            };
            vec![
                name,
                spec["schedule"].clone(),
                json!(or(text(spec, "/timeZone"), NONE)),
                json!(spec["suspend"] == json!(true)),
                json!(size(status, "/active")),
                json!(last),
                old,
                containers,
                images,
                selector(&spec["jobTemplate"]["spec"]),
            ]
        }
        ("", "ConfigMap") => vec![
            name,
            json!(size(object, "/data") + size(object, "/binaryData")),
            old,
        ],
        ("", "Secret") => vec![name, object["type"].clone(), json!(size(object, "/data")), old],
        ("", "Namespace") => vec![name, json!(text(status, "/phase")), old],
        ("", "ServiceAccount") => vec![name, json!(size(object, "/secrets")), old],
        ("", "Event") => event(object, "involvedObject", now),
        ("events.k8s.io", "Event") => event(object, "regarding", now),
        ("", "PersistentVolume") => vec![
            name,
            json!(text(spec, "/capacity/storage")),
            json!(access_modes(items(spec, "/accessModes"))),
            json!(text(spec, "/persistentVolumeReclaimPolicy")),
            json!(if deleting(object) {
                "Terminating"
            } else {
                text(status, "/phase")
            }),
            json!(match &spec["claimRef"] {
                Value::Object(_) => format!(
                    "{}/{}",
                    text(spec, "/claimRef/namespace"),
                    text(spec, "/claimRef/name")
                ),
                _ => String::new(),
            }),
            json!(storage_class(object)),
            json!(or(text(spec, "/volumeAttributesClassName"), "<unset>")),
            json!(text(status, "/reason")),
            old,
            json!(or(text(spec, "/volumeMode"), "<unset>")),
        ],
        ("", "PersistentVolumeClaim") => {
            let bound = !text(spec, "/volumeName").is_empty();
            let modes = if bound {
                access_modes(items(status, "/accessModes"))
            } else {
                String::new()
            };
            vec![
                name,
                json!(if deleting(object) {
                    "Terminating"
                } else {
                    text(status, "/phase")
                }),
                json!(text(spec, "/volumeName")),
                json!(if bound {
                    text(status, "/capacity/storage")
                } else {
                    ""
                }),
                json!(modes),
                json!(storage_class(object)),
                json!(or(text(spec, "/volumeAttributesClassName"), "<unset>")),
                old,
                json!(or(text(spec, "/volumeMode"), "<unset>")),
            ]
        }
        ("storage.k8s.io", "StorageClass") => {
            let default = "storageclass.kubernetes.io/is-default-class";
            let shown = if object["metadata"]["annotations"][default] == json!("true") {
                json!(format!("{} (default)", text(object, "/metadata/name")))
            } else {
                name
            };
            vec![
                shown,
                object["provisioner"].clone(),
                json!(or(text(object, "/reclaimPolicy"), "Delete")),
                json!(or(text(object, "/volumeBindingMode"), "<unset>")),
                json!(object["allowVolumeExpansion"] == json!(true)),
                old,
            ]
        }
        ("storage.k8s.io", "VolumeAttachment") => vec![
            name,
            spec["attacher"].clone(),
            json!(text(spec, "/source/persistentVolumeName")),
            spec["nodeName"].clone(),
            json!(status["attached"] == json!(true)),
            old,
        ],
        ("storage.k8s.io", "CSINode") => vec![name, json!(size(spec, "/drivers")), old],
        ("policy", "PodDisruptionBudget") => vec![
            name,
            json!(scalar(&spec["minAvailable"])),
            json!(scalar(&spec["maxUnavailable"])),
            json!(int(status, "/disruptionsAllowed")),
            old,
        ],
        ("coordination.k8s.io", "Lease") => vec![name, json!(text(spec, "/holderIdentity")), old],
        ("coordination.k8s.io", "LeaseCandidate") => vec![
            name,
            json!(text(spec, "/leaseName")),
            json!(text(spec, "/binaryVersion")),
            json!(text(spec, "/emulationVersion")),
            old,
        ],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            let role = format!(
                "{}/{}",
                text(object, "/roleRef/kind"),
                text(object, "/roleRef/name")
            );
            let subjects = |kind: &str| {
                items(object, "/subjects")
                    .iter()
                    .filter(|one| text(one, "/kind") == kind)
                    .map(|one| match kind {
                        "ServiceAccount" => format!("{}/{}", text(one, "/namespace"), text(one, "/name")),
                        _ => text(one, "/name").to_owned(),
                    })
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            vec![
                name,
                json!(role),
                old,
                json!(subjects("User")),
                json!(subjects("Group")),
                json!(subjects("ServiceAccount")),
            ]
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            vec![name, json!(size(object, "/webhooks")), old]
        }
        ("scheduling.k8s.io", "PriorityClass") => vec![
            name,
            json!(int(object, "/value")),
            json!(object["globalDefault"] == json!(true)),
            old,
            object["preemptionPolicy"].clone(),
        ],
        ("node.k8s.io", "RuntimeClass") => vec![name, object["handler"].clone(), old],
        ("networking.k8s.io", "IngressClass") => {
            let parameters = match &spec["parameters"] {
                Value::Object(_) => {
                    let (group, kind) = (text(spec, "/parameters/apiGroup"), text(spec, "/parameters/kind"));
                    let kind = if group.is_empty() {
                        kind.to_owned()
                    } else {
                        format!("{kind}.{group}")
                    };
                    format!("{kind}/{}", text(spec, "/parameters/name"))
                }
                _ => NONE.to_owned(),
            };
            vec![name, json!(text(spec, "/controller")), json!(parameters), old]
        }
        ("networking.k8s.io", "NetworkPolicy") => vec![name, selector_of(&spec["podSelector"]), old],
        ("networking.k8s.io", "Ingress") => {
            let hosts: Vec<String> = items(spec, "/rules")
                .iter()
                .map(|rule| or(text(rule, "/host"), "*").to_owned())
                .collect();
            let addresses: Vec<String> = items(status, "/loadBalancer/ingress")
                .iter()
                .map(|one| or(text(one, "/ip"), text(one, "/hostname")).to_owned())
                .collect();
            vec![
                name,
                json!(or(text(spec, "/ingressClassName"), NONE)),
                json!(three(&hosts, "*")),
                json!(addresses.join(",")),
                json!(if size(spec, "/tls") > 0 { "80, 443" } else { "80" }),
                old,
            ]
        }
        _ => vec![name, object["metadata"]["creationTimestamp"].clone()],
    }
}

fn deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn selector(spec: &Value) -> Value {
    selector_of(&spec["selector"])
}

fn selector_of(selector: &Value) -> Value {
    let text = LabelSelector::from_object(selector)
        .map(|parsed| parsed.to_string())
        .unwrap_or_default();
    json!(or(&text, NONE))
}

fn replicas(object: &Value) -> [Value; 3] {
    ["/spec/replicas", "/status/replicas", "/status/readyReplicas"].map(|pointer| json!(int(object, pointer)))
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn storage_class(object: &Value) -> &str {
    match object["metadata"]["annotations"].get("volume.beta.kubernetes.io/storage-class") {
        Some(class) => class.as_str().unwrap_or_default(),
        None => text(object, "/spec/storageClassName"),
    }
}

fn controlled_by(api_version: &str, kind: &str, name: &str) -> String {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = kind.to_lowercase();
    if group.is_empty() {
        format!("{kind}/{name}")
    } else {
        format!("{kind}.{group}/{name}")
    }
}

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let external: Vec<&str> = items(spec, "/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(spec, "/type") {
        "ExternalName" => text(spec, "/externalName").to_owned(),
        "LoadBalancer" => {
            let mut addresses: Vec<&str> = items(object, "/status/loadBalancer/ingress")
                .iter()
                .map(|one| or(text(one, "/ip"), text(one, "/hostname")))
                .collect();
            addresses.extend(external);
            or(&addresses.join(","), "<pending>").to_owned()
        }
        _ => or(&external.join(","), NONE).to_owned(),
    }
}

fn service_ports(spec: &Value) -> String {
    let ports: Vec<String> = items(spec, "/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
            match int(port, "/nodePort") {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    or(&ports.join(","), NONE).to_owned()
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        let ports = items(subset, "/ports");
        for address in items(subset, "/addresses") {
            let ip = text(address, "/ip");
            let host = if ip.contains(':') {
                format!("[{ip}]")
            } else {
                ip.to_owned()
            };
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{host}:{}", int(port, "/port"))));
        }
    }
    three(&all, NONE)
}

fn slice_ports(object: &Value) -> String {
    let ports: Vec<String> = items(object, "/ports")
        .iter()
        .map(|port| {
            port["port"]
                .as_i64()
                .map_or_else(|| "*".to_owned(), |number| number.to_string())
        })
        .collect();
    three(&ports, "<unset>")
}

fn slice_addresses(object: &Value) -> String {
    let addresses: Vec<String> = items(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    three(&addresses, "<unset>")
}

fn completions(object: &Value) -> String {
    let succeeded = int(object, "/status/succeeded");
    let parallelism = int(object, "/spec/parallelism");
    match object["spec"]["completions"].as_i64() {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn signing_status(status: &Value) -> String {
    let has = |kind: &str| {
        items(status, "/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind)
    };
    let mut shown = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if !text(status, "/certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        items(object, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind && text(one, "/status") == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if deleting(object) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_duration(status: &Value, now: Timestamp) -> String {
    let time = |name: &str| {
        status[name]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now).as_second() - start.as_second()),
    }
}

fn event(object: &Value, regarding: &str, now: Timestamp) -> Vec<Value> {
    let pick = |names: &[&str]| {
        names
            .iter()
            .map(|name| &object[*name])
            .find(|value| value.is_string())
            .cloned()
            .unwrap_or(Value::Null)
    };
    let first = pick(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let last = match &object["series"]["lastObservedTime"] {
        Value::Null => match pick(&["lastTimestamp", "deprecatedLastTimestamp"]) {
            Value::Null => first.clone(),
            time => time,
        },
        time => time.clone(),
    };
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .map(|at| int(object, at))
        .find(|count| *count > 0);
    let target = &object[regarding];
    let reporter = ["/reportingController", "/reportingComponent"]
        .iter()
        .map(|at| text(object, at))
        .find(|t| !t.is_empty());
    let source = ["/source", "/deprecatedSource"]
        .iter()
        .find_map(|at| object.pointer(at))
        .unwrap_or(&Value::Null);
    let component = or(text(source, "/component"), reporter.unwrap_or_default());
    let source = match text(source, "/host") {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    let message = or(text(object, "/message"), text(object, "/note"));
    vec![
        json!(age(&last, now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(format!(
            "{}/{}",
            text(target, "/kind").to_lowercase(),
            text(target, "/name")
        )),
        json!(text(target, "/fieldPath")),
        json!(source),
        json!(message.trim()),
        json!(age(&first, now)),
        json!(count.unwrap_or(1)),
        json!(text(object, "/metadata/name")),
    ]
}
