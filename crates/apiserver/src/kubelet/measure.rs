//! What kubelets measure, requested from them when a client of `metrics.k8s.io` wants it.
//!
//! In a cluster metrics-server keeps the newest measurements. Here each request causes a request to the
//! kubelets for their summary. Further requests within the next seconds share its answer, so that cheap
//! requests cannot keep the kubelets busy.

use super::address::KubeletAddress;
use super::relay;
use super::transport::{Endpoint, Kubelets};
use evenkeel_kube_rules::table::usage::{cpu, memory};
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Kubelets that are requested at the same time, over all requests of clients.
pub(crate) const CONCURRENT_REQUESTS: usize = 32;
/// For how long a measurement, or the failure to get one, is shared: as long as kubelets average over.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// For how long a measurement may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest summary that is read.
const MAX_SUMMARY_BYTES: usize = 8 * 1024 * 1024;
/// What is read of a summary (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    pub(crate) node: Stats,
    pub(crate) pods: Vec<PodStats>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStats {
    pub(crate) pod_ref: PodRef,
    pub(crate) containers: Vec<Stats>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) name: String,
    cpu: Option<Cpu>,
    memory: Option<Memory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cpu {
    time: Option<String>,
    usage_nano_cores: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Memory {
    working_set_bytes: Option<u64>,
}

impl Stats {
    /// The `usage` of a metrics object; `None` unless both processor and memory were measured.
    pub(crate) fn usage(&self) -> Option<Value> {
        let nanocores = self.cpu.as_ref()?.usage_nano_cores?;
        let bytes = self.memory.as_ref()?.working_set_bytes?;
        Some(json!({"cpu": cpu(nanocores), "memory": memory(bytes)}))
    }

    /// When it was measured; `now` where the kubelet does not say.
    pub(crate) fn time(&self, now: Timestamp) -> String {
        let time = self.cpu.as_ref().and_then(|cpu| cpu.time.as_deref());
        let time = time.and_then(|text| text.parse().ok()).unwrap_or(now);
        rfc3339(time)
    }
}

/// A summary, or why there is none.
pub(crate) type Measured = Result<Arc<Summary>, String>;

/// Measurements that are being made or are still fresh, by the kubelet's address.
#[derive(Debug)]
pub(crate) struct Measurements {
    fresh: Mutex<HashMap<KubeletAddress, watch::Receiver<Option<Measured>>>>,
    permits: Semaphore,
}

impl Default for Measurements {
    fn default() -> Self {
        Self {
            fresh: Mutex::default(),
            permits: Semaphore::new(CONCURRENT_REQUESTS),
        }
    }
}

/// Removes a measurement when its task ends, however it ends.
struct RemoveOnDrop {
    measurements: Arc<Measurements>,
    address: KubeletAddress,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.measurements.lock().remove(&self.address);
    }
}

impl Measurements {
    fn lock(&self) -> MutexGuard<'_, HashMap<KubeletAddress, watch::Receiver<Option<Measured>>>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The measurement of a kubelet that is fresh or under way, or else a new one. A measurement runs to its
    /// end even where nobody waits for it any more, so that a client that gives up and asks again causes one
    /// request.
    pub(crate) async fn of(self: &Arc<Self>, kubelets: &Arc<Kubelets>, address: KubeletAddress) -> Measured {
        let mut measured = {
            let mut fresh = self.lock();
            if let Some(measured) = fresh.get(&address) {
                measured.clone()
            } else {
                let (sender, receiver) = watch::channel(None);
                fresh.insert(address.clone(), receiver.clone());
                let entry = RemoveOnDrop {
                    measurements: self.clone(),
                    address,
                };
                let kubelets = kubelets.clone();
                tokio::spawn(async move {
                    let measured = entry.measurements.with_permit(&kubelets, &entry.address).await;
                    sender.send_replace(Some(measured));
                    tokio::time::sleep(FRESH_FOR).await;
                    drop(entry);
                });
                receiver
            }
        };
        let measured = measured
            .wait_for(Option::is_some)
            .await
            .map_err(|_| "the measurement was given up".to_owned())?;
        measured
            .clone()
            .unwrap_or_else(|| Err("there is no measurement".to_owned()))
    }

    async fn with_permit(&self, kubelets: &Kubelets, address: &KubeletAddress) -> Measured {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        match tokio::time::timeout(TIMEOUT, fetch(kubelets, address)).await {
            Ok(summary) => summary.map(Arc::new),
            Err(_elapsed) => Err(format!("no answer within {TIMEOUT:?}")),
        }
    }
}

async fn fetch(kubelets: &Kubelets, address: &KubeletAddress) -> Result<Summary, String> {
    let response = relay::get(kubelets, &Endpoint::kubelet(address), "/stats/summary").await?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("the kubelet answered {status}"));
    }
    let body = relay::read(response, MAX_SUMMARY_BYTES).await?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}
