//! Who has which module of a base, in an annotation of its Node.
//!
//! `koupleless.evenkeel.io/modules` holds a JSON object, `NAME:VERSION` to `NAMESPACE/NAME/UID` of the pod,
//! or to a list of them where pods share the module. It is written before a module is installed and after it
//! was removed, by whoever serves the node. `koupleless.evenkeel.io/jars` is written with it: `NAME:VERSION`
//! to a digest of the jar's URL, which may hold a password.

use super::Inner;
use super::base::{Bound, State};
use crate::core::claims::{Claims, Owner, Sharing};
use evenkeel_api::names::koupleless::{JARS, MODULES};
use evenkeel_arklet::ModuleId;
use evenkeel_vnode::provider::{Fault, FaultKind, PodId};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Reads the journal of a Node. What cannot be read is left out: it is removed by nobody then.
pub(crate) fn read(node: &Node) -> Vec<(ModuleId, Owner)> {
    let annotations = node.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(MODULES));
    let entries: BTreeMap<String, Owners> = match text.map(|text| serde_json::from_str(text)) {
        None => return Vec::new(),
        Some(Ok(entries)) => entries,
        Some(Err(error)) => {
            let node = node.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(node, %error, "cannot read the annotation {MODULES}: modules that it named are left alone");
            return Vec::new();
        }
    };
    let mut claims = Vec::new();
    for (module, owners) in entries {
        let Some(module) = module_id(&module) else {
            continue;
        };
        let owners = match owners {
            Owners::One(owner) => vec![owner],
            Owners::Several(owners) => owners,
        };
        let owners = owners.iter().filter_map(|owner| parse(owner));
        claims.extend(owners.map(|owner| (module.clone(), owner)));
    }
    claims
}

/// Reads the digests of jars. What cannot be read is not known.
fn read_jars(node: &Node) -> BTreeMap<ModuleId, String> {
    let annotations = node.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(JARS));
    let jars: BTreeMap<String, String> = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let named = jars
        .into_iter()
        .map(|(module, jar)| Some((module_id(&module)?, jar)));
    named.flatten().collect()
}

/// `NAME:VERSION`. A version may have colons, a name cannot: it is a container's.
fn module_id(text: &str) -> Option<ModuleId> {
    let (name, version) = text.split_once(':')?;
    Some(ModuleId::new(name, version))
}

/// One owner is written as a former version wrote it, which refuses a list and leaves all modules alone then.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Owners {
    One(String),
    Several(Vec<String>),
}

fn parse(owner: &str) -> Option<Owner> {
    let (pod, uid) = owner.rsplit_once('/')?;
    pod.split_once('/')?;
    Some(Owner {
        uid: uid.into(),
        pod: pod.to_owned(),
    })
}

/// Text of the annotation.
pub(crate) fn write(claims: &Claims) -> String {
    let text = |owner: &Owner| format!("{}/{}", owner.pod, owner.uid);
    let entry = |owners: &[Owner]| match owners {
        [owner] => Owners::One(text(owner)),
        owners => Owners::Several(owners.iter().map(text).collect()),
    };
    let entries: BTreeMap<String, Owners> = claims
        .all()
        .map(|(id, owners)| (id.to_string(), entry(owners)))
        .collect();
    json!(entries).to_string()
}

/// A pod as the journal has it.
pub(crate) fn owner(pod: &PodId) -> Owner {
    Owner {
        uid: pod.uid.clone(),
        pod: pod.to_string(),
    }
}

