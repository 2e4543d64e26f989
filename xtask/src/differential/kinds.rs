//! The kinds that both servers have, each with an object that is valid.

use super::server::Server;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::schema::{self, Definition};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A kind that can be created.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) api_version: String,
    /// Before `/namespaces/…` and the resource.
    root: String,
    resource: String,
    namespaced: bool,
    /// Absent for custom resources.
    pub(super) definition: Option<&'static Definition>,
    pub(super) has_status: bool,
    /// Only POST is served, and nothing is stored.
    pub(super) only_created: bool,
    /// Without `apiVersion` and `kind`.
    seed: Value,
}

impl Kind {
    /// Where its objects are listed and created.
    pub(super) fn collection(&self) -> String {
        if self.namespaced {
            format!(
                "{}/namespaces/{}/{}",
                self.root,
                super::case::NAMESPACE,
                self.resource
            )
        } else {
            format!("{}/{}", self.root, self.resource)
        }
    }

    /// The object's name.
    pub(super) fn object_name(&self) -> String {
        match self.seed["metadata"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None if self.namespaced => "x".to_owned(),
            None => "x-{{run}}".to_owned(),
        }
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.object_name())
    }

    /// Left behind by a case, unless it lies in the case's namespace.
    pub(super) fn leaves(&self) -> Option<String> {
        (!self.namespaced && !self.only_created).then(|| self.path())
    }

    /// A valid object.
    pub(super) fn object(&self) -> Value {
        let mut object = self.seed.clone();
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.name);
        object["metadata"]["name"] = json!(self.object_name());
        object["metadata"]["labels"]["case"] = json!("{{run}}");
        object
    }
}

/// Kinds that are not compared, with the reason.
const LEFT_OUT: [(&str, &str); 1] = [(
    "apiregistration.k8s.io/v1/apiservices",
    "the real server writes their status at once, since it asks the other server",
)];

/// Valid objects by `apiVersion/resource`.
const SEEDS: &str = include_str!("seeds.json");
/// Definitions of custom resources that differ in what a schema can say.
const CUSTOM: &str = include_str!("custom.json");

/// Creates the custom resources' definitions, unless they are there.
pub(super) async fn install(server: &Server) -> anyhow::Result<()> {
    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definitions: Vec<Value> = serde_json::from_str(CUSTOM)?;
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let answer = server
            .send(
                "POST",
                PATH,
                "application/json",
                definition.to_string().into_bytes(),
            )
            .await?;
        anyhow::ensure!(
            matches!(answer.status, 201 | 409),
            "{name}: {}",
            answer.body["message"]
        );
        let versions = definition["spec"]["versions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for version in versions {
            let [group, plural] = ["/spec/group", "/spec/names/plural"].map(|place| {
                definition
                    .pointer(place)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            });
            let version = version["name"].as_str().unwrap_or_default();
            let uri = format!("/apis/{group}/{version}/{plural}");
            let mut tries = 0;
            while server.read(&uri).await.is_err() {
                tries += 1;
                anyhow::ensure!(tries < 100, "{name} is not served");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    Ok(())
}

/// What both servers list and a seed is there for, and what is left out, with the reason.
pub(super) async fn common(real: &Server, ours: &Server) -> anyhow::Result<(Vec<Kind>, Vec<String>)> {
    let (left, right) = (listed(real).await?, listed(ours).await?);
    let seeds: Value = serde_json::from_str(SEEDS)?;
    let mut kinds = Vec::new();
    let mut left_out = Vec::new();
    let is_part = |resource: &Value| resource["name"].as_str().is_some_and(|name| name.contains('/'));
    for (id, resource) in left.iter().filter(|(_, resource)| !is_part(resource)) {
        let Some((_, other)) = right.iter().find(|(known, _)| known == id) else {
            left_out.push(format!("{id}: only the real server has it"));
            continue;
        };
        if let Some((_, reason)) = LEFT_OUT.iter().find(|(other, _)| other == id) {
            left_out.push(format!("{id}: {reason}"));
            continue;
        }
        let Some(seed) = seeds.get(id) else {
            left_out.push(format!("{id}: no seed"));
            continue;
        };
        let (verbs, others) = (verbs(resource), verbs(other));
        if verbs != others {
            left_out.push(format!("{id}: verbs {verbs:?}, ours {others:?}"));
        }
        let (api_version, name) = id.rsplit_once('/').unwrap_or_default();
        let kind = resource["kind"].as_str().unwrap_or_default();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        };
        kinds.push(Kind {
            name: kind.to_owned(),
            api_version: api_version.to_owned(),
            root: root(api_version),
            resource: name.to_owned(),
            namespaced: resource["namespaced"] == true,
            definition: schema::kind(&gvk),
            has_status: left.iter().any(|(other, _)| *other == format!("{id}/status")),
            only_created: !verbs.contains("get"),
            seed: seed.clone(),
        });
    }
    let unknown = |id: &String| !left.iter().any(|(known, _)| known == id);
    let extra = right
        .iter()
        .filter(|(id, resource)| unknown(id) && !is_part(resource));
    left_out.extend(extra.map(|(id, _)| format!("{id}: only our server has it")));
    Ok((kinds, left_out))
}

fn root(api_version: &str) -> String {
    if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    }
}

fn verbs(resource: &Value) -> BTreeSet<String> {
    let list = resource["verbs"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `apiVersion/resource`, and how discovery describes it.
async fn listed(server: &Server) -> anyhow::Result<Vec<(String, Value)>> {
    let groups = server.read("/apis").await?;
    let mut versions = vec!["v1".to_owned()];
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            versions.extend(version["groupVersion"].as_str().map(str::to_owned));
        }
    }
    let mut found = Vec::new();
    for version in versions {
        let resources = server.read(&root(&version)).await?;
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            found.push((format!("{version}/{name}"), resource.clone()));
        }
    }
    Ok(found)
}
