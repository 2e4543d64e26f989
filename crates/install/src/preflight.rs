//! What has to hold before anything is changed: the cluster's version, that nobody else is there, and the
//! rights of whoever installs.

use crate::cluster::{Named, apply, taken_from_others};
use crate::error::{InstallError, is_forbidden, said};
use crate::objects::{AGENT_SETTINGS, INSTALLATION, ROSTER_SECRET, WEBHOOK_SECRET};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use semver::Version;
use serde_json::Value;
use std::collections::BTreeSet;

/// The earliest minor of Kubernetes 1 on which agents are bound to their nodes.
const EARLIEST: u32 = 31;
/// The latest one on which Evenkeel was tried.
const LATEST: u32 = 36;

/// Kinds whose objects make a namespace somebody's.
const CONTENT: [(&str, &str); 14] = [
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("v1", "ReplicationController"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("rbac.authorization.k8s.io/v1", "Role"),
];

/// Refuses a version that cannot work; the line to print about one that was not tried.
pub(crate) async fn version(client: &Client) -> Result<Option<String>, InstallError> {
    let version = client
        .apiserver_version()
        .await
        .map_err(InstallError::reading("the version of the API server"))?;
    judge(&version.major, &version.minor, &version.git_version)
}

fn judge(major: &str, minor: &str, full: &str) -> Result<Option<String>, InstallError> {
    // Some providers write `31+`.
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    match (major, digits.parse::<u32>()) {
        ("1", Ok(number)) if number < EARLIEST => Err(InstallError::Refused(format!(
            "the cluster runs Kubernetes {major}.{minor}: Evenkeel needs 1.{EARLIEST} or later, which says of an agent's token to which \
             node it is bound"
        ))),
        // Fixed by kubernetes/kubernetes#127417.
        ("1", Ok(31)) if patch_of(full).is_some_and(|patch| patch < 2) => Ok(Some(format!(
            "note: the cluster runs Kubernetes {full}, which writes an Endpoints object no more once a webhook changed a write to what \
             stood there already: upgrade to 1.31.2 or later before you leave mode observe"
        ))),
        ("1", Ok(number)) if number <= LATEST => Ok(None),
        _ => Ok(Some(format!(
            "note: the cluster runs Kubernetes {major}.{minor}, and Evenkeel was tried on 1.{EARLIEST} to 1.{LATEST}: begin with mode observe"
        ))),
    }
}

/// The third number of a version as the API server tells it, as in `v1.31.1-eks.3`.
fn patch_of(full: &str) -> Option<u64> {
    Some(Version::parse(full.strip_prefix('v')?).ok()?.patch)
}

/// Kinds by whose marks an installation is found. None of them is in a namespace: who may write in one
/// namespace alone can pretend nothing.
const MARKED: [(&str, &str); 3] = [
    ("v1", "Namespace"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
];

/// Namespaces that Evenkeel is installed in, or that an installation was begun in. A Namespace speaks for
/// itself alone, and not while it is being deleted.
pub(crate) async fn homes(client: &Client) -> Result<BTreeSet<String>, InstallError> {
    let mut homes = BTreeSet::new();
    for (api_version, kind) in MARKED {
        let found = Named::new(api_version, kind, None, "").marked(client).await?;
        let found = found
            .into_iter()
            .filter(|(named, home, ends)| kind != "Namespace" || named.name == *home && !ends);
        homes.extend(found.map(|(_, home, _)| home));
    }
    Ok(homes)
}

/// What is said where objects name more than one installation.
pub(crate) fn several(homes: &BTreeSet<String>) -> String {
    let homes: Vec<&str> = homes.iter().map(String::as_str).collect();
    format!(
        "objects of Evenkeel name several installations, in the namespaces {}: remove what you do not use with `evenkeel uninstall \
         --namespace NAME`",
        homes.join(", ")
    )
}

/// A namespace as it is; refuses one that somebody else uses.
pub(crate) async fn namespace(client: &Client, name: &str) -> Result<Option<Value>, InstallError> {
    let namespace = Named::new("v1", "Namespace", None, name);
    let found = namespace.get(client).await?;
    let Some(found) = found else {
        return Ok(None);
    };
    if !found["metadata"]["deletionTimestamp"].is_null() {
        return Err(InstallError::Refused(format!(
            "namespace {name} is being deleted: wait until it is gone (kubectl get namespace {name})"
        )));
    }
    match foreign(client, name).await? {
        Some(object) => Err(InstallError::Refused(format!(
            "namespace {name} holds {object}, which is not of Evenkeel: choose another with --namespace"
        ))),
        None => Ok(Some(found)),
    }
}

/// Something in a namespace that is not of the installation there, if there is any.
pub(crate) async fn foreign(client: &Client, namespace: &str) -> Result<Option<String>, InstallError> {
    for (api_version, kind) in CONTENT {
        let kind = Named::new(api_version, kind, Some(namespace), "");
        let siblings = kind.siblings(client).await?;
        let is_ours = |object: &Value| {
            object["metadata"]["labels"][INSTALLATION] == namespace
                || OWN.contains(&(
                    kind.kind(),
                    object["metadata"]["name"].as_str().unwrap_or_default(),
                ))
        };
        if let Some(object) = siblings.iter().find(|object| !is_ours(object)) {
            let object = object["metadata"]["name"].as_str().unwrap_or_default();
            return Ok(Some(format!("{} {object}", kind.kind())));
        }
    }
    Ok(None)
}

/// What Kubernetes puts into every namespace, and what the commands and controllers make beside the objects.
const OWN: [(&str, &str); 5] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ServiceAccount", "default"),
    ("ConfigMap", AGENT_SETTINGS.0),
    ("Secret", ROSTER_SECRET.0),
    ("Secret", WEBHOOK_SECRET),
];

/// Group of the objects by which the API server shares its time. Evenkeel works without, and a server that
/// does not share its time need not know them.
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";

/// Has the server say of every object whether it would take it. Nothing is changed. Returns the objects to
/// apply, and adds to `notes` what is left out.
pub(crate) async fn acceptance(
    client: &Client,
    objects: Vec<Value>,
    absent_namespace: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Vec<Value>, InstallError> {
    let mut accepted = Vec::new();
    for object in objects {
        let named = Named::of(&object);
        if absent_namespace.is_some() && named.namespace.as_deref() == absent_namespace {
            for verb in ["create", "patch"] {
                permission(client, &named, verb).await?;
            }
            accepted.push(object);
            continue;
        }
        let refused = |what: String| Err(InstallError::Refused(what));
        match apply(client, &object, true).await {
            Ok(applied) => {
                if let Some(why) = ending(client, &named, &applied).await {
                    return refused(format!("{named} {why}"));
                }
                let taken = taken_from_others(client, &object).await;
                notes.extend(taken.iter().map(|(from, fields)| {
                    let fields = fields.join(", ");
                    format!("note: {named} has this version's {fields} again ({from})")
                }));
                accepted.push(object);
            }
            Err(kube::Error::Api(status))
                if status.code == 404 && named.group_and_plural().0 == FLOW_CONTROL =>
            {
                notes.push(format!("note: the API server has no {}: left out", named.kind()));
            }
            Err(error) if is_forbidden(&error) => {
                return refused(format!(
                    "you may not apply {named}: {}; use an account with the rights of a cluster administrator",
                    said(&error)
                ));
            }
            Err(error) => {
                return refused(format!("the API server does not take {named}: {}", said(&error)));
            }
        }
    }
    notes.dedup();
    Ok(accepted)
}

/// The finalizer by which a definition waits for the objects of its kind.
const WAITS: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Of an object that is being deleted, that it is, and what keeps it as far as that can be read; `None`: it
/// is not being deleted.
pub(crate) async fn ending(client: &Client, named: &Named, object: &Value) -> Option<String> {
    if object["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let finalizer = |object: &Value| {
        let mut all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        all.find(|one| *one != WAITS)?.as_str().map(str::to_owned)
    };
    let mut kept = finalizer(object).map(|finalizer| (named.clone(), finalizer));
    if named.kind() == "CustomResourceDefinition" {
        let text = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let version = format!("{}/{}", text("/spec/group"), text("/spec/versions/0/name"));
        let all = Named::new(&version, text("/spec/names/kind"), None, "");
        let objects = all.siblings(client).await.unwrap_or_default();
        let first = objects.iter().find_map(|one| {
            let name = one["metadata"]["name"].as_str()?;
            Some((Named::new(&version, all.kind(), None, name), finalizer(one)?))
        });
        kept = first.or(kept);
    }
    Some(match kept {
        Some((named, finalizer)) => format!(
            "is being deleted, and {named} has the finalizer {finalizer}: see why its owner does not take it off, or take it off yourself"
        ),
        None => "is being deleted: wait until it is gone".to_owned(),
    })
}

/// Asks the server whether you may, where it cannot be tried: in a namespace that is not there yet, and
/// before a removal.
pub(crate) async fn permission(client: &Client, named: &Named, verb: &str) -> Result<(), InstallError> {
    let (group, plural) = named.group_and_plural();
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(plural.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: named.namespace.clone(),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .map_err(InstallError::reading("your rights"))?;
    if answer.status.is_some_and(|status| status.allowed) {
        return Ok(());
    }
    let place = named
        .namespace
        .as_ref()
        .map(|namespace| format!(" in namespace {namespace}"));
    Err(InstallError::Refused(format!(
        "you may not {verb} {plural}{}: use an account with the rights of a cluster administrator",
        place.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1", "31", "v1.31.12", None)]
    #[case("1", "36", "v1.36.1", None)]
    #[case("1", "31+", "v1.31.2-x7", None)]
    #[case(
        "1",
        "31",
        "v1.31.0",
        Some("note: the cluster runs Kubernetes v1.31.0, which writes")
    )]
    #[case(
        "1",
        "31+",
        "v1.31.1-x7",
        Some("note: the cluster runs Kubernetes v1.31.1-x7, which writes")
    )]
    #[case("1", "37", "v1.37.0", Some("note: the cluster runs Kubernetes 1.37"))]
    #[case("2", "0", "v2.0.0", Some("note: "))]
    #[case("1", "x", "", Some("note: "))]
    fn versions_that_were_tried_are_taken(
        #[case] major: &str,
        #[case] minor: &str,
        #[case] full: &str,
        #[case] note: Option<&str>,
    ) {
        let said = judge(major, minor, full).unwrap();
        assert_eq!(said.is_some(), note.is_some());
        assert!(said.unwrap_or_default().starts_with(note.unwrap_or_default()));
    }

    #[test]
    fn a_version_that_does_not_bind_tokens_is_refused() {
        let refused = judge("1", "30", "v1.30.4").unwrap_err().to_string();
        assert!(
            refused.starts_with("the cluster runs Kubernetes 1.30: Evenkeel needs 1.31"),
            "{refused}"
        );
    }
}
