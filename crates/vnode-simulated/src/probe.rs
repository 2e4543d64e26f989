//! Probes of containers without sockets: answered by their scripts.

use super::plan::Answer;
use super::{Simulated, identity};
use evenkeel_probe::core::{Attempt, Handler, Outcome, Verdict};
use evenkeel_vnode::provider::PodId;
use futures::future::BoxFuture;
use std::time::Duration;

impl Simulated {
    /// `None` where the container has sockets, or the probe is a command.
    pub(super) fn answer(&self, pod: &PodId, attempt: &Attempt) -> Option<BoxFuture<'static, Outcome>> {
        let handler = &attempt.probe.handler;
        if matches!(handler, Handler::Exec { .. }) {
            return None;
        }
        let now = self.0.now();
        let answer = {
            let mut table = self.0.table();
            let number = identity::parse(&attempt.target.container_id).map(|(_, number)| number);
            let found = table.pod(&pod.uid);
            let instance = found.and_then(|(record, _)| record.instance(number?));
            match instance {
                Some(instance) if instance.shape.plan.serve.is_some() => return None,
                Some(instance) if instance.ended.is_none() => {
                    let since = Duration::try_from(now.duration_since(instance.started)).unwrap_or_default();
                    let script = instance.shape.plan.script(attempt.key.kind);
                    script.map_or(Answer::Good, |script| script.at(since))
                }
                _ => Answer::Broken,
            }
        };
        let timeout = attempt.probe.timeout;
        let outcome = outcome(handler, answer);
        Some(Box::pin(async move {
            if answer == Answer::Silent {
                tokio::time::sleep(timeout).await;
            }
            outcome
        }))
    }
}

/// What the kubelet would have made of it.
fn outcome(handler: &Handler, answer: Answer) -> Outcome {
    match (handler, answer) {
        (Handler::HttpGet(_), Answer::Good) => Outcome::success("ok"),
        (Handler::HttpGet(_), Answer::Bad) => Outcome::failure("HTTP probe failed with statuscode: 503"),
        (Handler::HttpGet(get), Answer::Broken) => Outcome::failure(format!(
            "Get {:?}: dial tcp: connect: connection refused",
            format!("{}://{}", get.scheme.as_str(), get.path)
        )),
        (Handler::HttpGet(get), Answer::Silent) => Outcome::failure(format!(
            "Get {:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            format!("{}://{}", get.scheme.as_str(), get.path)
        )),
        (Handler::TcpSocket { .. }, Answer::Good) => Outcome::success(""),
        (Handler::TcpSocket { .. }, Answer::Bad | Answer::Broken) => {
            Outcome::failure("dial tcp: connect: connection refused")
        }
        (Handler::TcpSocket { .. }, Answer::Silent) => Outcome::failure("dial tcp: i/o timeout"),
        (Handler::Grpc { .. }, Answer::Good) => Outcome::success("service healthy"),
        (Handler::Grpc { .. }, Answer::Bad) => {
            Outcome::failure("service unhealthy (responded with \"NOT_SERVING\")")
        }
        (Handler::Grpc { port, .. }, Answer::Broken | Answer::Silent) => Outcome::failure(format!(
            "timeout: failed to connect service \":{port}\" within the probe's timeout: context deadline exceeded"
        )),
        (Handler::Exec { .. }, _) => {
            Outcome::error(Verdict::Unknown, "a command is no question for a script")
        }
    }
}
