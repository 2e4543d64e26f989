//! Numbers of a fleet.

use evenkeel_api::names::vnode::metrics as names;
use kube::Client;
use kube::client::Body;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::borrow::Cow;
use std::time::Duration;

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub(crate) fn of(phase: Option<&str>) -> Self {
        match phase {
            None | Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum WriteResult {
    /// The status is written.
    Written,
    /// The pod is deleted.
    Removed,
    /// The pod was gone, or another one has its name. Nothing is left to do.
    Overtaken,
    /// The API server refuses it. It is not tried again.
    Refused,
    /// It failed, and is tried again.
    Failed,
}

/// How a provider's call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum CallResult {
    /// The provider has done it.
    Ok,
    /// The provider answered with a fault.
    Fault,
    /// The provider did not answer before the deadline.
    Late,
    /// The provider panicked, which is a mistake in its code.
    Panicked,
    /// The call was not made, or was stopped, because another replica may serve the node by now.
    Fenced,
    /// The provider gave an answer that cannot be true.
    Nonsense,
}

/// What became of a pod that only the provider knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum StrayResult {
    /// It was seen for the first time, and is deleted if it stays.
    Sighted,
    /// It is deleted from the provider.
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phased {
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    result: WriteResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    call: &'static str,
    result: CallResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stray {
    result: StrayResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    method: Cow<'static, str>,
    code: u16,
}

/// 1 ms to 131 s.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 18))
}

evenkeel_net::metrics! {
    /// The metrics of a fleet; clones are the same ones.
    pub(crate) struct Metrics {
        nodes: Gauge = names::NODES, "Nodes that this replica serves";
        nodes_ready: Gauge = names::NODES_READY, "Nodes that this replica serves and that are registered and well";
        pods: Family<Phased, Gauge> = names::PODS, "Pods on the nodes that this replica serves";
        writes: Family<Written, Counter> = names::WRITES, "Writes of the statuses of pods, and removals of pods";
        latency: Histogram =
            names::WRITE_LATENCY, "Time from the decision what a pod's status is to its being written", buckets();
        queue: Gauge = names::QUEUE, "Pods whose status waits to be written";
        calls: Family<Called, Counter> = names::CALLS, "Calls of the provider, by its function and by result";
        durations: Family<Named, Histogram> =
            names::CALL_DURATION, "How long calls of the provider took", Family::new_with_constructor(buckets);
        strays: Family<Stray, Counter> = names::STRAYS, "Pods that only the provider knew, by what became of them";
        requests: Family<Requested, Counter> = names::REQUESTS, "Requests to the API server";
    }
}

impl Metrics {
    pub(crate) fn nodes(&self, more: i64) {
        self.nodes.inc_by(more);
    }

    pub(crate) fn nodes_ready(&self, more: i64) {
        self.nodes_ready.inc_by(more);
    }

    /// A pod's phase is another now; `None` before it came and after it went.
    pub(crate) fn phase(&self, before: Option<Phase>, after: Option<Phase>) {
        if before == after {
            return;
        }
        if let Some(phase) = before {
            self.pods.get_or_create(&Phased { phase }).dec();
        }
        if let Some(phase) = after {
            self.pods.get_or_create(&Phased { phase }).inc();
        }
    }

    pub(crate) fn wrote(&self, result: WriteResult, latency: Duration) {
        self.writes.get_or_create(&Written { result }).inc();
        if result == WriteResult::Written {
            self.latency.observe(latency.as_secs_f64());
        }
    }

    pub(crate) fn queue(&self, length: usize) {
        self.queue.set(i64::try_from(length).unwrap_or(i64::MAX));
    }

    pub(crate) fn called(&self, call: &'static str, result: CallResult, took: Duration) {
        self.calls.get_or_create(&Called { call, result }).inc();
        self.durations
            .get_or_create(&Named { call })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn stray(&self, result: StrayResult) {
        self.strays.get_or_create(&Stray { result }).inc();
    }

    /// A client that does what `client` does, with its requests counted.
    pub(crate) fn counting(&self, client: &Client) -> Client {
        let (inner, requests) = (client.clone(), self.requests.clone());
        let send = tower::service_fn(move |request: http::Request<Body>| {
            let (client, requests) = (inner.clone(), requests.clone());
            let method = match request.method().as_str() {
                "GET" => Cow::Borrowed("GET"),
                "POST" => Cow::Borrowed("POST"),
                "PATCH" => Cow::Borrowed("PATCH"),
                "PUT" => Cow::Borrowed("PUT"),
                "DELETE" => Cow::Borrowed("DELETE"),
                other => Cow::Owned(other.to_owned()),
            };
            async move {
                let answer = client.send(request).await;
                // 0: none came.
                let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                requests.get_or_create(&Requested { method, code }).inc();
                answer
            }
        });
        Client::new(send, client.default_namespace().to_owned())
    }
}
