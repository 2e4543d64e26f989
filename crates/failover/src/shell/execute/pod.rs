//! Writes to Pods.

use super::{Executor, Outcome, Result, only, params, settled};
use crate::clock::wall;
use evenkeel_api::names::conditions;
use evenkeel_failover_rules::world::facts::PodRef;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::json;

impl Executor {
    fn pods(&self, pod: &PodRef) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }

    /// Writes the Ready condition of the pod that was decided upon, and of no newer one.
    pub(super) async fn mark_pod(
        &self,
        pod: &PodRef,
        version: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<Outcome> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let patch = json!({
            "metadata": { "uid": pod.uid, "resourceVersion": version },
            "status": { "conditions": [{
                "type": "Ready",
                "status": status,
                "reason": text(reason),
                "message": text(message),
                "lastTransitionTime": Time(wall()),
            }]},
        });
        let answer = self
            .pods(pod)
            .patch_status(&pod.name, &params(), &Patch::Strategic(patch))
            .await;
        settled(format!("write Ready={status} of pod {pod}"), answer)
    }

    /// Says why and under which term, then deletes: with the UID as precondition, so that a namesake made
    /// meanwhile lives, and with the pod's own grace period. Disruption budgets do not hold back pods of dead
    /// nodes. `version`: of the pod that was decided upon, and of no newer one. `check` is asked before each
    /// write.
    pub(super) async fn evict(
        &self,
        pod: &PodRef,
        version: Option<&str>,
        message: &str,
        check: &(impl Fn() -> Result<()> + Sync),
    ) -> Result<Outcome> {
        check()?;
        let mut patch = json!({
            "metadata": { "uid": pod.uid, "annotations": self.stamp() },
            "status": { "conditions": [{
                "type": conditions::DISRUPTION_TARGET,
                "status": "True",
                "reason": conditions::REASON_EVICTED,
                "message": message,
                "lastTransitionTime": Time(wall()),
            }]},
        });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let what = || format!("evict pod {pod}");
        let answer = self
            .pods(pod)
            .patch_status(&pod.name, &params(), &Patch::Strategic(patch))
            .await;
        let written = answer.as_ref().ok().and_then(Pod::resource_version);
        if settled(what(), answer)? == Outcome::Stale {
            return Ok(Outcome::Stale);
        }
        check()?;
        let only = only(&pod.uid, version.and(written));
        let answer = self.pods(pod).delete(&pod.name, &only).await;
        settled(what(), answer)
    }
}
