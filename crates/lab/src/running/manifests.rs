//! Objects from YAML, created through the API as a user's would be.

use crate::join;
use evenkeel_install::manifest::{self, Malformed};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};

/// Why a manifest was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not YAML, or not an object. Not worth a retry.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There is one already on a control plane that the lab joined, and no lab has made it.
    #[error(
        "{origin}: {object} exists and is not a lab's; the lab changes nothing of others: rename it, or join another control plane"
    )]
    NotOurs {
        /// Where it is from.
        origin: String,
        /// Kind and name.
        object: String,
    },
    /// The API server does not know the kind, or refused the object.
    #[error("{origin}: {object} was refused: {}", one_line(.source))]
    Refused {
        /// Where it is from.
        origin: String,
        /// Kind and name.
        object: String,
        #[source]
        source: Box<kube::Error>,
    },
}

fn one_line(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Creates objects, in order; what exists is merge-patched. On a control plane that was joined they are
/// marked, and what exists must be marked already. How many there are.
pub async fn apply(
    client: &Client,
    mut objects: Vec<DynamicObject>,
    origin: &str,
    joined: bool,
) -> Result<usize, ManifestError> {
    for object in &mut objects {
        let refused = |source| ManifestError::Refused {
            origin: origin.to_owned(),
            object: described(object),
            source: Box::new(source),
        };
        if joined {
            let found = get(client, object).await.map_err(refused)?;
            if found.is_some_and(|found| !join::is_ours(&found)) {
                return Err(ManifestError::NotOurs {
                    origin: origin.to_owned(),
                    object: described(object),
                });
            }
            join::mark(object);
        }
        create(client, object)
            .await
            .map_err(|source| ManifestError::Refused {
                origin: origin.to_owned(),
                object: described(object),
                source: Box::new(source),
            })?;
    }
    Ok(objects.len())
}

/// Kind and name.
pub fn described(object: &DynamicObject) -> String {
    let kind = object
        .types
        .as_ref()
        .map_or("object", |types| types.kind.as_str());
    format!("{kind} {}", object.name_any())
}

/// The object of this kind and name as it is now.
pub async fn get(client: &Client, object: &DynamicObject) -> kube::Result<Option<DynamicObject>> {
    api_of(client, object).await?.get_opt(&object.name_any()).await
}

/// The objects of a text; empty documents are skipped.
pub fn parse(text: &str, origin: &str) -> Result<Vec<DynamicObject>, ManifestError> {
    let objects = manifest::parse(text, origin)?.into_iter().enumerate();
    objects
        .map(|(index, object)| {
            serde_json::from_value(object).map_err(|error| {
                let malformed = Malformed {
                    origin: origin.to_owned(),
                    number: index + 1,
                    reason: error.to_string(),
                };
                malformed.into()
            })
        })
        .collect()
}

async fn api_of(client: &Client, object: &DynamicObject) -> kube::Result<Api<DynamicObject>> {
    let gvk = object
        .types
        .as_ref()
        .and_then(|types| GroupVersionKind::try_from(types).ok())
        .unwrap_or_else(|| GroupVersionKind::gvk("", "v1", ""));
    let (resource, capabilities) = pinned_kind(client, &gvk).await?;
    Ok(if capabilities.scope == Scope::Cluster {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(
            client.clone(),
            object.namespace().as_deref().unwrap_or("default"),
            &resource,
        )
    })
}

async fn create(client: &Client, object: &DynamicObject) -> kube::Result<()> {
    let api = api_of(client, object).await?;
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 && object.metadata.name.is_some() => api
            .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(object))
            .await
            .map(|_| ()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_manifests_are_readable() {
        let kinds = |text| -> Vec<String> {
            parse(text, "x")
                .unwrap()
                .iter()
                .map(|object| object.types.as_ref().unwrap().kind.clone())
                .collect()
        };
        assert_eq!(
            kinds(evenkeel_install::objects::RBAC)
                .iter()
                .filter(|kind| *kind == "ServiceAccount")
                .count(),
            2
        );
        assert_eq!(
            kinds(crate::SAMPLE),
            ["Deployment", "Service", "Service", "StatefulSet"]
        );
    }
}
