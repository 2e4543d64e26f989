//! Who hears of changes.

use super::*;

/// Success in the first attempt, and each time the other from then on.
fn flapping() -> impl Prober {
    answers(|number| {
        if number.is_multiple_of(2) {
            Outcome::success("")
        } else {
            Outcome::failure("")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_change_says_whose_which_and_why() {
    let (manager, _shutdown) = start(
        kubelet(),
        answers(|_| Outcome::failure("connection refused")),
        &pod(
            "1",
            Kind::Liveness,
            Probe {
                failure_threshold: 3,
                ..probe()
            },
        ),
    );
    let mut changes = manager.subscribe();
    let change = loop {
        let change = changes.next().await.unwrap();
        if change.reading == Reading::Failure {
            break change;
        }
    };
    assert_eq!(change.key, key("1", Kind::Liveness));
    assert_eq!(&*change.container_id, "c://1");
    assert!(change.why.contains("connection refused"), "{}", change.why);
    assert_eq!(reading(&manager, "1", Kind::Liveness), Some(Reading::Failure));
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_holds_nobody_up_and_gets_the_latest() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = attempts.clone();
    let prober = Fake(move |_: &Attempt| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let outcome = if number.is_multiple_of(2) {
            Outcome::success("")
        } else {
            Outcome::failure(number.to_string())
        };
        async move { outcome }.boxed()
    });
    let (manager, shutdown) = start(kubelet(), prober, &pod("1", Kind::Readiness, probe()));
    let (mut slow, mut quick) = (manager.subscribe(), manager.subscribe());
    let mut heard = 0;
    while attempts.load(Ordering::SeqCst) < 100 {
        if quick.next().await.is_some() {
            heard += 1;
        }
    }
    shutdown.cancel();
    manager.stopped().await;
    assert!(heard >= 99, "{heard}");
    let latest = slow.next().await.unwrap();
    assert_eq!(Some(latest.reading), reading(&manager, "1", Kind::Readiness));
    assert_eq!(slow.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn changes_come_in_the_order_of_the_first_that_was_not_read() {
    let mut hub = super::super::subscribe::Hub::default();
    let mut subscription = hub.subscribe(false);
    let change = |uid: &str, reading| Change {
        key: key(uid, Kind::Readiness),
        container_id: "c://1".into(),
        reading,
        why: String::new(),
    };
    for (uid, reading) in [
        ("a", Reading::Failure),
        ("b", Reading::Failure),
        ("a", Reading::Success),
        ("c", Reading::Failure),
        ("b", Reading::Unknown),
    ] {
        hub.publish(&change(uid, reading));
    }
    hub.retain(|key| &*key.pod != "c");
    hub.close();
    let mut heard = Vec::new();
    while let Some(change) = subscription.next().await {
        heard.push((change.key.pod.to_string(), change.reading));
    }
    let expected = [
        ("a".to_owned(), Reading::Success),
        ("b".to_owned(), Reading::Unknown),
    ];
    assert_eq!(heard, expected);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_gone_is_forgotten() {
    let (manager, _shutdown) = start(kubelet(), flapping(), &pod("1", Kind::Readiness, probe()));
    let kept = manager.subscribe();
    for _ in 0..1000 {
        drop(manager.subscribe());
    }
    let mut heard = manager.subscribe();
    heard.next().await.unwrap();
    heard.next().await.unwrap();
    assert_eq!(manager.shared.lock().subscribers(), 2);
    drop(kept);
    heard.next().await.unwrap();
    assert_eq!(manager.shared.lock().subscribers(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_read_about_a_pod_goes_with_it() {
    let (manager, _shutdown) = start(kubelet(), flapping(), &pod("1", Kind::Readiness, probe()));
    let mut changes = manager.subscribe();
    introduce(&manager, &pod("2", Kind::Readiness, probe()));
    introduce(&manager, &pod("3", Kind::Readiness, probe()));
    until("all are read", || {
        ["1", "2", "3"]
            .iter()
            .all(|uid| reading(&manager, uid, Kind::Readiness).is_some())
    })
    .await;
    manager.remove_pod("1");
    manager.retain_pods(&HashSet::from(["2".into()]));
    assert_eq!(&*changes.next().await.unwrap().key.pod, "2");
    assert_eq!(changes.next().now_or_never(), None);
    assert_eq!(reading(&manager, "1", Kind::Readiness), None);
    assert_eq!(reading(&manager, "3", Kind::Readiness), None);
}
