//! Files of manifests: which pods are in them.

use super::problem::ConvertError;
use super::{ReadFile, pod, strict};
use crate::core::Pod;
use serde_json::{Value, json};
use serde_saphyr::Spanned;
use std::io::Read as _;
use std::path::Path;

/// Pods that a text describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Documents {
    /// At least one, in the order of the text.
    pub workloads: Vec<Workload>,
    /// Objects that make no pods.
    pub skipped: Vec<Skipped>,
}

/// An object that is a pod or makes pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The object's kind, as in `Deployment`.
    pub kind: String,
    /// Empty if it has neither a name nor a `generateName`.
    pub name: String,
    /// `default` if it names none.
    pub namespace: String,
    /// Where it is from, as messages show it: a file name.
    pub origin: String,
    /// Line on which its document starts, from 1.
    pub line: u64,
    /// Pods that it makes, where it says so; 1 for a Pod.
    pub replicas: Option<u32>,
    /// Where the pod stands in the object: empty for a Pod, else `spec.template.` or the like.
    pub prefix: &'static str,
    /// The object's own annotations; null for a Pod.
    pub annotations: Value,
    /// The pod as an API server would see it: `apiVersion`, `kind`, `metadata`, `spec`; without defaults.
    pub pod: Value,
}

/// An object that makes no pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// `apiVersion`, a space, and `kind`.
    pub kind: String,
    /// `metadata.name`, or empty.
    pub name: String,
    /// Line on which its document starts, from 1.
    pub line: u64,
}

/// Why a text yields no pods. Not worth a retry.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum ManifestError {
    /// The file could not be read.
    #[error("cannot read {origin}")]
    Read {
        origin: String,
        #[source]
        source: std::io::Error,
    },
    /// There is more of it than an API server would take.
    #[error("{origin} is larger than {} bytes; split it", Documents::BYTES)]
    TooLarge { origin: String },
    /// It is not YAML or JSON, or not what Kubernetes' objects look like.
    #[error("{origin}:{line}: {reason}")]
    Malformed {
        origin: String,
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// There is no pod in it.
    #[error("{origin} has no pod: {}", found(.skipped))]
    NoPod {
        origin: String,
        /// What it has instead.
        skipped: Vec<Skipped>,
    },
}

fn found(skipped: &[Skipped]) -> String {
    if skipped.is_empty() {
        return "it is empty".to_owned();
    }
    let list: Vec<String> = skipped
        .iter()
        .map(|one| format!("{} {:?} (line {})", one.kind, one.name, one.line))
        .collect();
    format!("it has {}", list.join(", "))
}

impl Documents {
    /// Most that is read of a text, in bytes: what an API server takes as one request.
    pub const BYTES: usize = 3 << 20;

