//! What is in flight, and what closing does to it.

use super::*;
use futures::poll;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::Layer as _;

#[tokio::test]
async fn closing_drops_the_writes_in_flight_before_it_returns_and_wakes_their_waiters() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut waiters = Vec::new();
    let mut calls = Vec::new();
    for method in ["POST", "PUT", "PATCH", "DELETE", "POST"] {
        waiters.push(tokio::spawn(service.call(request(method))));
        calls.push(backend.calls.recv().await.unwrap());
    }
    assert_eq!(gate.in_flight(), 5);
    assert!(calls.iter().all(|call| !call.is_given_up()));
    gate.close();
    assert!(calls.iter().all(Call::is_given_up));
    assert_eq!(gate.in_flight(), 0);
    for waiter in waiters {
        assert!(is_closed(&ended(waiter).await.err().unwrap()));
    }
    assert_eq!(gate.rejections(), 0, "none was refused");
}

#[tokio::test]
async fn a_write_that_was_not_sent_yet_never_is() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    gate.close();
    gate.open(term(1), Duration::MAX);
    assert!(is_closed(&error(poll!(&mut answer))));
    assert!(is_closed(&error(poll!(&mut answer))));
    assert!(backend.is_untouched());
}

#[tokio::test]
async fn closing_leaves_reads_alone() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut early = service.call(request("GET"));
    assert!(poll!(&mut early).is_pending());
    let (watch, body) = stream();
    backend.call().respond(body);
    let mut early = response(poll!(&mut early));
    let mut late = service.call(request("GET"));
    assert!(poll!(&mut late).is_pending());
    assert_eq!(gate.in_flight(), 0);
    gate.close();
    send(&watch, "event");
    assert!(matches!(frame!(early), Poll::Ready(Some(Ok(text))) if text == "event"));
    backend.call().respond(full("ok"));
    assert_eq!(
        response(poll!(&mut late)).collect().await.unwrap().to_bytes(),
        "ok"
    );
}

#[tokio::test]
async fn a_write_is_in_flight_until_its_body_is_read_or_dropped() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    for read in [true, false] {
        let mut answer = service.call(request("POST"));
        assert_eq!(gate.in_flight(), 1);
        assert!(poll!(&mut answer).is_pending());
        let (sender, body) = stream();
        backend.call().respond(body);
        let mut body = response(poll!(&mut answer));
        drop(answer);
        send(&sender, "all");
        assert!(frame!(body).is_ready());
        assert!(frame!(body).is_pending());
        assert_eq!(gate.in_flight(), 1);
        if read {
            sender.close_channel();
            assert!(matches!(frame!(body), Poll::Ready(None)));
        } else {
            drop(body);
            assert!(sender.is_closed());
        }
        assert_eq!(gate.in_flight(), 0);
    }
}

#[tokio::test]
async fn a_body_cut_by_closing_says_so() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let (sender, body) = stream();
    backend.call().respond(body);
    let mut body = response(poll!(&mut answer));
    send(&sender, "half");
    assert!(frame!(body).is_ready());
    let reader = tokio::spawn(async move { body.frame().await.unwrap().unwrap_err() });
    // It waits for the other half, or has not begun to: both must end in the same way.
    tokio::task::yield_now().await;
    gate.close();
    assert!(sender.is_closed());
    assert!(is_closed(&ended(reader).await));
}

#[tokio::test]
async fn a_body_cut_between_two_reads_does_not_look_finished() {
    use http_body::Body as _;
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    backend.call().respond(full("whole"));
    let mut body = response(poll!(&mut answer));
    assert_eq!(body.size_hint().exact(), Some(5));
    gate.close();
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), None);
    assert!(matches!(frame!(body), Poll::Ready(Some(Err(error))) if is_closed(&error)));
    assert!(matches!(frame!(body), Poll::Ready(None)));
}

#[tokio::test]
async fn what_is_complete_is_complete() {
    use http_body::Body as _;
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    // No body at all: complete with its head.
    let mut answer = service.call(request("DELETE"));
    assert!(poll!(&mut answer).is_pending());
    backend.call().respond(empty());
    let mut nothing = response(poll!(&mut answer));
    assert_eq!(gate.in_flight(), 0);
    assert!(nothing.is_end_stream());
    assert_eq!(nothing.size_hint().exact(), Some(0));
    // Complete with the part that says so, read to the end or not.
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    backend.call().respond(full("ok"));
    let mut body = response(poll!(&mut answer));
    assert_eq!(gate.in_flight(), 1);
    assert!(matches!(frame!(body), Poll::Ready(Some(Ok(text))) if text == "ok"));
    assert_eq!(gate.in_flight(), 0);
    assert!(body.is_end_stream());
    gate.close();
    assert!(matches!(frame!(nothing), Poll::Ready(None)));
    assert!(matches!(frame!(body), Poll::Ready(None)));
}

