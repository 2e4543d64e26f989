//! Closing while other threads are at it.

use super::*;
use futures::TryFutureExt as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc as blocking;
use std::task::{Context, Waker};
use tower::Layer as _;

/// Counts how many of what it is kept in are alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn closing_waits_for_a_poll_under_way_on_another_thread() {
    let gate = open_gate();
    let alive = Arc::new(AtomicUsize::new(0));
    let (entered, has_entered) = blocking::channel();
    let (go_on, may_go_on) = blocking::channel::<()>();
    let may_go_on = Arc::new(std::sync::Mutex::new(may_go_on));
    let counted = Arc::clone(&alive);
    let mut service = gate
        .layer()
        .layer(tower::service_fn(move |_: Request<Full<Bytes>>| {
            let (alive, entered) = (Alive::new(&counted), entered.clone());
            let may_go_on = Arc::clone(&may_go_on);
            async move {
                let _alive = alive;
                entered.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
                std::future::pending::<Answer>().await
            }
        }));
    let mut answer = service.call(request("POST"));
    let polling = std::thread::spawn(move || {
        let polled = Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop()));
        (polled, answer)
    });
    has_entered.recv().unwrap();
    let closers: Vec<_> = (0..2)
        .map(|_| {
            let (gate, alive) = (gate.clone(), Arc::clone(&alive));
            std::thread::spawn(move || {
                gate.close();
                alive.load(Ordering::SeqCst)
            })
        })
        .collect();
    while gate.is_open() {
        std::thread::yield_now();
    }
    // However long one would wait: neither the one that found the write nor the one that came second.
    assert!(closers.iter().all(|closer| !closer.is_finished()));
    assert!(is_closed(&error(futures::executor::block_on(async {
        futures::poll!(service.call(request("POST")))
    }))));
    go_on.send(()).unwrap();
    for closer in closers {
        assert_eq!(closer.join().unwrap(), 0, "closed, and the write is still there");
    }
    let (polled, _answer) = polling.join().unwrap();
    assert!(is_closed(&error(polled)), "the poll that was cut says so itself");
}

/// The answer to its end.
fn whole(answer: TestFuture) -> BoxFuture<'static, Result<(), BoxError>> {
    let body = answer.and_then(|response| response.into_body().collect());
    body.map_ok(drop).boxed()
}

/// The promise of `close`, under load: when it returns, nothing of any write that was let in exists any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_every_closing_nothing_is_left_and_at_the_end_the_register_is_empty() {
    const ROUNDS: i32 = 150;
    let clock = TestClock::at(1);
    let gate = Gate::with_clock(Arc::<TestClock>::clone(&clock));
    let alive = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let counted = Arc::clone(&alive);
    let service = gate
        .layer()
        .layer(tower::service_fn(move |_: Request<Full<Bytes>>| {
            let alive = Alive::new(&counted);
            async move {
                tokio::task::yield_now().await;
                if rand::random_bool(0.2) {
                    return Err(BoxError::from("refused by the server"));
                }
                let parts = futures::stream::unfold((alive, 0), |(alive, part)| async move {
                    tokio::task::yield_now().await;
                    (part < 3).then(|| {
                        (
                            Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x"))),
                            (alive, part + 1),
                        )
                    })
                });
                Ok(Response::new(StreamBody::new(parts).boxed_unsync()))
            }
        }));
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let (mut service, stop) = (service.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut done, mut cut, mut refused) = (0_u32, 0_u32, 0_u32);
                while !stop.load(Ordering::Relaxed) {
                    let answer = whole(service.call(request("POST")));
                    if rand::random_bool(0.1) {
                        // A caller that gives up half way.
                        let _gone = tokio::time::timeout(Duration::ZERO, answer).await;
                        continue;
                    }
                    match answer.await {
                        Ok(()) => done += 1,
                        Err(error) if is_closed(&error) => cut += 1,
                        Err(error) => {
                            assert_eq!(error.to_string(), "refused by the server");
                            refused += 1;
                        }
                    }
                    tokio::task::yield_now().await;
                }
                (done, cut, refused)
            })
        })
        .collect();
    let toggled = gate.clone();
    let toggler = tokio::task::spawn_blocking(move || {
        for round in 0..ROUNDS {
            toggled.open(
                term(round),
                Duration::from_secs(if round % 3 == 0 { 10 } else { 10_000 }),
            );
            for _ in 0..rand::random_range(0..300) {
                std::thread::yield_now();
            }
            if round % 3 == 0 {
                // Time runs out, and comes back to where the next one is open.
                clock.set(10);
                assert!(!toggled.is_open());
            }
            toggled.close();
            assert_eq!(alive.load(Ordering::SeqCst), 0, "round {round}");
            assert_eq!(toggled.in_flight(), 0, "round {round}");
            clock.set(1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    toggler.await.unwrap();
    let (mut done, mut cut) = (0, 0);
    for writer in writers {
        let (a, b, _) = writer.await.unwrap();
        (done, cut) = (done + a, cut + b);
    }
    assert_eq!(gate.in_flight(), 0);
    assert!(
        done > 0 && cut > 0,
        "{done} done, {cut} cut: the test has seen nothing"
    );
}
