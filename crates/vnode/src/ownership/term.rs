//! For how long a node is served by this replica.

use evenkeel_election::Gate;
use evenkeel_kubelet_api::Term;
use tokio_util::sync::CancellationToken;

/// Lasts until `stop`, and no longer than the gate of the node's slot is open, by the gate's clock. Without a
/// gate there is no other replica.
pub fn term(stop: CancellationToken, gate: Option<Gate>) -> Term {
    let term = Term::new(stop);
    match gate {
        Some(gate) => term.only_while(move || gate.is_open()),
        None => term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_election::FencingToken;
    use futures::FutureExt as _;
    use std::cell::Cell;
    use std::pin::pin;
    use std::time::Duration;
    use tokio::sync::oneshot;

    fn token() -> FencingToken {
        FencingToken {
            lease_uid: "uid".to_owned(),
            transitions: 1,
        }
    }

    #[tokio::test]
    async fn nothing_is_begun_while_another_replica_may_serve_the_node() {
        let gate = Gate::new();
        let term = term(CancellationToken::new(), Some(gate.clone()));
        let begun = Cell::new(0);
        let work = || async { begun.set(begun.get() + 1) };
        assert_eq!(term.run(work()).await, None);
        gate.open(token(), Duration::MAX);
        assert_eq!(term.run(work()).await, Some(()));
        gate.close();
        assert_eq!((term.run(work()).await, begun.get()), (None, 1));
    }

    #[tokio::test]
    async fn work_that_is_woken_after_the_gate_has_closed_goes_no_further() {
        let gate = Gate::new();
        gate.open(token(), Duration::MAX);
        let term = term(CancellationToken::new(), Some(gate.clone()));
        let (answer, answered) = oneshot::channel();
        let mut work = pin!(term.run(answered));
        assert!(work.as_mut().now_or_never().is_none());
        gate.close();
        answer.send(()).unwrap();
        assert_eq!(work.await, None);
    }

    #[tokio::test]
    async fn the_end_of_what_is_under_way_is_waited_for() {
        let term = Term::default();
        let part = term.part();
        let (held, mut dropped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let work = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            part.run(work).await
        });
        tokio::task::yield_now().await;
        assert!(!term.ended(Duration::from_millis(1)).await);
        assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        term.stop().cancel();
        assert!(term.ended(Duration::from_secs(60)).await);
        assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(task.await.unwrap(), None);
    }
}
