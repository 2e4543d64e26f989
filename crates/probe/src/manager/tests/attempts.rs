//! Timers and attempts.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_worker_probes_once_per_period() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let prober = Fake(move |_: &Attempt| {
        seen.lock().unwrap().push(tokio::time::Instant::now());
        async { Outcome::success("") }.boxed()
    });
    let (_manager, _shutdown) = start(kubelet(), prober, &pod("1", Kind::Liveness, probe()));
    until("five attempts", || times.lock().unwrap().len() >= 5).await;
    let times = times.lock().unwrap();
    for pair in times.windows(2) {
        // Timers are good for a millisecond.
        let gap = (pair[1] - pair[0]).as_millis();
        assert!((998..=1002).contains(&gap), "{gap} ms in {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_manager_wakes_for_a_pod_that_is_due_sooner() {
    let (manager, _shutdown) = start(
        config(crate::core::Compat::Strict),
        answers(|_| Outcome::success("")),
        &pod(
            "slow",
            Kind::Readiness,
            Probe {
                period: Duration::from_secs(100_000),
                ..probe()
            },
        ),
    );
    until("the first success", || {
        reading(&manager, "slow", Kind::Readiness) == Some(Reading::Success)
    })
    .await;
    let began = tokio::time::Instant::now();
    introduce(&manager, &pod("quick", Kind::Readiness, probe()));
    until("the other's", || {
        reading(&manager, "quick", Kind::Readiness) == Some(Reading::Success)
    })
    .await;
    assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_panics_is_an_error_and_the_worker_goes_on() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let prober = Fake(move |_: &Attempt| {
        let call = count.fetch_add(1, Ordering::Relaxed);
        assert!(call != 0, "at once");
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(call != 1, "later {call}");
            Outcome::success("")
        }
        .boxed()
    });
    let (manager, _shutdown) = start(kubelet(), prober, &pod("1", Kind::Readiness, probe()));
    let mut notices = manager.notices();
    let mut errors = Vec::new();
    loop {
        if let Notice::Ended { outcome, .. } = &*notices.recv().await.unwrap() {
            match &outcome.error {
                Some(error) => errors.push(error.clone()),
                None => break,
            }
        }
    }
    assert_eq!(
        errors,
        ["the prober panicked: at once", "the prober panicked: later 1"]
    );
    assert_eq!(reading(&manager, "1", Kind::Readiness), Some(Reading::Success));
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_never_ends_is_given_up() {
    let prober = Fake(|_: &Attempt| std::future::pending().boxed());
    let (manager, _shutdown) = start(kubelet(), prober, &pod("1", Kind::Readiness, probe()));
    let mut notices = manager.notices();
    loop {
        if let Notice::Ended { outcome, .. } = &*notices.recv().await.unwrap() {
            // Three tries of a second each, and the grace.
            assert_eq!(
                *outcome,
                Outcome::error(Verdict::Unknown, "the prober did not end within 153s")
            );
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_attempts_are_made_at_a_time_than_allowed() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, highest) = (now.clone(), most.clone());
    let done = Arc::new(AtomicUsize::new(0));
    let ended = done.clone();
    let prober = Fake(move |_: &Attempt| {
        let (counter, ended) = (counter.clone(), ended.clone());
        highest.fetch_max(counter.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            counter.fetch_sub(1, Ordering::SeqCst);
            ended.fetch_add(1, Ordering::SeqCst);
            Outcome::success("")
        }
        .boxed()
    });
    let limited = Config {
        concurrency: 3,
        ..kubelet()
    };
    let (manager, _shutdown) = start(limited, prober, &pod("0", Kind::Readiness, probe()));
    for uid in 1..200 {
        introduce(&manager, &pod(&uid.to_string(), Kind::Readiness, probe()));
    }
    until("all have been asked", || {
        (0..200).all(|uid| reading(&manager, &uid.to_string(), Kind::Readiness) == Some(Reading::Success))
    })
    .await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    // Each place is filled again at once: 200 attempts by three at a time are 67 rounds.
    assert!(done.load(Ordering::SeqCst) >= 200);
}

#[tokio::test(start_paused = true)]
async fn lateness_that_a_limit_causes_is_told() {
    let prober = Fake(|_: &Attempt| {
        async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            Outcome::success("")
        }
        .boxed()
    });
    let limited = Config {
        concurrency: 1,
        ..kubelet()
    };
    let (manager, _shutdown) = start(limited, prober, &pod("0", Kind::Readiness, probe()));
    let mut notices = manager.notices();
    introduce(&manager, &pod("1", Kind::Readiness, probe()));
    introduce(&manager, &pod("2", Kind::Readiness, probe()));
    loop {
        if let Notice::Ended { lag, .. } = &*notices.recv().await.unwrap()
            && *lag >= Duration::from_millis(300)
        {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_cancels_attempts_and_ends_everything() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, drops) = (begun.clone(), dropped.clone());
    let prober = Fake(move |_: &Attempt| {
        count.fetch_add(1, Ordering::SeqCst);
        let held = Dropped(drops.clone());
        async move {
            let _held = held;
            std::future::pending().await
        }
        .boxed()
    });
    let (manager, shutdown) = start(kubelet(), prober, &pod("1", Kind::Readiness, probe()));
    let mut changes = manager.subscribe();
    let mut notices = manager.notices();
    until("an attempt", || begun.load(Ordering::SeqCst) == 1).await;
    shutdown.cancel();
    manager.stopped().await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    while changes.next().await.is_some() {}
    assert_eq!(manager.subscribe().next().await, None);
    // Nothing is made of an attempt that was cancelled.
    drop(manager);
    while let Ok(notice) = notices.try_recv() {
        assert!(!matches!(*notice, Notice::Ended { .. }), "{notice:?}");
    }
}

/// Panics when it is dropped, as code with a defect in its clean-up does.
struct Grudge;

impl Drop for Grudge {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any("on the way out");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_panics_when_it_is_dropped_loses_no_place() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let prober = Fake(move |_: &Attempt| {
        if count.fetch_add(1, Ordering::Relaxed) > 0 {
            return async { Outcome::success("") }.boxed();
        }
        let grudge = Grudge;
        async move {
            let _kept = &grudge;
            std::future::pending().await
        }
        .boxed()
    });
    let tight = Config {
        concurrency: 1,
        ..kubelet()
    };
    let (manager, _shutdown) = start(tight, prober, &pod("1", Kind::Readiness, probe()));
    until("a success after all", || {
        reading(&manager, "1", Kind::Readiness) == Some(Reading::Success)
    })
    .await;
}

/// A sink with a defect.
struct Broken(AtomicUsize);

impl EventSink for Broken {
    fn record(&self, _about: EventAbout, _event: Event) {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any("no room for events");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_stops_nothing() {
    let sink = Arc::new(Broken(AtomicUsize::new(0)));
    let shutdown = CancellationToken::new();
    let manager = Manager::builder(kubelet())
        .clock(Clock::steady(WALL))
        .events(sink.clone())
        .start(answers(|_| Outcome::failure("no")), shutdown.clone());
    let mut changes = manager.subscribe();
    introduce(&manager, &pod("1", Kind::Liveness, probe()));
    introduce(&manager, &pod("2", Kind::Readiness, probe()));
    until("five events", || sink.0.load(Ordering::Relaxed) >= 5).await;
    assert!(changes.next().await.is_some());
    shutdown.cancel();
    manager.stopped().await;
    while changes.next().await.is_some() {}
}
