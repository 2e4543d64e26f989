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

/// Refuses keys that do not go together, of which agents would take no roster.
pub(crate) async fn check(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let key = read(client, namespace).await?;
    let named = settings_of(namespace);
    let settings = named.get(client).await?;
    let trusted = settings
        .as_ref()
        .map(|map| map["data"][AGENT_SETTINGS.1].as_str().unwrap_or_default());
    match (key, trusted) {
        (Some(key), Some(trusted)) if !trusted.contains(&key.public().to_base64()) => {
            Err(InstallError::Refused(format!(
                "agents trust another key than the one in Secret {namespace}/{}: add {} to rosterPublicKey in {named} \
                 (docs/zone.md, \"Keys of rosters\")",
                ROSTER_SECRET.0,
                key.public().to_base64()
            )))
        }
        (None, Some(_)) => Err(InstallError::Refused(format!(
            "agents trust a key by {named}, and Secret {namespace}/{} with its other half is not there: bring it back, or delete \
             {named} as well, so that agents trust a new one",
            ROSTER_SECRET.0
        ))),
        _ => Ok(()),
    }
}

fn settings_of(namespace: &str) -> Named {
    Named::new("v1", "ConfigMap", Some(namespace), AGENT_SETTINGS.0)
}

/// Makes the key unless there is one, and the settings by which agents trust it.
pub(crate) async fn ensure(client: &Client, namespace: &str) -> Result<(), InstallError> {
    let key = match read(client, namespace).await? {
        Some(key) => key,
        None => make(client, namespace).await?,
    };
    let named = settings_of(namespace);
    // Whoever wrote other settings for agents keeps them.
    if named.get(client).await?.is_some() {
        return Ok(());
    }
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
    apply(client, &map, false)
        .await
        .map(drop)
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
            "{what} holds no key that signs rosters: {why}; see docs/zone.md, \"Keys of rosters\""
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
