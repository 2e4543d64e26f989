//! Who each process is, at the API server and to its peers.

use super::Plane;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Node, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};

/// A token of the lab lives longer than any lab.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// A token of a ServiceAccount, which is made where it is missing. With a node it says of which, as that of a
/// pod there does.
pub(super) async fn token(
    client: &Client,
    namespace: &str,
    account: &str,
    node: Option<&str>,
) -> kube::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let object = ServiceAccount {
        metadata: kube::core::ObjectMeta {
            name: Some(account.to_owned()),
            ..Default::default()
        },
        ..Default::default()
    };
    match accounts.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error),
    }
    let bound = match node {
        Some(name) => {
            let node = Api::<Node>::all(client.clone()).get(name).await?;
            Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.to_owned()),
                uid: node.metadata.uid,
            })
        }
        None => None,
    };
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: bound,
            ..Default::default()
        },
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}

/// A kubeconfig with a bearer token for the lab's API server at an address.
pub(super) fn kubeconfig(plane: &Plane, server: &str, user: &str, token: &str) -> String {
    let authority = STANDARD.encode(plane.authority()).into();
    crate::kubeconfig::kubeconfig(
        server,
        plane.server_name(),
        ("certificate-authority-data", authority),
        (user, "token", token.into()),
    )
}
