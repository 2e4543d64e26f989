//! The MutatingWebhookConfiguration: which writes reach us, and what happens when we are not there.

use super::address::WebhookAddress;
use super::server::TIMEOUT;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_api::compare::says;
use evenkeel_api::names::{self, WEBHOOK_CONFIGURATION as CONFIGURATION};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Why the API server may not know of the webhook. Worth a retry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    /// It could not be read.
    #[error("cannot read MutatingWebhookConfiguration {CONFIGURATION}")]
    Read(#[source] kube::Error),
    /// It is not there, and was not to be made.
    #[error(
        "MutatingWebhookConfiguration {CONFIGURATION} is missing, and this controller may not create it; apply the \
         installation again: `evenkeel upgrade`, `kubectl apply -k` or `helm upgrade`"
    )]
    Missing(#[source] kube::Error),
    /// It could not be written.
    #[error("cannot write MutatingWebhookConfiguration {CONFIGURATION}")]
    Write(#[source] kube::Error),
    /// Our own text of it does not read as the type it is.
    #[error("cannot write MutatingWebhookConfiguration {CONFIGURATION}: our own text of it is wrong")]
    Text(#[source] serde_json::Error),
}

/// Makes sure that the configuration exists and says what it should. Fields that somebody else added stay. An
/// installation has it from the start, and gives no right to create it.
pub(crate) async fn ensure(
    client: &Client,
    address: &WebhookAddress,
    ca_bundle: &str,
) -> Result<(), ConfigurationError> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let wanted = wanted(address, ca_bundle);
    let existing = api
        .get_opt(CONFIGURATION)
        .await
        .map_err(ConfigurationError::Read)?;
    let Some(existing) = existing else {
        let object = serde_json::from_value(wanted.clone()).map_err(ConfigurationError::Text)?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            // Another replica was faster; what it wrote may be of another version, so ours is patched over
            // it.
            Err(kube::Error::Api(status)) if status.code == 409 => return patch(&api, &wanted).await,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Err(ConfigurationError::Missing(kube::Error::Api(status)));
            }
            Err(error) => return Err(ConfigurationError::Write(error)),
        }
    };
    let existing = serde_json::to_value(existing).map_err(ConfigurationError::Text)?;
    if says(&existing, &wanted) {
        return Ok(());
    }
    patch(&api, &wanted).await
}

async fn patch(api: &Api<MutatingWebhookConfiguration>, wanted: &Value) -> Result<(), ConfigurationError> {
    let params = PatchParams::apply(names::FIELD_MANAGER);
    api.patch(CONFIGURATION, &params, &Patch::Merge(wanted))
        .await
        .map(|_| ())
        .map_err(ConfigurationError::Write)
}

/// Every field that has a default is written out, so that a difference is a difference.
fn wanted(address: &WebhookAddress, ca_bundle: &str) -> Value {
    let client_config = address.client_config(&STANDARD.encode(ca_bundle));
    let webhook = |name: &str, users: &[&str], rules: Value| {
        json!({
            "name": format!("{name}.guard.evenkeel.io"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config,
            // Without us nothing is worse than stock Kubernetes.
            "failurePolicy": "Ignore",
            "timeoutSeconds": TIMEOUT.as_secs(),
            "sideEffects": "None",
            "reinvocationPolicy": "Never",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "matchConditions": [{"name": "stock-controllers", "expression": users_expression(users)}],
            "rules": rules,
        })
    };
    let rule = |group: &str, operations: &[&str], resource: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["v1"], "operations": operations,
            "resources": [resource], "scope": "*",
        })
    };
    let node_users = &names::STOCK_NODE_CONTROLLER_USERS;
    let endpoint_users = &names::STOCK_ENDPOINT_CONTROLLER_USERS;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [
            webhook("pods", node_users, json!([rule("", &["UPDATE"], "pods/status")])),
            webhook("nodes", node_users, json!([rule("", &["UPDATE"], "nodes")])),
            webhook("endpoints", endpoint_users, json!([
                rule("", &["CREATE", "UPDATE"], "endpoints"),
                rule("discovery.k8s.io", &["CREATE", "UPDATE"], "endpointslices"),
            ])),
        ],
    })
}

/// CEL: only writes of these users are sent to us at all.
fn users_expression(users: &[&str]) -> String {
    let quoted: Vec<String> = users.iter().map(|user| format!("'{user}'")).collect();
    format!("request.userInfo.username in [{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> WebhookAddress {
        "service/evenkeel-system/evenkeel-webhook".parse().unwrap()
    }

    #[test]
    fn what_we_write_reads_back_as_what_we_want() {
        let wanted = wanted(&address(), "PEM");
        let typed: MutatingWebhookConfiguration = serde_json::from_value(wanted.clone()).unwrap();
        let mut existing = serde_json::to_value(typed).unwrap();
        assert!(says(&existing, &wanted), "{existing:#}");
        // What a server or a person adds beside it is left alone.
        existing["metadata"]["labels"] = json!({"team": "edge"});
        assert!(says(&existing, &wanted));
        existing["webhooks"][1]["failurePolicy"] = json!("Fail");
        assert!(!says(&existing, &wanted));
    }

    #[test]
    fn another_authority_or_address_is_a_difference() {
        let before = wanted(&address(), "OLD");
        assert!(!says(&before, &wanted(&address(), "NEW")));
        assert!(!says(
            &before,
            &wanted(&"https://127.0.0.1:1".parse().unwrap(), "OLD")
        ));
    }

    #[test]
    fn only_stock_controllers_reach_us_and_our_absence_hurts_nobody() {
        let wanted = wanted(&address(), "PEM");
        for webhook in wanted["webhooks"].as_array().unwrap() {
            let expression = webhook["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(
                expression.contains("'system:kube-controller-manager'"),
                "{expression}"
            );
            assert!(!expression.contains(names::NAMESPACE), "{expression}");
            assert_eq!(webhook["failurePolicy"], "Ignore");
            assert_eq!(webhook["timeoutSeconds"], 2);
        }
    }
}
