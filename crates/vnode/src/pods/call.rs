//! Calls of a provider: with a deadline, with panics caught, and counted.

use crate::fleet::metrics::{CallResult, Metrics};
use crate::ownership::Term;
use crate::provider::{Fault, FaultKind};
use futures::FutureExt as _;
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

/// Reason of a fault made of a panic.
pub(crate) const PANICKED: &str = "ProviderPanicked";
/// Reason of a fault made of silence.
pub(crate) const LATE: &str = "ProviderTimeout";
/// Reason of a fault made of an answer that cannot be.
pub(crate) const NONSENSE: &str = "ProviderNonsense";

/// Reason of a fault made of a gate that is closed.
pub(crate) const FENCED: &str = "NodeNotOurs";

/// Tasks on behalf of one node. Nothing of them is left when it is stopped. Cheap to clone: each task has
/// one.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Shared>,
}

struct Shared {
    term: Term,
    metrics: Metrics,
}

impl Calls {
    pub(crate) fn new(term: Term, metrics: Metrics) -> Self {
        Self {
            shared: Arc::new(Shared { term, metrics }),
        }
    }

    /// Does something in a task of its own until the node is stopped. A panic ends the task alone, with a log
    /// line.
    pub(crate) fn spawn(&self, what: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shared.term.stop().clone();
        // Unboxed, it would take its room in each of the futures around it.
        let work = Box::pin(work);
        self.shared.term.tasks().spawn(async move {
            let work = AssertUnwindSafe(stop.run_until_cancelled_owned(work)).catch_unwind();
            if let Err(panic) = work.await {
                tracing::error!(what, panic = panic_text(&*panic), "a task of a node has panicked");
            }
        });
    }

    /// Asks the provider. The call runs in a task of its own, so that one that blocks its thread is late like
    /// any other; it is told to end when it is late, when its node is stopped, and when nobody waits for it
    /// any more. While the slot's gate is closed it is not made at all, and one that is under way takes no
    /// further step.
    pub(crate) async fn run<T, F>(
        &self,
        call: &'static str,
        deadline: Duration,
        future: F,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let begun = Instant::now();
        let term = self.shared.term.clone();
        let task = async move { term.run(future).await }.in_current_span();
        let task = AbortOnDropHandle::new(self.shared.term.tasks().spawn(task));
        let (result, answer) = match tokio::time::timeout(deadline, task).await {
            Ok(Ok(None)) => {
                let message = format!("the provider may not {call}: another replica may serve the node");
                let fault = Fault::new(FaultKind::Later, FENCED, message);
                (CallResult::Fenced, Err(fault))
            }
            Ok(Ok(Some(Ok(answer)))) => (CallResult::Ok, Ok(answer)),
            Ok(Ok(Some(Err(fault)))) => {
                let result = match fault.reason.as_str() {
                    NONSENSE => CallResult::Nonsense,
                    _ => CallResult::Fault,
                };
                (result, Err(fault))
            }
            Ok(Err(end)) => {
                let text = match end.try_into_panic() {
                    Ok(panic) => panic_text(&*panic),
                    Err(end) => end.to_string(),
                };
                tracing::error!(call, panic = text, "the provider has panicked");
                let message = format!("the provider panicked in {call}: {text}");
                let fault = Fault::new(FaultKind::Later, PANICKED, message);
                (CallResult::Panicked, Err(fault))
            }
            Err(_) => {
                let message = format!("the provider did not answer {call} within {deadline:?}");
                (CallResult::Late, Err(Fault::new(FaultKind::Later, LATE, message)))
            }
        };
        self.shared.metrics.called(call, result, begun.elapsed());
        answer
    }

    /// Waits until nothing is left, streams and probes of the node included, for `most` at the longest;
    /// returns whether nothing is. To be called once all is stopped.
    pub(crate) async fn ended(&self, most: Duration) -> bool {
        self.shared.term.ended(most).await
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership;
    use evenkeel_election::Gate;
    use tokio_util::sync::CancellationToken;

    fn calls() -> Calls {
        Calls::new(Term::default(), Metrics::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_a_fault_that_may_pass() {
        let future = std::future::pending::<Result<(), Fault>>();
        let fault = calls()
            .run("create", Duration::from_secs(120), future)
            .await
            .unwrap_err();
        assert_eq!((fault.kind, fault.reason.as_str()), (FaultKind::Later, LATE));
        assert!(fault.message.contains("create within 120s"), "{fault}");
    }

    #[tokio::test]
    async fn nothing_is_asked_while_another_replica_may_serve_the_node() {
        let gate = Gate::new();
        let calls = Calls::new(
            ownership::term(CancellationToken::new(), Some(gate.clone())),
            Metrics::default(),
        );
        let future = || async { Ok::<_, Fault>(()) };
        let refused = async |calls: &Calls| {
            let fault = calls.run("delete", Duration::from_secs(9), future()).await;
            let fault = fault.unwrap_err();
            (fault.kind, fault.reason)
        };
        let fenced = (FaultKind::Later, FENCED.to_owned());
        assert_eq!(refused(&calls).await, fenced);
        let term = evenkeel_election::FencingToken {
            lease_uid: "uid".to_owned(),
            transitions: 1,
        };
        gate.open(term, Duration::MAX);
        assert!(
            calls
                .run("delete", Duration::from_secs(9), future())
                .await
                .is_ok()
        );
        gate.close();
        assert_eq!(refused(&calls).await, fenced);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_no_step_after_its_nodes_time() {
        let gate = Gate::new();
        let calls = Calls::new(
            ownership::term(CancellationToken::new(), Some(gate.clone())),
            Metrics::default(),
        );
        let term = evenkeel_election::FencingToken {
            lease_uid: "uid".to_owned(),
            transitions: 1,
        };
        gate.open(term, Duration::MAX);
        let (go_on, wait) = tokio::sync::oneshot::channel();
        let (done, stepped) = tokio::sync::oneshot::channel();
        let future = async move {
            let _ = wait.await;
            let _ = done.send(());
            Ok(())
        };
        let asking = calls.run("create", Duration::from_secs(600), future);
        let closing = async {
            tokio::task::yield_now().await;
            gate.close();
            let _ = go_on.send(());
        };
        let (answer, ()) = tokio::join!(asking, closing);
        assert_eq!(answer.unwrap_err().reason, FENCED);
        assert!(
            stepped.await.is_err(),
            "the call went on after the gate had closed"
        );
    }

    #[tokio::test]
    async fn a_panic_is_a_fault_that_may_pass() {
        let panics = async || -> Result<(), Fault> { panic!("no such base") };
        let fault = calls()
            .run("start", Duration::from_secs(9), panics())
            .await
            .unwrap_err();
        assert_eq!((fault.kind, fault.reason.as_str()), (FaultKind::Later, PANICKED));
        assert!(fault.message.ends_with("start: no such base"), "{fault}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_a_node_that_is_stopped() {
        let stop = CancellationToken::new();
        let calls = Calls::new(Term::new(stop.clone()), Metrics::default());
        let (held, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let asking = calls.clone();
        calls.spawn("a call", async move {
            let future = async move {
                let _held = held;
                std::future::pending::<Result<(), Fault>>().await
            };
            let _ = asking.run("stop", Duration::from_secs(600), future).await;
        });
        tokio::task::yield_now().await;
        assert!(dropped.try_recv().is_err());
        stop.cancel();
        assert!(calls.ended(Duration::from_secs(2)).await);
        assert!(matches!(
            dropped.try_recv(),
            Err(tokio::sync::oneshot::error::TryRecvError::Closed)
        ));
    }
}
