//! The fenced writes: read the object, compare its stamp, write on the condition that nothing was written
//! since.

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
    /// Reads an object consistently and checks that this leader may write it. What is decided from it holds
    /// if, and only if, its `uid` and `resourceVersion` are made preconditions of the write that follows.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let ours = self.token()?;
        self.inspect(api, name, &ours).await
    }

    /// Stamps an object unless it already has the stamp of this term, and returns it as it then is. After
    /// that, no write of an earlier leader to it takes effect.
    pub async fn claim<K>(&self, api: &Api<K>, name: &str) -> Result<K, FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let mut attempts = Attempts::new(self, api, name);
        loop {
            let (found, ours) = attempts.next().await?;
            if stamp_of(&found).ok().flatten().as_ref() == Some(&ours) {
                return Ok(found);
            }
            let patch = Patch::Merge(StampedPatch::default().with(&found, &ours));
            let result = api.patch(name, &PatchParams::default(), &patch).await;
            if let Some(claimed) = attempts.outcome(result)? {
                return Ok(claimed);
            }
        }
    }

    /// Merges `patch` (RFC 7386) into an object and stamps it. After a conflict the same patch is sent again,
    /// so it must be right whatever others have changed in the object. Use [`Self::replace`] if it depends on
    /// the object.
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
        let Some(patch) = StampedPatch::of(patch) else {
            return Err(FenceError::Patch {
                object: what(api, name),
            });
        };
        let mut attempts = Attempts::new(self, api, name);
        loop {
            let (found, ours) = attempts.next().await?;
            let patch = Patch::Merge(patch.with(&found, &ours));
            let result = api.patch(name, params, &patch).await;
            if let Some(patched) = attempts.outcome(result)? {
                return Ok(patched);
            }
        }
    }

    /// Changes an object as it was read, and stamps it. After a conflict `change` is called again, with the
    /// object as it then is.
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
        let mut attempts = Attempts::new(self, api, name);
        loop {
            let (mut object, ours) = attempts.next().await?;
            let (uid, version) = (object.meta().uid.clone(), object.meta().resource_version.clone());
            change(&mut object);
            let meta = object.meta_mut();
            (meta.uid, meta.resource_version) = (uid, version);
            put(meta, &ours);
            let result = api.replace(name, params, &object).await;
            if let Some(replaced) = attempts.outcome(result)? {
                return Ok(replaced);
            }
        }
    }

    /// Deletes an object if it is still the one that was read. Preconditions in `params` are replaced.
    pub async fn delete<K>(&self, api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), FenceError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let mut attempts = Attempts::new(self, api, name);
        loop {
            let (found, _) = attempts.next().await?;
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: found.meta().resource_version.clone(),
                    uid: found.meta().uid.clone(),
                }),
                ..params.clone()
            };
            let result = api.delete(name, &params).await.map(drop);
            if attempts.outcome(result)?.is_some() {
                return Ok(());
            }
        }
    }

    async fn inspect<K>(&self, api: &Api<K>, name: &str, ours: &FencingToken) -> Result<K, FenceError>
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

/// The attempts of one write. It is repeated until nobody else has written between the read and the write.
struct Attempts<'a, K> {
    fence: &'a Fence,
    api: &'a Api<K>,
    name: &'a str,
    made: u32,
    /// UID of the object that the last attempt found.
    uid: Option<String>,
}

impl<'a, K> Attempts<'a, K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    fn new(fence: &'a Fence, api: &'a Api<K>, name: &'a str) -> Self {
        Self {
            fence,
            api,
            name,
            made: 0,
            uid: None,
        }
    }

    /// The object as it is now, if it may be written, and the token to write it with.
    async fn next(&mut self) -> Result<(K, FencingToken), FenceError> {
        let object = || what(self.api, self.name);
        if self.made == ATTEMPTS {
            return Err(FenceError::Contended {
                object: object(),
                attempts: ATTEMPTS,
            });
        }
        let ours = self.fence.token()?;
        let found = self.fence.inspect(self.api, self.name, &ours).await?;
        if self.made > 0 && self.uid != found.meta().uid {
            return Err(FenceError::Replaced { object: object() });
        }
        // The term may have changed during the read.
        if self.fence.token()? != ours {
            return Err(GateClosed.into());
        }
        self.uid.clone_from(&found.meta().uid);
        self.made += 1;
        Ok((found, ours))
    }

    /// The result of a write; `None` if somebody else wrote the object first.
    fn outcome<T>(&self, result: Result<T, kube::Error>) -> Result<Option<T>, FenceError> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                tracing::debug!(
                    object = what(self.api, self.name),
                    "another write came first, reading again"
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

/// A merge patch taken apart, so that the stamp and the precondition can be added.
#[derive(Default)]
struct StampedPatch {
    patch: Map<String, Value>,
    metadata: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl StampedPatch {
    /// `None` if metadata or annotations are no maps: `null` there would remove what is added.
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

    /// The patch with the stamp, and with the precondition that the object has not changed since it was read.
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

/// Takes the map under a key: empty if there is none, `None` if the value is no map.
fn take_map(object: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    match object.remove(key) {
        None => Some(Map::new()),
        Some(Value::Object(map)) => Some(map),
        Some(_) => None,
    }
}
