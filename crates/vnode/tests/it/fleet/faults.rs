//! Providers that err, hang, panic and talk nonsense.

use super::fake::Trick;
use super::*;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_for_a_while_is_tried_again_and_harms_nobody_else() {
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    for trick in [Trick::Later, Trick::Hang, Trick::Panic, Trick::Nonsense] {
        for call in ["create", "start"] {
            let name = format!("{call}-{trick:?}").to_lowercase();
            let subject = match call {
                "start" => format!("default/{name}/app"),
                _ => format!("default/{name}"),
            };
            bench.world.trick(call, &subject, &[trick]);
            bench.pod(&name, "virtual-1", json!({})).await;
        }
    }
    // While others hang.
    bench.pod("well", "virtual-1", json!({})).await;
    bench.pod("elsewhere", "virtual-2", json!({})).await;
    bench.ready::<Pod>("well").await;
    bench.ready::<Pod>("elsewhere").await;
    for trick in [Trick::Later, Trick::Hang, Trick::Panic, Trick::Nonsense] {
        for call in ["create", "start"] {
            let name = format!("{call}-{trick:?}").to_lowercase();
            let pod = bench.ready::<Pod>(&name).await;
            assert_eq!(phase(&pod), "Running", "{name}");
        }
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_hangs_is_told_of_and_goes_in_spite_of_it() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.world.trick("start", "default/web/app", &[Trick::Hang; 100]);
    bench.pod("web", "virtual-1", json!({})).await;
    bench
        .until("web", "its status says why", |pod: &Pod| {
            waits_for(pod, "app", "ProviderTimeout")
        })
        .await;
    bench.delete::<Pod>("web").await;
    bench.gone::<Pod>("web").await;
    assert!(bench.world.pods().is_empty());
    assert_eq!(bench.world.under_way("start"), 0, "nobody waits for it any more");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_wanted_what_never_will_work_fails_the_pod() {
    let (api, world) = (api_server(), Arc::new(World::default()));
    let fake = Fake::new(&world, 1);
    let mut options = options(&fake);
    Arc::make_mut(&mut options.pods).fail_refused = true;
    let bench = Bench::with(api, world, fake, options, &["virtual-1"]);
    bench.world.trick("create", "default/web", &[Trick::Never]);
    bench.pod("web", "virtual-1", json!({})).await;
    bench
        .until("web", "it has failed", |pod: &Pod| phase(pod) == "Failed")
        .await;
    assert_eq!(bench.world.count("create", "default/web"), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_that_fail_are_repeated_until_the_pod_has_ended() {
    let bench = Bench::new(&["virtual-1"]).await;
    let tricks = [Trick::Later, Trick::Panic];
    bench.world.trick("stop", "default/web", &tricks);
    bench.world.trick("delete", "default/web", &tricks);
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    bench.delete::<Pod>("web").await;
    bench.gone::<Pod>("web").await;
    until("the provider is empty", async || bench.world.pods().is_empty()).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_provider_is_ill_is_not_ready_and_its_neighbour_is() {
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    bench.world.trick("ping", "virtual-1", &[Trick::Panic; 100]);
    bench.fake.report(evenkeel_vnode::provider::Report::Node {
        name: "virtual-1".into(),
    });
    eventually("the node is not Ready", SOON, async || {
        let node = bench.get::<Node>("virtual-1").await;
        let conditions = node.status?.conditions?;
        let ready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False").then_some(())
    })
    .await;
    bench.ready::<Node>("virtual-2").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_answered_with_nonsense_is_an_error_of_that_container_alone() {
    let bench = Bench::new(&["virtual-1"]).await;
    let two =
        json!({"spec": {"containers": [{"name": "good", "image": "i"}, {"name": "app", "image": "i"}]}});
    let answers = [
        (Trick::Nonsense, "is no container ID"),
        (Trick::Foreign, "of another runtime"),
        (Trick::Taken, "container \"good\" has the ID"),
    ];
    for (trick, why) in answers {
        let name = format!("{trick:?}").to_lowercase();
        let subject = format!("default/{name}/app");
        bench.world.trick("start", &subject, &[trick; 1000]);
        bench.pod(&name, "virtual-1", two.clone()).await;
        let pod = bench
            .until(
                &name,
                "the answer is refused, and its sibling runs",
                |pod: &Pod| {
                    let (app, good) = (container(pod, "app"), container(pod, "good"));
                    waiting(app).is_some_and(|(reason, _)| reason == "ProviderNonsense")
                        && good.is_some_and(|good| good.ready)
                },
            )
            .await;
        let (_, message) = waiting(container(&pod, "app")).unwrap();
        assert!(message.contains(why), "{message:?} for {why:?}");
        assert!(bench.world.count("start", &subject) > 0);
        assert_eq!(bench.world.count("start", &format!("default/{name}/good")), 1);
    }
    // Once the provider talks sense all is well.
    bench.world.trick("start", "default/taken/app", &[]);
    bench.ready::<Pod>("taken").await;
    bench.end().await;
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == name)
}

/// Why a container waits: reason and message.
fn waiting(container: Option<&ContainerStatus>) -> Option<(&str, &str)> {
    let waiting = container?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.as_deref()?, waiting.message.as_deref()?))
}
