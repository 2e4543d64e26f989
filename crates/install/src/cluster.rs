//! Objects of an installation on a cluster: read, applied and deleted by kind and name.

use crate::error::InstallError;
use crate::objects::INSTALLATION;
use evenkeel_api::names;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Field manager of everything that an installation applies.
const FIELD_MANAGER: &str = "evenkeel-install";

/// The reason of a cause by which the API server names a field of another manager.
const CONFLICT: &str = "FieldManagerConflict";

/// Kind, name and namespace of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    resource: ApiResource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.resource.kind, self.name),
            None => write!(f, "{} {}", self.resource.kind, self.name),
        }
    }
}

impl Named {
    pub(crate) fn new(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if kind == "ZoneHealth" {
            // The one plural that does not follow the rule.
            "zonehealth".clone_into(&mut resource.plural);
        }
        Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// The object by which writes reach the webhook. Of versions whose controllers made it, it has no mark.
    pub(crate) fn webhook() -> Self {
        Self::new(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            None,
            names::WEBHOOK_CONFIGURATION,
        )
    }

    /// Of an object that names its kind.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self::new(
            &text(&object["apiVersion"]),
            &text(&object["kind"]),
            metadata["namespace"].as_str(),
            &text(&metadata["name"]),
        )
    }

    pub(crate) fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// Group and plural, as rights name it.
    pub(crate) fn group_and_plural(&self) -> (&str, &str) {
        (&self.resource.group, &self.resource.plural)
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// The object; `None` where there is none, or no such kind.
    pub(crate) async fn get(&self, client: &Client) -> Result<Option<Value>, InstallError> {
        let found = self.api(client).get_opt(&self.name).await;
        let found = found.and_then(|found| found.map(to_value).transpose());
        found.map_err(InstallError::reading(self))
    }

    /// Deletes it, with what depends on it; what is gone already is no failure.
    pub(crate) async fn delete(&self, client: &Client) -> Result<(), InstallError> {
        self.delete_as(client, DeleteParams::default()).await
    }

    /// Deletes a pod without waiting for its kubelet.
    pub(crate) async fn delete_at_once(&self, client: &Client) -> Result<(), InstallError> {
        self.delete_as(client, DeleteParams::default().grace_period(0))
            .await
    }

    async fn delete_as(&self, client: &Client, params: DeleteParams) -> Result<(), InstallError> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..params
        };
        match self.api(client).delete(&self.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(InstallError::writing(self)(error)),
        }
    }

    /// Every object of its kind that is part of an installation, the namespace of that, and whether the
    /// object is being deleted.
    pub(crate) async fn marked(&self, client: &Client) -> Result<Vec<(Self, String, bool)>, InstallError> {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource);
        match all
            .list_metadata(&ListParams::default().labels(INSTALLATION))
            .await
        {
            Ok(found) => Ok(found
                .into_iter()
                .map(|object| {
                    let named = Self {
                        resource: self.resource.clone(),
                        namespace: object.namespace(),
                        name: object.name_any(),
                    };
                    let ends = object.metadata.deletion_timestamp.is_some();
                    (named, object.labels()[INSTALLATION].clone(), ends)
                })
                .collect()),
            // No such kind: an old server, or one of ours that is gone.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => {
                let what = format!("objects of kind {} with the label {INSTALLATION}", self.kind());
                Err(InstallError::reading(what)(error))
            }
        }
    }

    /// All objects of its kind in its namespace.
    pub(crate) async fn siblings(&self, client: &Client) -> Result<Vec<Value>, InstallError> {
        let found = self.api(client).list(&ListParams::default()).await;
        let found = found.and_then(|found| found.into_iter().map(to_value).collect());
        found.map_err(InstallError::reading(format!("objects of kind {}", self.kind())))
    }

    /// Creates it; fails where it is there already.
    pub(crate) async fn create(&self, client: &Client, object: &Value) -> kube::Result<()> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        self.api(client).create(&params, &object).await.map(drop)
    }

    /// Replaces it as it was read; labels and annotations of others stay.
    async fn replace(
        &self,
        client: &Client,
        present: DynamicObject,
        object: &Value,
        dry_run: bool,
    ) -> kube::Result<DynamicObject> {
        let mut wanted: DynamicObject =
            serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        let mut metadata = present.metadata;
        for (there, ours) in [
            (&mut metadata.labels, wanted.metadata.labels),
            (&mut metadata.annotations, wanted.metadata.annotations),
        ] {
            there.get_or_insert_default().extend(ours.unwrap_or_default());
        }
        wanted.metadata = metadata;
        let params = PostParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        self.api(client).replace(&self.name, &params, &wanted).await
    }

    /// Merges a patch into it.
    pub(crate) async fn merge(&self, client: &Client, patch: &Value) -> kube::Result<()> {
        let params = PatchParams::apply(FIELD_MANAGER);
        self.api(client)
            .patch(&self.name, &params, &Patch::Merge(patch))
            .await
            .map(drop)
    }
}

/// Whether nothing of a pod runs any more.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn to_value(object: DynamicObject) -> kube::Result<Value> {
    serde_json::to_value(object).map_err(kube::Error::SerdeError)
}

/// Kinds whose objects are replaced where they are there: to apply one merges its lists with what somebody
/// added, and a condition or a selector more takes something out of a policy.
pub(crate) const REPLACED_KINDS: [&str; 2] =
    ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// Attempts to write an object that others write, too.
pub(crate) const ATTEMPTS: usize = 5;

/// Applies an object, whoever owned its fields before; with `dry_run` the server says what would become of
/// it, and changes nothing. Returns the object as it is then.
pub(crate) async fn apply(client: &Client, object: &Value, dry_run: bool) -> kube::Result<Value> {
    let named = Named::of(object);
    if REPLACED_KINDS.contains(&named.kind()) {
        for attempt in 1..=ATTEMPTS {
            let Some(present) = named.api(client).get_opt(&named.name).await? else {
                break;
            };
            match named.replace(client, present, object, dry_run).await {
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {}
                replaced => return to_value(replaced?),
            }
        }
    }
    to_value(patch(client, &named, object, dry_run, true).await?)
}

async fn patch(
    client: &Client,
    named: &Named,
    object: &Value,
    dry_run: bool,
    force: bool,
) -> kube::Result<DynamicObject> {
    let params = PatchParams {
        dry_run,
        force,
        ..PatchParams::apply(FIELD_MANAGER)
    };
    let patch = Patch::Apply(object);
    named.api(client).patch(&named.name, &params, &patch).await
}

/// The fields in which others have set another value than the object has, by who they are.
pub(crate) async fn taken_from_others(client: &Client, object: &Value) -> BTreeMap<String, Vec<String>> {
    let named = Named::of(object);
    let mut taken = BTreeMap::<String, Vec<String>>::new();
    if REPLACED_KINDS.contains(&named.kind()) {
        return taken;
    }
    // Whatever else is wrong is found where the object is applied.
    if let Err(kube::Error::Api(status)) = patch(client, &named, object, true, false).await {
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        for conflict in causes.into_iter().filter(|cause| cause.reason == CONFLICT) {
            let field = conflict.field.trim_start_matches('.').to_owned();
            taken.entry(conflict.message).or_default().push(field);
        }
    }
    taken
}
