//! The configurations, compiled once per generation.

use super::client::WebhookClient;
use crate::access::admission::expression::Conditions;
use crate::access::admission::matching::{Constraints, GROUP, by_name};
use crate::options::PodRoutes;
use crate::request::Reader;
use arc_swap::ArcSwapOption;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const DEFAULT_SECONDS: u64 = 10;

/// Which kind of webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    fn resource(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// All webhooks of a kind in the order of their calls.
pub(super) struct Compiled {
    of: u64,
    pub(super) webhooks: Vec<Webhook>,
}

impl Compiled {
    /// That of the present generation; made anew if a configuration changed, with the connections of before.
    pub(super) fn current(
        cache: &ArcSwapOption<Self>,
        kind: Kind,
        reader: &dyn Reader,
        pods: &PodRoutes,
    ) -> Arc<Self> {
        let of = reader.generation(GROUP, kind.resource());
        let cached = cache.load_full();
        if let Some(cached) = &cached
            && cached.of == of
        {
            return cached.clone();
        }
        let before = cached.as_ref().map_or(&[][..], |cached| &cached.webhooks);
        let webhooks = by_name(reader, kind.resource())
            .iter()
            .flat_map(|configuration| configuration["webhooks"].as_array().into_iter().flatten())
            .map(|webhook| Webhook::new(webhook, before, pods))
            .collect();
        let compiled = Arc::new(Self { of, webhooks });
        cache.store(Some(compiled.clone()));
        compiled
    }
}

/// What a webhook says of side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// Has none, or none on dry runs: may be called on a dry run.
    NoneOnDryRun,
    /// May have some.
    Some,
}

/// One webhook of a configuration.
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) constraints: Constraints,
    pub(super) conditions: Conditions,
    pub(super) ignore_failures: bool,
    pub(super) reinvoke: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Duration,
    pub(super) client: Arc<WebhookClient>,
}

impl Webhook {
    fn new(webhook: &Value, before: &[Self], pods: &PodRoutes) -> Self {
        let text = |key: &str| webhook[key].as_str().unwrap_or_default();
        let client = before
            .iter()
            .map(|other| &other.client)
            .find(|client| client.is_for(&webhook["clientConfig"]))
            .cloned()
            .unwrap_or_else(|| Arc::new(WebhookClient::new(&webhook["clientConfig"], pods)));
        Self {
            name: text("name").to_owned(),
            constraints: Constraints::of_webhook(webhook),
            conditions: Conditions::new(&webhook["matchConditions"]),
            ignore_failures: text("failurePolicy") == "Ignore",
            reinvoke: text("reinvocationPolicy") == "IfNeeded",
            side_effects: match text("sideEffects") {
                "None" | "NoneOnDryRun" => SideEffects::NoneOnDryRun,
                _ => SideEffects::Some,
            },
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_SECONDS)),
            client,
        }
    }
}