    /// The pods of a file. Blocks.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let origin = path.display().to_string();
        let read = std::fs::File::open(path).and_then(Self::slurp);
        let bytes = read.map_err(|source| ManifestError::Read {
            origin: origin.clone(),
            source,
        })?;
        Self::parse_bytes(&origin, bytes)
    }

    /// All that there is to read, or as much as shows that it is too large. Blocks.
    pub fn slurp(from: impl std::io::Read) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.take(Self::BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// As [`Documents::parse`], of bytes that should be UTF-8.
    pub fn parse_bytes(origin: &str, bytes: Vec<u8>) -> Result<Self, ManifestError> {
        let origin = origin.to_owned();
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&origin, &text),
            Err(error) if error.as_bytes().len() > Self::BYTES => Err(ManifestError::TooLarge { origin }),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = good.split(|byte| *byte == b'\n').count() as u64;
                let reason = "this is not UTF-8".to_owned();
                Err(ManifestError::Malformed { origin, line, reason })
            }
        }
    }

    /// The pods of a text of YAML or JSON documents. `origin` names the text in messages.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ManifestError> {
        if text.len() > Self::BYTES {
            return Err(ManifestError::TooLarge {
                origin: origin.to_owned(),
            });
        }
        let malformed = |(line, reason): (u64, String)| ManifestError::Malformed {
            origin: origin.to_owned(),
            line,
            reason,
        };
        let documents: Vec<Spanned<Value>> = serde_saphyr::from_multiple_with_options(text, options())
            .map_err(|error| malformed(explained(&error)))?;
        let mut found = Self::default();
        for document in documents {
            let line = document.referenced.line().max(1);
            found
                .add(origin, line, document.value, None)
                .map_err(|reason| malformed((line, reason)))?;
        }
        if found.workloads.is_empty() {
            return Err(ManifestError::NoPod {
                origin: origin.to_owned(),
                skipped: found.skipped,
            });
        }
        Ok(found)
    }

    /// Adds an object, or those of a list. `kind` is what the items of a typed list are.
    fn add(
        &mut self,
        origin: &str,
        line: u64,
        mut object: Value,
        kind: Option<(&str, &str)>,
    ) -> Result<(), String> {
        if object.is_null() {
            return Ok(());
        }
        if !object.is_object() {
            return Err("a document must be a mapping with apiVersion, kind, metadata, spec".to_owned());
        }
        let mut head = |name: &str, implied: Option<&str>| match (object[name].as_str(), implied) {
            (Some(text), _) if !text.is_empty() => Ok(text.to_owned()),
            (None, Some(implied)) if object[name].is_null() => {
                object[name] = json!(implied);
                Ok(implied.to_owned())
            }
            _ => Err(format!("{name} is missing, or no text")),
        };
        let api_version = head("apiVersion", kind.map(|kind| kind.0))?;
        let kind = head("kind", kind.map(|kind| kind.1))?;
        if let Some(item) = kind.strip_suffix("List")
            && object["items"].is_array()
        {
            let implied = (!item.is_empty()).then_some((api_version.as_str(), item));
            let Value::Array(items) = object["items"].take() else {
                return Ok(());
            };
            for (index, item) in items.into_iter().enumerate() {
                self.add(origin, line, item, implied)
                    .map_err(|reason| format!("items[{index}]: {reason}"))?;
            }
            return Ok(());
        }
        let metadata = object["metadata"].take();
        let name = ["name", "generateName"]
            .iter()
            .filter_map(|name| metadata[name].as_str())
            .find(|name| !name.is_empty());
        let name = name.unwrap_or_default().trim_end_matches('-').to_owned();
        let Some(prefix) = prefix(&api_version, &kind) else {
            self.skipped.push(Skipped {
                kind: format!("{api_version} {kind}"),
                name,
                line,
            });
            return Ok(());
        };
        let namespace = metadata["namespace"].as_str().filter(|text| !text.is_empty());
        let namespace = namespace.unwrap_or("default").to_owned();
        if let Some(other) = self
            .workloads
            .iter()
            .find(|other| other.kind == kind && other.name == name && other.namespace == namespace)
        {
            return Err(format!(
                "{kind} {namespace}/{name} is there twice; the other one is on line {}",
                other.line
            ));
        }
        let replicas = replicas(&kind, &object["spec"]);
        let annotations = metadata["annotations"].clone();
        let pod = if prefix.is_empty() {
            object["metadata"] = metadata;
            with_name(object, None, &namespace)
        } else {
            let mut template = object;
            for step in prefix.split_terminator('.') {
                template = template.get_mut(step).map(Value::take).unwrap_or_default();
            }
            if !template.is_object() {
                let path = prefix.trim_end_matches('.');
                return Err(format!("{kind} {namespace}/{name}: {path} is missing"));
            }
            template["apiVersion"] = json!("v1");
            template["kind"] = json!("Pod");
            with_name(template, Some(&name), &namespace)
        };
        self.workloads.push(Workload {
            annotations: if prefix.is_empty() {
                Value::Null
            } else {
                annotations
            },
            kind,
            name,
            namespace,
            origin: origin.to_owned(),
            line,
            replicas,
            prefix,
            pod,
        });
        Ok(())
    }
}

impl Workload {
    /// As messages show it: `Deployment default/web`.
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// The prober's view of its pod, without the settings of strict mode.
    pub fn to_pod(&self) -> Result<Pod, ConvertError> {
        let mut pod = pod(&self.pod)?;
        if self.pod["metadata"]["uid"].as_str().is_none_or(str::is_empty) {
            // The kind keeps apart what two workloads of one name make.
            pod.uid = format!("{}/{}/{}", self.kind, self.namespace, self.name).into();
        }
        Ok(pod)
    }

    /// The same with the settings of strict mode. `read` reads the files that they name.
    pub fn to_strict_pod(&self, read: ReadFile) -> Result<Pod, ConvertError> {
        strict(self.to_pod()?, &self.pod, read)
    }
}

/// Where an object of this kind holds its pod, with a trailing dot.
fn prefix(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("v1", "Pod") => Some(""),
        ("v1", "PodTemplate") => Some("template."),
        ("v1", "ReplicationController")
        | ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch/v1", "Job") => Some("spec.template."),
        ("batch/v1", "CronJob") => Some("spec.jobTemplate.spec.template."),
        _ => None,
    }
}

fn replicas(kind: &str, spec: &Value) -> Option<u32> {
    let count = |name: &str| match &spec[name] {
        Value::Null => Some(1),
        number => number.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    match kind {
        "Pod" => Some(1),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => count("replicas"),
        "Job" => count("parallelism"),
        _ => None,
    }
}

/// Fills in what the API server would: the namespace, and the name that a template has none of.
fn with_name(mut pod: Value, name: Option<&str>, namespace: &str) -> Value {
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        if let Some(name) = name {
            metadata.insert("name".to_owned(), json!(name));
        }
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    pod
}

/// One YAML or JSON document; the error is a line and a reason.
pub(super) fn yaml(text: &str) -> Result<Value, (u64, String)> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| explained(&error))
}

/// Far below the reader's own limits, which would let a small text grow to gigabytes through aliases.
fn options() -> serde_saphyr::Options {
    let mut options = serde_saphyr::options! { with_snippet: false };
    options.alias_limits.max_total_replayed_events = 100_000;
    options
}

fn explained(error: &serde_saphyr::Error) -> (u64, String) {
    let error = error.without_snippet();
    let line = error.location().map_or(1, |location| location.line().max(1));
    let text = error.to_string();
    let reason: Vec<&str> = text.split_whitespace().collect();
    (line, reason.join(" "))
}