#[tokio::test]
async fn an_upgraded_connection_was_checked_at_its_handshake_only() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let (_sender, body) = stream();
    let mut switching = Response::new(body);
    *switching.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    switching.extensions_mut().insert("the connection");
    assert!(backend.call().answer.send(Ok(switching)).is_ok());
    let Poll::Ready(Ok(switched)) = poll!(&mut answer) else {
        panic!("no answer")
    };
    assert_eq!(gate.in_flight(), 0);
    gate.close();
    assert_eq!(switched.extensions().get::<&str>(), Some(&"the connection"));
}

#[tokio::test]
async fn closing_cuts_the_writes_of_its_own_term_only() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut old = service.call(request("POST"));
    assert!(poll!(&mut old).is_pending());
    gate.close();
    gate.open(term(2), Duration::MAX);
    let mut new = service.call(request("POST"));
    assert!(poll!(&mut new).is_pending());
    assert!(is_closed(&error(poll!(&mut old))));
    drop(old);
    assert_eq!(gate.in_flight(), 1);
    assert!(backend.call().is_given_up());
    backend.call().respond(full("ok"));
    assert_eq!(
        response(poll!(&mut new)).collect().await.unwrap().to_bytes(),
        "ok"
    );
}

#[tokio::test]
async fn a_term_that_follows_without_a_closing_cuts_the_writes_of_the_one_before() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut old = service.call(request("POST"));
    assert!(poll!(&mut old).is_pending());
    gate.open(term(1), Duration::MAX);
    assert!(poll!(&mut old).is_pending());
    gate.open(term(2), Duration::MAX);
    assert!(backend.call().is_given_up());
    assert!(is_closed(&error(poll!(&mut old))));
    assert_eq!(gate.token(), Some(term(2)));
}

#[tokio::test]
async fn a_caller_that_gives_up_ends_its_write() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let call = backend.call();
    drop(answer);
    assert!(call.is_given_up());
    assert_eq!(gate.in_flight(), 0);
    drop(service.call(request("POST")));
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn a_write_that_panics_is_released() {
    let gate = open_gate();
    let mut service = gate
        .layer()
        .layer(tower::service_fn(|_: Request<Full<Bytes>>| async {
            panic!("the service is broken");
            #[expect(unreachable_code, reason = "for its type")]
            Ok::<Response<TestBody>, BoxError>(Response::new(empty()))
        }));
    let task = tokio::spawn(service.call(request("POST")));
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(gate.in_flight(), 0);
    // And those who keep what panicked do not get past the gate with it.
    let mut answer = service.call(request("POST"));
    let caught = std::panic::AssertUnwindSafe(&mut answer).catch_unwind().await;
    assert!(caught.is_err());
    gate.close();
    assert!(is_closed(&error(poll!(&mut answer))));
}

/// Closes the gate when it is dropped.
struct ClosesOnDrop(Gate, Arc<AtomicUsize>);

impl Drop for ClosesOnDrop {
    fn drop(&mut self) {
        self.0.close();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_write_may_close_the_gate_it_went_through() {
    let gate = open_gate();
    let closes = gate.clone();
    let mut service = gate
        .layer()
        .layer(tower::service_fn(move |_: Request<Full<Bytes>>| {
            closes.close();
            async { Ok::<_, BoxError>(Response::new(full("written"))) }
        }));
    let mut answer = service.call(request("POST"));
    assert!(is_closed(&error(poll!(&mut answer))));
    assert!(!gate.is_open());

    // And so may what is dropped with one.
    let (dropped, inner) = (Arc::new(AtomicUsize::new(0)), gate.clone());
    let counted = Arc::clone(&dropped);
    let mut service = gate
        .layer()
        .layer(tower::service_fn(move |_: Request<Full<Bytes>>| {
            let closes = ClosesOnDrop(inner.clone(), Arc::clone(&counted));
            async move {
                std::future::pending::<()>().await;
                drop(closes);
                Ok::<_, BoxError>(Response::new(empty()))
            }
        }));
    gate.open(term(2), Duration::MAX);
    let mut cut = service.call(request("POST"));
    assert!(poll!(&mut cut).is_pending());
    gate.close();
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    gate.open(term(3), Duration::MAX);
    let mut given_up = service.call(request("POST"));
    assert!(poll!(&mut given_up).is_pending());
    drop(given_up);
    assert_eq!((dropped.load(Ordering::Relaxed), gate.is_open()), (2, false));
}
