//! A gate whose time runs out, with nobody there to close it.

use super::*;
use futures::poll;

fn gate_until(seconds: u64) -> (Gate, Arc<TestClock>) {
    let clock = TestClock::at(10);
    let gate = Gate::with_clock(Arc::<TestClock>::clone(&clock));
    gate.open(term(1), Duration::from_secs(seconds));
    (gate, clock)
}

#[tokio::test]
async fn the_clock_shuts_the_gate_not_a_task() {
    let (gate, clock) = gate_until(20);
    let (mut service, mut backend) = behind(&gate);
    clock.set(19);
    assert_eq!(gate.check(), Ok(term(1)));
    let mut written = service.call(request("POST"));
    assert!(poll!(&mut written).is_pending());
    clock.set(20);
    assert_eq!(gate.check(), Err(GateClosed));
    assert_eq!(
        (gate.token(), gate.is_open(), gate.valid_until()),
        (None, false, None)
    );
    assert!(is_closed(&error(poll!(service.call(request("POST"))))));
    assert!(poll!(service.call(request("GET"))).is_pending());
    assert_eq!(gate.rejections(), 2);
    // In flight: its next poll reads the clock, whatever the server answered.
    let call = backend.call();
    call.respond(full("ok"));
    assert!(is_closed(&error(poll!(&mut written))));
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn writes_that_wait_are_woken_when_the_time_runs_out() {
    let (gate, clock) = gate_until(20);
    let (mut service, mut backend) = behind(&gate);
    let mut waiters = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..3 {
        waiters.push(tokio::spawn(service.call(request("POST"))));
        calls.push(backend.calls.recv().await.unwrap());
    }
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let (sender, body) = stream();
    backend.call().respond(body);
    let mut body = response(poll!(&mut answer));
    let reader = tokio::spawn(async move { body.frame().await.unwrap().unwrap_err() });
    tokio::task::yield_now().await;
    clock.set(20);
    for waiter in waiters {
        assert!(is_closed(&ended(waiter).await.err().unwrap()));
    }
    assert!(is_closed(&ended(reader).await));
    assert!(calls.iter().all(Call::is_given_up) && sender.is_closed());
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn a_renewal_moves_the_end_for_the_writes_in_flight() {
    let (gate, clock) = gate_until(20);
    let (mut service, mut backend) = behind(&gate);
    let kept = tokio::spawn(service.call(request("POST")));
    let call = backend.calls.recv().await.unwrap();
    let cut = tokio::spawn(service.call(request("PUT")));
    let pending = backend.calls.recv().await.unwrap();
    for renewed in [30, 40, 50] {
        gate.open(term(1), Duration::from_secs(renewed));
        // Past the end before, for which the timer was set: it rings, and is set anew.
        clock.set(renewed - 5);
        tokio::task::yield_now().await;
        assert_eq!(gate.valid_until(), Some(Duration::from_secs(renewed)));
    }
    assert_eq!(gate.in_flight(), 2);
    call.respond(full("ok"));
    assert_eq!(
        kept.await
            .unwrap()
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes(),
        "ok"
    );
    clock.set(50);
    assert!(is_closed(&ended(cut).await.err().unwrap()));
    assert!(pending.is_given_up());
}

#[tokio::test]
async fn no_write_survives_a_time_in_which_the_gate_was_shut() {
    let (gate, clock) = gate_until(20);
    let (mut service, mut backend) = behind(&gate);
    let mut old = service.call(request("POST"));
    assert!(poll!(&mut old).is_pending());
    clock.set(25);
    // The renewal came too late for it, though nobody looked in between.
    gate.open(term(1), Duration::from_secs(40));
    assert!(backend.call().is_given_up());
    assert!(is_closed(&error(poll!(&mut old))));
    let mut new = service.call(request("POST"));
    assert!(poll!(&mut new).is_pending());
    assert_eq!(gate.in_flight(), 1);
}

#[tokio::test]
async fn an_end_before_the_present_one_changes_nothing() {
    let (gate, clock) = gate_until(20);
    gate.open(term(1), Duration::from_secs(15));
    assert_eq!(gate.valid_until(), Some(Duration::from_secs(20)));
    gate.close();
    gate.open(term(1), Duration::from_secs(15));
    assert_eq!(gate.valid_until(), Some(Duration::from_secs(15)));
    clock.set(15);
    assert!(!gate.is_open());
    gate.close();
    gate.open(term(2), Duration::from_secs(15));
    assert!(!gate.is_open(), "opened for a time that has passed");
}

#[tokio::test]
async fn the_timer_of_a_term_that_was_closed_does_not_hold_up_the_next() {
    let (gate, clock) = gate_until(1000);
    let (mut service, mut backend) = behind(&gate);
    let long = tokio::spawn(service.call(request("POST")));
    let _call = backend.calls.recv().await.unwrap();
    gate.close();
    assert!(is_closed(&ended(long).await.err().unwrap()));
    gate.open(term(2), Duration::from_secs(20));
    let short = tokio::spawn(service.call(request("POST")));
    let _call = backend.calls.recv().await.unwrap();
    clock.set(20);
    assert!(is_closed(&ended(short).await.err().unwrap()));
}

#[tokio::test]
async fn a_gate_without_an_end_sets_no_timer() {
    let gate = Gate::with_clock(TestClock::at(0));
    gate.open(term(1), Duration::MAX);
    let (mut service, _backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    assert_eq!(gate.valid_until(), Some(Duration::MAX));
    assert!(!gate.registry.expiry.is_set());
    gate.open(term(2), Duration::from_secs(5));
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    assert!(gate.registry.expiry.is_set());
}

#[tokio::test]
async fn the_machines_clock_wakes_a_write_that_waits() {
    let gate = Gate::new();
    let (service, mut backend) = behind(&gate);
    // A machine so slow that the time is over before the write is sent must try again.
    let (waiter, call) = loop {
        gate.open(term(1), SystemClock.boot() + Duration::from_millis(300));
        let mut waiter = tokio::spawn(service.clone().call(request("POST")));
        tokio::select! {
            biased;
            call = backend.calls.recv() => break (waiter, call.unwrap()),
            refused = &mut waiter => assert!(is_closed(&refused.unwrap().err().unwrap())),
        }
    };
    // Nobody closes, and nobody polls: this ends if the timer wakes it.
    assert!(is_closed(&ended(waiter).await.err().unwrap()));
    assert!(call.is_given_up());
}