impl Inner {
    /// Reads the journal unless it was read.
    pub(super) async fn read_journal(&self, bound: &Bound) -> Result<(), Fault> {
        if bound.memory.state().read {
            return Ok(());
        }
        let _held = bound.memory.journal.lock().await;
        if bound.memory.state().read {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client(&bound.node)?);
        let node = nodes.get_opt(&bound.node).await.map_err(|error| {
            let message = format!(
                "cannot read which modules of {} belong to whom: {error}",
                bound.base
            );
            Fault::new(FaultKind::Later, "JournalUnread", message)
        })?;
        let mut state = bound.memory.state();
        state.jars = node.as_ref().map(read_jars).unwrap_or_default();
        for (module, owner) in node.iter().flat_map(read) {
            state.unmet.insert(owner.uid.clone());
            // Whoever has it has it, also where pods share no modules any more: this refuses nobody.
            let _ = state.claims.claim(&owner, &[module], Sharing::Shared);
        }
        state.read = true;
        Ok(())
    }

    /// Writes the journal unless somebody else has done so since the last change.
    pub(super) async fn write_journal(&self, bound: &Bound) -> Result<(), Fault> {
        let wanted = bound.memory.state().changes;
        let _held = bound.memory.journal.lock().await;
        let (changes, text, jars) = {
            let state = bound.memory.state();
            if state.written >= wanted {
                return Ok(());
            }
            let jars = state.jars.iter().map(|(id, jar)| (id.to_string(), jar));
            let jars: BTreeMap<String, &String> = jars.collect();
            (state.changes, write(&state.claims), json!(jars).to_string())
        };
        let nodes: Api<Node> = Api::all(self.client(&bound.node)?);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MODULES: text, JARS: jars}}}));
        nodes
            .patch(&bound.node, &PatchParams::default(), &patch)
            .await
            .map_err(|error| {
                let message = format!(
                    "cannot note which modules of {} belong to whom: {error}",
                    bound.base
                );
                Fault::new(FaultKind::Later, "JournalUnwritten", message)
            })?;
        let mut state = bound.memory.state();
        state.written = state.written.max(changes);
        Ok(())
    }

    /// A client that writes only as long as the node is ours.
    pub(super) fn client(&self, node: &str) -> Result<kube::Client, Fault> {
        let host = self.host.get();
        host.and_then(|host| host.client(node)).ok_or_else(|| {
            let message = format!("node {node} is not served here any more");
            Fault::new(FaultKind::Later, "NotServed", message)
        })
    }
}

impl State {
    /// The claims have changed.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        let value = json!({"metadata": {"name": "n", "annotations": {MODULES: text}}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let mut claims = Claims::default();
        let owner = Owner {
            uid: "u-1".into(),
            pod: "shop/web".to_owned(),
        };
        let modules = [ModuleId::new("biz1", "0.0.1"), ModuleId::new("biz2", "1:2")];
        claims.claim(&owner, &modules, Sharing::Shared).unwrap();
        let text = write(&claims);
        assert_eq!(text, r#"{"biz1:0.0.1":"shop/web/u-1","biz2:1:2":"shop/web/u-1"}"#);
        let read_again = read(&node(&text));
        assert_eq!(read_again, modules.clone().map(|module| (module, owner.clone())));

        let other = Owner {
            uid: "u-2".into(),
            pod: "shop/web-2".to_owned(),
        };
        claims.claim(&other, &modules[..1], Sharing::Shared).unwrap();
        let text = write(&claims);
        assert_eq!(
            text,
            r#"{"biz1:0.0.1":["shop/web/u-1","shop/web-2/u-2"],"biz2:1:2":"shop/web/u-1"}"#
        );
        let [biz1, biz2] = modules;
        let all = [(biz1.clone(), owner.clone()), (biz1, other), (biz2, owner)];
        assert_eq!(read(&node(&text)), all);
    }

    #[test]
    fn what_cannot_be_read_belongs_to_nobody() {
        assert!(read(&node("[]")).is_empty());
        assert!(read(&node("{")).is_empty());
        assert!(read(&node(r#"{"a":"b"}"#)).is_empty());
        let mixed = read(&node(r#"{"a:1":"ns/p/u","b":"ns/p/u","c:1":"p/u","d:1":""}"#));
        assert_eq!(mixed.len(), 1, "{mixed:?}");
    }
}
