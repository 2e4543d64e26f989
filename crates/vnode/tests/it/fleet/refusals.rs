//! Pods that cannot run where they are, and a controller that replaces what has failed, as Kubernetes' does.

use super::fake::Trick;
use super::*;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::ListParams;
use rstest::rstest;
use std::collections::BTreeMap;

const REPLICAS: usize = 3;

/// Creates what is missing of three pods of a template, twice a second, and tells how many it has ever
/// created.
async fn replace(bench: &Bench, template: &Value, for_: Duration) -> usize {
    let mut created = 0;
    let end = tokio::time::Instant::now() + for_;
    while tokio::time::Instant::now() < end {
        let pods = bench.pods().list(&ListParams::default()).await.unwrap();
        let is_active = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none() && phase(pod) != "Failed" && phase(pod) != "Succeeded"
        };
        for _ in pods.iter().filter(is_active).count()..REPLICAS {
            bench
                .pod(&format!("web-{created}"), "virtual-1", template.clone())
                .await;
            created += 1;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    created
}

/// How often each reason was said about each pod.
async fn said(bench: &Bench) -> BTreeMap<(String, String), i32> {
    let events: Api<Event> = Api::all(bench.api.client());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let about_pods = events
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("Pod"));
    about_pods.fold(BTreeMap::new(), |mut said, event| {
        let series = event.series.and_then(|series| series.count);
        let count = series.or(event.count).unwrap_or(1);
        let about = event.involved_object.name.unwrap_or_default();
        *said.entry((about, event.reason.unwrap_or_default())).or_default() += count;
        said
    })
}

#[rstest]
#[case::no_provider_can(json!({"spec": {"hostNetwork": true}}), None, "UnsupportedPodSpec")]
#[case::this_provider_does_not(json!({"metadata": {"annotations": {"refuse": "not here"}}}), None, "Refused")]
#[case::it_cannot_be_created(json!({}), Some(("create", Trick::Never)), "ErrFake")]
#[case::it_cannot_be_created_yet(json!({}), Some(("create", Trick::Later)), "ContainerCreating")]
#[case::its_container_never_starts(json!({}), Some(("start", Trick::Never)), "CrashLoopBackOff")]
#[case::its_container_does_not_start_yet(json!({}), Some(("start", Trick::Later)), "ErrFake")]
#[tokio::test(start_paused = true)]
async fn no_more_pods_than_replicas_are_ever_made_of_what_cannot_run(
    #[case] template: Value,
    #[case] trick: Option<(&'static str, Trick)>,
    #[case] reason: &str,
) {
    let (api, world) = (api_server(), Arc::new(World::default()));
    let fake = Fake::new(&world, 1);
    let mut options = options(&fake);
    let pods = Arc::make_mut(&mut options.pods);
    pods.back_off = Duration::from_secs(10);
    pods.back_off_max = Duration::from_secs(300);
    let bench = Bench::with(api, world, fake, options, &["virtual-1"]);
    bench.ready::<Node>("virtual-1").await;
    let subjects = |call: &'static str| {
        let suffix = if call == "start" { "/app" } else { "" };
        (0..1000).map(move |index| format!("default/web-{index}{suffix}"))
    };
    if let Some((call, trick)) = trick {
        for subject in subjects(call) {
            bench.world.trick(call, &subject, &[trick; 100]);
        }
    }

    let created = replace(&bench, &template, Duration::from_secs(300)).await;
    assert_eq!(created, REPLICAS, "nothing has failed");
    for index in 0..REPLICAS {
        let pod = bench.pods().get(&format!("web-{index}")).await.unwrap();
        assert_eq!(
            waits(&pod, "app").map(|(why, _)| why),
            Some(reason),
            "{:?}",
            pod.status
        );
    }
    let said = said(&bench).await;
    assert!(
        !said.is_empty() && said.values().all(|count| *count <= 20),
        "{said:?}"
    );

    // What was in the way goes. What a pod says of itself cannot be changed, but for its labels and
    // annotations.
    let mended = if let Some((call, _)) = trick {
        for subject in subjects(call) {
            bench.world.trick(call, &subject, &[]);
        }
        call == "create"
    } else {
        let nothing = json!({"metadata": {"annotations": {"refuse": null}}});
        for index in 0..REPLICAS {
            let name = format!("web-{index}");
            bench.merge::<Pod>(&name, nothing.clone()).await;
        }
        reason == "Refused"
    };
    if mended {
        let since = tokio::time::Instant::now();
        for index in 0..REPLICAS {
            bench.ready::<Pod>(&format!("web-{index}")).await;
        }
        // What cannot be created yet has the kubelet's pace.
        let most = if reason == "ContainerCreating" { 15 } else { 10 };
        assert!(
            since.elapsed() <= Duration::from_secs(most),
            "{:?}",
            since.elapsed()
        );
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_let_in_once_runs_on_whatever_is_let_in_today() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    bench.end().await;
    let refuse = json!({"metadata": {"annotations": {"refuse": "not here"}}});
    let patch = refuse;
    bench.merge::<Pod>("web", patch).await;
    // A provider that knows nothing of it any more, so that it is created again.
    let world = Arc::new(World::default());
    let fake = Fake::new(&world, 1);
    let bench = Bench::again(bench.api, world, fake, &["virtual-1"]);
    bench
        .until("web", "it runs again", |pod: &Pod| {
            is_ready(pod) && restarts(pod) == 1
        })
        .await;
    assert_eq!(bench.world.count("create", "default/web"), 1);
    bench.end().await;
}
