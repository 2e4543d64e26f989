//! The key that signs rosters: made once for each installation, and never shown.

use crate::cluster::{Named, apply};
use crate::error::InstallError;
use crate::objects::{AGENT_SETTINGS, PART_OF, ROSTER_SECRET};
use evenkeel_zone::keys::SigningKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// Makes the key unless there is one, and the settings by which agents trust it.
pub(crate) async fn ensure(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let key = match read(client, namespace).await? {
        Some(key) => key,
        None => make(client, namespace).await?,
    };
    let settings = format!(
        "apiVersion: evenkeel.io/v1alpha1\nkind: AgentConfiguration\nrosterPublicKey:\n  - {}\n",
        key.public().to_base64()
    );
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": AGENT_SETTINGS.0, "namespace": namespace, "labels": {PART_OF.0: PART_OF.1}},
        "data": {AGENT_SETTINGS.1: settings},
    });
    let named = Named::of(&map);
    // Whoever wrote other settings for agents keeps them.
    if named
        .get(client)
        .await
        .map_err(InstallError::reading(&named))?
        .is_some()
    {
        return Ok(());
    }
    apply(client, &map, false)
        .await
        .map_err(InstallError::writing(&named))
}

async fn read(client: &Client, namespace: &str) -> Result<Option<SigningKey>, InstallError> {
    let what = format!("Secret {namespace}/{}", ROSTER_SECRET.0);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let Some(secret) = secrets
        .get_opt(ROSTER_SECRET.0)
        .await
        .map_err(InstallError::reading(&what))?
    else {
        return Ok(None);
    };
    let unusable = |why: String| {
        InstallError::Refused(format!(
            "{what} holds no key that signs rosters: {why}; remove it, and a new key is made"
        ))
    };
    let data = secret.data.unwrap_or_default();
    let key = data.get(ROSTER_SECRET.1);
    let key = key.ok_or_else(|| unusable(format!("{} is missing", ROSTER_SECRET.1)))?;
    let text = std::str::from_utf8(&key.0).map_err(|error| unusable(error.to_string()))?;
    SigningKey::from_pem(text)
        .map(Some)
        .map_err(|error| unusable(error.to_string()))
}

async fn make(client: &Client, namespace: &str) -> Result<SigningKey, InstallError> {
    let what = format!("Secret {namespace}/{}", ROSTER_SECRET.0);
    let fails = |error: evenkeel_zone::keys::KeyError| InstallError::Key(error.to_string());
    let key = SigningKey::from_seed(&rand::random()).map_err(fails)?;
    let pem = key.to_pem().map_err(fails)?;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(ROSTER_SECRET.0.to_owned()),
            labels: Some([(PART_OF.0.to_owned(), PART_OF.1.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([(ROSTER_SECRET.1.to_owned(), ByteString(pem.into_bytes()))].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let made = secrets.create(&PostParams::default(), &secret).await;
    made.map(|_| key).map_err(InstallError::writing(&what))
}
