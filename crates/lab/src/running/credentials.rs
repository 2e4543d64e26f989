//! Who each process is, at the API server and to its peers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

/// A token of the lab lives longer than any lab.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// A token of a ServiceAccount, which is made where it is missing.
pub(super) async fn token(client: &Client, namespace: &str, account: &str) -> kube::Result<String> {
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
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..Default::default()
        },
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}

/// A kubeconfig with a bearer token.
pub(super) fn kubeconfig(server: &str, ca_pem: &str, user: &str, token: &str) -> String {
    // JSON is YAML.
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    })
    .to_string()
}
