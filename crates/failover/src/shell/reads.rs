//! Reads of whole collections: what an audit compares, and the endpoints of Services.

use evenkeel_api::crd::{NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::names;
use evenkeel_failover_rules::world::Kind;
use evenkeel_failover_rules::world::services::Services;
use evenkeel_net::watch::{Key, key};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};

/// Slices in one answer of the API server; a slice holds up to 1,000 endpoints.
const SLICES_AT_ONCE: u32 = 250;
/// For more namespaces than this, the slices of the whole cluster are read with one request.
const NAMESPACES_AT_ONCE: usize = 10;

/// Names and resourceVersions of a collection that is audited, read consistently. Of others there are none.
pub(super) async fn versions(client: Client, kind: Kind) -> Result<BTreeMap<Key, String>, kube::Error> {
    match kind {
        Kind::NodeLease => of::<Lease>(Api::namespaced(client, names::NODE_LEASE_NAMESPACE)).await,
        Kind::Report => of::<ZoneReport>(Api::all(client)).await,
        Kind::Zone => of::<ZoneHealth>(Api::all(client)).await,
        Kind::Challenge => of::<ZoneChallenge>(Api::all(client)).await,
        Kind::Incident => of::<NodeIncident>(Api::all(client)).await,
        _ => Ok(BTreeMap::new()),
    }
}

async fn of<K>(api: Api<K>) -> Result<BTreeMap<Key, String>, kube::Error>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = api.list_metadata(&ListParams::default()).await?;
    let version = |object: &kube::core::PartialObjectMeta<K>| {
        let version = object.metadata.resource_version.clone();
        (key(object), version.unwrap_or_default())
    };
    Ok(list.items.iter().map(version).collect())
}

/// The Services of some namespaces with their endpoints.
pub(super) async fn services(client: Client, namespaces: BTreeSet<String>) -> Result<Services, kube::Error> {
    let whole = namespaces.len() > NAMESPACES_AT_ONCE;
    let apis: Vec<Api<EndpointSlice>> = if whole {
        vec![Api::all(client)]
    } else {
        let of = |namespace| Api::namespaced(client.clone(), namespace);
        namespaces.iter().map(|namespace| of(namespace)).collect()
    };
    let lists = futures::future::try_join_all(apis.iter().map(slices)).await?;
    Ok(Services::of(&namespaces, lists.into_iter().flatten()))
}

async fn slices(api: &Api<EndpointSlice>) -> Result<Vec<EndpointSlice>, kube::Error> {
    let mut slices = Vec::new();
    let mut page = ListParams::default().limit(SLICES_AT_ONCE);
    loop {
        let list = api.list(&page).await?;
        slices.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(slices),
        }
    }
}
