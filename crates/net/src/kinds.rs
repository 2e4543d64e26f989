//! Compiles what is generic in the Kubernetes types once.
//!
//! Reading a Pod from JSON is some hundred functions, and copying or dropping one some hundred more. They are
//! generic over the format, so the compiler makes them where they are first used: without this module in each
//! crate that handles a Pod, which was half of the code that it generated for our small crates. It does not
//! make them again in a crate that depends on one where they are already (at the optimisation levels 0, 1,
//! `s` and `z`, where crates share what is generic). Nothing calls these functions, and the linker leaves
//! them out.

use crate::watch::{Delta, Unreadable, deltas};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams, WatchEvent};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// The same call for each of these kinds.
macro_rules! for_each {
    ([$($kind:ty),+ $(,)?] $call:ident $arguments:tt) => { vec![$($call::<$kind> $arguments),+] };
}

/// Every kind that several crates handle, in every format that they use.
pub fn formats(text: &str, value: &Value) -> Vec<Result<Vec<u8>, serde_json::Error>> {
    for_each!(
        [
            Pod, Node, Lease, ConfigMap, Secret, Service, Event, Namespace, EndpointSlice, Deployment,
            PersistentVolumeClaim
        ] format(text, value)
    )
}

/// The requests for them.
pub fn requests(client: &Client) -> Vec<BoxFuture<'static, Result<(), kube::Error>>> {
    for_each!([Pod, Node, Lease, ConfigMap, Secret, Event, Namespace] request(client))
}

/// The watches for nodes and pods.
pub fn watches(client: &Client) -> (BoxStream<'static, Delta<Node>>, BoxStream<'static, Delta<Pod>>) {
    (watch(client), watch(client))
}

fn format<K>(text: &str, value: &Value) -> Result<Vec<u8>, serde_json::Error>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Default + PartialEq,
{
    let read: [K; 3] = [
        serde_json::from_str(text)?,
        serde_json::from_slice(text.as_bytes())?,
        K::deserialize(value)?,
    ];
    let guarded: WatchEvent<DeserializeGuard<K>> = serde_json::from_str(text)?;
    let list: ObjectList<DeserializeGuard<K>> = serde_json::from_str(text)?;
    let items: ObjectList<K> = serde_json::from_str(text)?;
    let value = serde_json::to_value(&read[0])?;
    let moved: K = serde_json::from_value(value)?;
    let copy = moved.clone();
    let same = copy == K::default();
    serde_json::to_vec(&(copy, format!("{read:?} {guarded:?} {list:?} {items:?} {same}")))
}

fn request<K>(client: &Client) -> BoxFuture<'static, Result<(), kube::Error>>
where
    K: Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Default
        + Send
        + Sync
        + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    Box::pin(async move {
        // Whoever awaits this after all changes nothing: an empty name would address all objects.
        if std::hint::black_box(true) {
            return Ok(());
        }
        let object = api.get("").await?;
        api.get_opt("").await?;
        api.list(&ListParams::default()).await?;
        api.create(&PostParams::default(), &object).await?;
        api.replace("", &PostParams::default(), &object).await?;
        let patch = Patch::Merge(Value::Null);
        api.patch("", &PatchParams::default(), &patch).await?;
        api.patch_status("", &PatchParams::default(), &patch).await?;
        api.delete("", &DeleteParams::default()).await?;
        Ok(())
    })
}

fn watch<K>(client: &Client) -> BoxStream<'static, Delta<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api = Api::<DeserializeGuard<K>>::all(client.clone());
    deltas("", api, watcher::Config::default(), Unreadable::StaysAsKnown).boxed()
}
