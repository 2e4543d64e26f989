//! What `evenkeel status` reads: lists alone, with the rights of whoever asks.

use super::StatusError;
use super::report::Found;
use crate::clock::wall;
use evenkeel_api::names::annotations;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Reads everything at once. Fails where Nodes, NodeIncidents or Leases cannot be listed; without the rest
/// less is told.
pub(super) async fn found(client: &Client, namespace: &str) -> Result<Found, StatusError> {
    let own = Api::namespaced(client.clone(), namespace);
    let leases_of = format!("leases in namespace {namespace}");
    let homes: Api<Namespace> = Api::all(client.clone());
    let (nodes, incidents, leases, zones, challenges, reports, policies, home) = tokio::join!(
        list("nodes", Api::all(client.clone())),
        list("nodeincidents.evenkeel.io", Api::all(client.clone())),
        list(&leases_of, own),
        list("zonehealth.evenkeel.io", Api::all(client.clone())),
        list("zonechallenges.evenkeel.io", Api::all(client.clone())),
        list("zonereports.evenkeel.io", Api::all(client.clone())),
        list("failoverpolicies.evenkeel.io", Api::all(client.clone())),
        homes.get_opt(namespace),
    );
    let mut troubles = Vec::new();
    let mut optional = |error: StatusError| troubles.push(error.told());
    let zones = zones.unwrap_or_else(|error| {
        optional(error);
        Listed::default()
    });
    let challenges = challenges.unwrap_or_else(|error| {
        optional(error);
        Listed::default()
    });
    let reports = reports.unwrap_or_else(|error| {
        optional(error);
        Listed::default()
    });
    let policies = policies.unwrap_or_else(|error| {
        optional(error);
        Listed::default()
    });
    let home = home.unwrap_or_else(|error| {
        optional(unreadable(
            &format!("namespace {namespace} (whether Evenkeel is paused stands there)"),
            error,
        ));
        None
    });
    let (nodes, incidents, leases) = (nodes?, incidents?, leases?);
    troubles.extend(nodes.broken);
    troubles.extend(incidents.broken);
    troubles.extend(leases.broken);
    troubles.extend(zones.broken);
    troubles.extend(challenges.broken);
    troubles.extend(reports.broken);
    troubles.extend(policies.broken);
    Ok(Found {
        now: wall(),
        namespace: namespace.to_owned(),
        nodes: nodes.good,
        incidents: incidents.good,
        zones: zones.good,
        challenges: challenges.good,
        reports: reports.good,
        policies: policies.good,
        leases: leases.good,
        pause: home.and_then(|home| home.metadata.annotations?.get(annotations::PAUSE).cloned()),
        troubles,
    })
}

/// A collection: what could be decoded, and what is to be said of the rest.
struct Listed<K> {
    good: Vec<K>,
    broken: Vec<String>,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self {
            good: Vec::new(),
            broken: Vec::new(),
        }
    }
}

async fn list<K>(what: &str, api: Api<DeserializeGuard<K>>) -> Result<Listed<K>, StatusError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = ListParams::default();
    // All are read at once, and one future that holds them all would be large.
    let objects = Box::pin(api.list(&params))
        .await
        .map_err(|error| unreadable(what, error))?;
    let mut listed = Listed::default();
    for object in objects {
        match object.0 {
            Ok(object) => listed.good.push(object),
            Err(error) => {
                let (kind, plural) = (K::kind(&()), K::plural(&()));
                let name = error.metadata.name.clone().unwrap_or_default();
                listed.broken.push(format!(
                    "{kind} {name} cannot be understood ({}); is it from another version? Look at it with: kubectl get {plural} \
                     {name} -o yaml",
                    error.error
                ));
            }
        }
    }
    Ok(listed)
}

fn unreadable(what: &str, source: kube::Error) -> StatusError {
    let advice = match &source {
        kube::Error::Api(status) if status.code == 403 => "ask for the right to get and list them".to_owned(),
        kube::Error::Api(status) if status.code == 401 => {
            "the API server does not accept these credentials: log in anew, or name another kubeconfig or context".to_owned()
        }
        kube::Error::Api(status) if status.code == 404 => {
            "is Evenkeel installed on this cluster? Its CRDs: kubectl apply -f deploy/crds.yaml".to_owned()
        }
        _ => "is this the right cluster, and does its API server answer? Try: kubectl get nodes".to_owned(),
    };
    StatusError::Read {
        what: what.to_owned(),
        advice,
        source: Box::new(source),
    }
}
