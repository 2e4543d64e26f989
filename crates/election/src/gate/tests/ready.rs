//! A service below that is busy: who waits for it, and who does not.

use super::*;
use futures::poll;
use std::task::Context;
use tower::{Layer as _, ServiceBuilder};

/// Never ready; says so when it is asked.
struct Busy(mpsc::UnboundedSender<()>);

impl Service<Request<Full<Bytes>>> for Busy {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = std::future::Ready<Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.send(()).unwrap();
        Poll::Pending
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        panic!("called though not ready")
    }
}

#[tokio::test]
async fn a_refused_write_does_not_wait_for_the_service_below() {
    let gate = Gate::with_clock(TestClock::at(0));
    let (asked, mut was_asked) = mpsc::unbounded_channel();
    let mut service = gate.layer().layer(Busy(asked));
    assert!(
        futures::future::poll_fn(|cx| service.poll_ready(cx))
            .await
            .is_ok()
    );
    assert!(is_closed(&error(poll!(service.call(request("POST"))))));
    assert!(was_asked.try_recv().is_err(), "touched");
    gate.open(term(1), Duration::MAX);
    let mut waits = service.call(request("POST"));
    assert!(poll!(&mut waits).is_pending());
    assert!(was_asked.try_recv().is_ok());
    gate.close();
    assert!(is_closed(&error(poll!(&mut waits))));
}

#[tokio::test]
async fn requests_that_wait_for_the_service_do_not_hold_each_other_up() {
    let gate = open_gate();
    let (calls, mut seen) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
    let inner = ServiceBuilder::new()
        .concurrency_limit(1)
        .service(tower::service_fn(move |_: Request<Full<Bytes>>| {
            let (done, wait) = oneshot::channel();
            calls.send(done).unwrap();
            async move {
                wait.await?;
                Ok::<_, BoxError>(Response::new(empty()))
            }
        }));
    let mut service = gate.layer().layer(inner);
    let first = tokio::spawn(service.call(request("POST")));
    let done = seen.recv().await.unwrap();
    // One that nobody polls any more is first in the row.
    let mut forgotten = service.call(request("GET"));
    assert!(poll!(&mut forgotten).is_pending());
    let others: Vec<_> = ["GET", "POST", "GET"]
        .into_iter()
        .map(|method| tokio::spawn(service.call(request(method))))
        .collect();
    tokio::task::yield_now().await;
    assert!(seen.try_recv().is_err());
    done.send(()).unwrap();
    drop(first.await.unwrap().unwrap());
    for _ in 0..others.len() {
        seen.recv().await.unwrap().send(()).unwrap();
    }
    for other in others {
        drop(other.await.unwrap().unwrap());
    }
    assert!(poll!(&mut forgotten).is_pending());
    seen.recv().await.unwrap().send(()).unwrap();
    assert!(poll!(&mut forgotten).is_ready());
}
