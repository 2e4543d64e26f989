//! Clients of a listener.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity};
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// An hour ago until in an hour.
pub(super) fn validity() -> Validity {
    let now = Timestamp::now().as_second();
    Validity {
        from: now - 3_600,
        until: now + 3_600,
    }
}

pub(super) fn ca(name: &str) -> Ca {
    evenkeel_net::init_crypto();
    Ca::new(name, validity()).unwrap()
}

/// A serving certificate for loopback.
pub(super) fn serving(ca: &Ca) -> Identity {
    let names = ServerNames {
        dns: Vec::new(),
        ips: vec!["127.0.0.1".parse().unwrap()],
    };
    ca.issue_server("kubelet", &names, validity()).unwrap()
}

/// What a client shows.
pub(super) enum Credential<'a> {
    Nothing,
    Token(&'a str),
    Certificate(Identity),
}

/// A client that trusts `ca`.
pub(super) async fn client(address: SocketAddr, ca: &Ca, credential: Credential<'_>) -> kube::Client {
    let base64 = |text: &str| STANDARD.encode(text);
    let user: Value = match credential {
        Credential::Nothing => json!({}),
        Credential::Token(token) => json!({"token": token}),
        Credential::Certificate(identity) => json!({
            "client-certificate-data": base64(&identity.certificate_pem),
            "client-key-data": base64(&identity.key_pem),
        }),
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": base64(ca.certificate_pem()),
        }}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    let config: Kubeconfig = serde_json::from_value(config).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

/// The answer, unless there is no connection.
pub(super) async fn get(client: &kube::Client, path: &str) -> Option<Response<Body>> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    client.send(request).await.ok()
}

/// The text of the answer.
pub(super) async fn text(client: &kube::Client, path: &str) -> Option<String> {
    let body = get(client, path).await?.into_body();
    let bytes = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX)
        .await
        .ok()?;
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Whether a connection comes about with a client that trusts `ca` alone.
pub(super) async fn connects(address: SocketAddr, ca: &Ca) -> bool {
    let client = client(address, ca, Credential::Nothing).await;
    get(&client, "/").await.is_some()
}
