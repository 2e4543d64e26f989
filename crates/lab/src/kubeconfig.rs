//! The kubeconfigs of the lab's processes.

use serde_json::{Value, json};

/// A kubeconfig for a server, which is checked by the member `authority` of its cluster, and by this name
/// where that is not the one in its URL; `user` shows itself by the member `credential`.
pub(crate) fn kubeconfig(
    server: &str,
    server_name: Option<&str>,
    (authority, certificate): (&str, Value),
    (user, credential, secret): (&str, &str, Value),
) -> String {
    let mut cluster = json!({"server": server, authority: certificate});
    if let Some(name) = server_name {
        cluster["tls-server-name"] = Value::from(name);
    }
    // JSON is YAML.
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": user, "user": {credential: secret}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    })
    .to_string()
}
