//! The fenced writes: read, look at the stamp, write on the condition that nothing was written since.

use super::{FENCING_TOKEN, Fence, FenceError, put, stamp_of};
use crate::core::FencingToken;
use crate::gate::{GateClosed, is_gate_closed};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

/// How often a write is tried when others write the object at the same time.
const ATTEMPTS: u32 = 5;

impl Fence {
    /// Reads an object consistently and checks that this leader may write it. What is decided from it holds if, and
    /// only if, its `uid` and `resourceVersion` are made preconditions of the write that follows.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let ours = self.token()?;
        self.look(api, name, &ours).await
    }

    /// Stamps an object and returns it as it then is, if it is not stamped with this term already. After that, no
    /// write of an earlier leader reaches it.
    pub async fn claim<K>(&self, api: &Api<K>, name: &str) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let mut turns = Turns::new(self, api, name);
        loop {
            let (found, ours) = turns.next().await?;
            if stamp_of(&found).ok().flatten().as_ref() == Some(&ours) {
                return Ok(found);
            }
            let patch = Patch::Merge(Carrier::default().with(&found, &ours));
            let result = api.patch(name, &PatchParams::default(), &patch).await;
            if let Some(claimed) = turns.settle(result)? {
                return Ok(claimed);
            }
        }
    }

    /// Merges `patch` (RFC 7386) into an object and stamps it. What the patch says must hold whatever else changes in
    /// the object: after a conflict it is sent again as it is. If not, use [`Self::replace`].
    pub async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        params: &PatchParams,
        patch: &Value,
    ) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let Some(patch) = Carrier::of(patch) else {
            return Err(FenceError::Patch {
                object: what(api, name),
            });
        };
        let mut turns = Turns::new(self, api, name);
        loop {
            let (found, ours) = turns.next().await?;
            let patch = Patch::Merge(patch.with(&found, &ours));
            let result = api.patch(name, params, &patch).await;
            if let Some(patched) = turns.settle(result)? {
                return Ok(patched);
            }
        }
    }

    /// Changes an object as it was read and stamps it. After a conflict, `change` is asked again, with the object as it
    /// then is.
    pub async fn replace<K>(
        &self,
        api: &Api<K>,
        name: &str,
        params: &PostParams,
        mut change: impl FnMut(&mut K) + Send,
    ) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    {
        let mut turns = Turns::new(self, api, name);
        loop {
            let (mut object, ours) = turns.next().await?;
            let (uid, version) = (object.meta().uid.clone(), object.meta().resource_version.clone());
            change(&mut object);
            let meta = object.meta_mut();
            (meta.uid, meta.resource_version) = (uid, version);
            put(meta, &ours);
            let result = api.replace(name, params, &object).await;
            if let Some(replaced) = turns.settle(result)? {
                return Ok(replaced);
            }
        }
    }

    /// Deletes an object if it is still the one that was read. Preconditions in `params` are replaced.
    pub async fn delete<K>(&self, api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let mut turns = Turns::new(self, api, name);
        loop {
            let (found, _) = turns.next().await?;
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: found.meta().resource_version.clone(),
                    uid: found.meta().uid.clone(),
                }),
                ..params.clone()
            };
            let result = api.delete(name, &params).await.map(drop);
            if turns.settle(result)?.is_some() {
                return Ok(());
            }
        }
    }

    async fn look<K>(&self, api: &Api<K>, name: &str, ours: &FencingToken) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        // Without a version this is a consistent read, not one from a cache.
        let found = api
            .get(name)
            .await
            .map_err(|source| failed("read", api, name, source))?;
        self.check(&found, ours, &what(api, name)).await?;
        Ok(found)
    }
}

/// The attempts of one write, until nobody else wrote between what it was decided from and itself.
struct Turns<'a, K> {
    fence: &'a Fence,
    api: &'a Api<K>,
    name: &'a str,
    taken: u32,
    /// Of the object first found.
    uid: Option<String>,
}

impl<'a, K> Turns<'a, K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    fn new(fence: &'a Fence, api: &'a Api<K>, name: &'a str) -> Self {
        Self {
            fence,
            api,
            name,
            taken: 0,
            uid: None,
        }
    }

    /// The object as it is now, if it may be written, and the token to write it with.
    async fn next(&mut self) -> Result<(K, FencingToken), FenceError> {
        let object = || what(self.api, self.name);
        if self.taken == ATTEMPTS {
            return Err(FenceError::Contended {
                object: object(),
                attempts: ATTEMPTS,
            });
        }
        let ours = self.fence.token()?;
        let found = self.fence.look(self.api, self.name, &ours).await?;
        if self.taken > 0 && self.uid != found.meta().uid {
            return Err(FenceError::Replaced { object: object() });
        }
        // The read took its time.
        if self.fence.token()? != ours {
            return Err(GateClosed.into());
        }
        self.uid.clone_from(&found.meta().uid);
        self.taken += 1;
        Ok((found, ours))
    }

    /// What came of a write; `None` when it was overtaken by another one.
    fn settle<T>(&self, result: Result<T, kube::Error>) -> Result<Option<T>, FenceError> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                tracing::debug!(
                    object = what(self.api, self.name),
                    "overtaken by another write, looking again"
                );
                Ok(None)
            }
            Err(source) => Err(failed("write", self.api, self.name, source)),
        }
    }
}

/// The path of an object, for messages.
fn what<K: Resource>(api: &Api<K>, name: &str) -> String {
    format!("{}/{name}", api.resource_url().trim_start_matches('/'))
}

fn failed<K: Resource>(verb: &'static str, api: &Api<K>, name: &str, source: kube::Error) -> FenceError {
    if is_gate_closed(&source) {
        return GateClosed.into();
    }
    FenceError::Api {
        verb,
        object: what(api, name),
        source,
    }
}

/// A merge patch taken apart, so that it can carry the stamp and the condition.
#[derive(Default)]
struct Carrier {
    patch: Map<String, Value>,
    metadata: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl Carrier {
    /// `None` when there is no room: `null` in the place of a map would remove what is added to it.
    fn of(patch: &Value) -> Option<Self> {
        let mut patch = patch.as_object()?.clone();
        let mut metadata = take_map(&mut patch, "metadata")?;
        let annotations = take_map(&mut metadata, "annotations")?;
        Some(Self {
            patch,
            metadata,
            annotations,
        })
    }

    /// The patch with the stamp, on the condition that the object is as it was found.
    fn with<K: Resource>(&self, found: &K, ours: &FencingToken) -> Value {
        let mut annotations = self.annotations.clone();
        annotations.insert(FENCING_TOKEN.to_owned(), json!(ours.to_string()));
        let mut metadata = self.metadata.clone();
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
        metadata.insert("uid".to_owned(), json!(found.meta().uid));
        metadata.insert("resourceVersion".to_owned(), json!(found.meta().resource_version));
        let mut patch = self.patch.clone();
        patch.insert("metadata".to_owned(), Value::Object(metadata));
        Value::Object(patch)
    }
}

/// The map under a key, empty when there is nothing; `None` when there is something else.
fn take_map(object: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    match object.remove(key) {
        None => Some(Map::new()),
        Some(Value::Object(map)) => Some(map),
        Some(_) => None,
    }
}
