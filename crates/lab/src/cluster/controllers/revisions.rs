//! ControllerRevisions: the templates that a set has had, by which pods of an older one can be made again.

use super::owned::{Claims, as_json, claim, delete, identity, owner_reference, patch, template_hash};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

/// The set whose revisions these are.
pub struct Owner<'a> {
    /// Its kind, of `apps/v1`.
    pub kind: &'static str,
    pub metadata: &'a ObjectMeta,
    pub selector: &'a LabelSelector,
    pub template: &'a PodTemplateSpec,
    /// Label of a revision that holds its hash.
    pub hash_label: &'static str,
    /// Annotations of a new revision, beside the set's own.
    pub annotations: BTreeMap<String, String>,
}

/// The revisions of a set.
pub struct Revisions<'a> {
    /// The lowest number first.
    pub all: Vec<&'a Arc<ControllerRevision>>,
    /// Name of the one with the present template.
    pub update: String,
    /// Its hash.
    pub hash: String,
    /// What has to be written; the revisions are known only when nothing has.
    pub writes: Vec<Action>,
}

/// The revisions of a set, the present one included.
pub fn of<'a>(owner: &Owner<'_>, view: &'a Snapshot) -> Revisions<'a> {
    let (namespace, name, _) = identity(owner.metadata);
    let reference = ("apps/v1", owner.kind, owner.metadata);
    let kind = Kind::ControllerRevision;
    let Claims {
        mut owned,
        mut writes,
    } = claim(kind, reference, owner.selector, &view.revisions);
    owned.sort_by_key(|revision| (revision.revision, revision.metadata.name.clone()));
    let mut template = as_json(owner.template);
    template["$patch"] = json!("replace");
    let data = json!({"spec": {"template": template}});
    let same = owned
        .iter()
        .rev()
        .find(|revision| revision.data.as_ref().is_some_and(|known| known.0 == data));
    let next = owned.last().map_or(0, |last| last.revision).saturating_add(1);
    let hash = template_hash(owner.template, None);
    let Some(same) = same else {
        let update = format!("{name}-{hash}");
        let labels = owner
            .template
            .metadata
            .as_ref()
            .and_then(|all| all.labels.clone());
        let mut labels = labels.unwrap_or_default();
        labels.insert(owner.hash_label.to_owned(), hash.clone());
        let mut annotations = owner.metadata.annotations.clone().unwrap_or_default();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.extend(owner.annotations.clone());
        writes.push(Action::Create {
            kind,
            namespace: namespace.to_owned(),
            object: json!({
                "metadata": {
                    "name": update, "labels": labels, "annotations": annotations,
                    "ownerReferences": owner_reference("apps/v1", owner.kind, owner.metadata),
                },
                "data": data,
                "revision": next,
            }),
        });
        return Revisions {
            all: owned,
            update,
            hash,
            writes,
        };
    };
    // A template that comes back is the newest again.
    if same.revision + 1 < next {
        writes.push(patch(kind, &same.metadata, json!({"revision": next})));
    }
    let labels = same.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(owner.hash_label));
    Revisions {
        update: identity(&same.metadata).1.to_owned(),
        hash: label.cloned().unwrap_or(hash),
        all: owned,
        writes,
    }
}

impl Revisions<'_> {
    /// The template of a revision.
    pub fn template(&self, name: &str) -> Option<PodTemplateSpec> {
        let revision = self
            .all
            .iter()
            .find(|revision| revision.metadata.name.as_deref() == Some(name))?;
        let template = revision.data.as_ref()?.0.get("spec")?.get("template")?;
        // The member that says how the template is applied is none of it.
        serde_json::from_value(template.clone()).ok()
    }

    /// Deletes revisions that are not in use, beyond the limit; the oldest first.
    pub fn surplus(&self, in_use: impl Fn(&str) -> bool, limit: i32) -> Vec<Action> {
        let unused: Vec<&&Arc<ControllerRevision>> = self
            .all
            .iter()
            .filter(|revision| {
                let name = identity(&revision.metadata).1;
                name != self.update && !in_use(name)
            })
            .collect();
        let surplus = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let surplus = unused.into_iter().take(surplus);
        surplus
            .map(|revision| delete(Kind::ControllerRevision, &revision.metadata, None))
            .collect()
    }
}
