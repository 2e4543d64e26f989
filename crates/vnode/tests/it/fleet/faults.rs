//! Providers that err, hang, panic and talk nonsense.

use super::fake::Trick;
use super::*;

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
    bench.is_ready("well").await;
    bench.is_ready("elsewhere").await;
    for trick in [Trick::Later, Trick::Hang, Trick::Panic, Trick::Nonsense] {
        for call in ["create", "start"] {
            let name = format!("{call}-{trick:?}").to_lowercase();
            let pod = bench.is_ready(&name).await;
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
        .until("its status says why", "web", |pod| {
            waits(pod) == Some("ProviderTimeout")
        })
        .await;
    bench.delete("web").await;
    bench.is_gone("web").await;
    assert!(bench.world.pods().is_empty());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_will_work_fails_the_pod() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.world.trick("create", "default/web", &[Trick::Never]);
    bench.pod("web", "virtual-1", json!({})).await;
    bench
        .until("it has failed", "web", |pod| phase(pod) == "Failed")
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
    bench.is_ready("web").await;
    bench.delete("web").await;
    bench.is_gone("web").await;
    eventually("the provider is empty", DEADLINE, async || {
        bench.world.pods().is_empty().then_some(())
    })
    .await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_provider_is_ill_is_not_ready_and_its_neighbour_is() {
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    bench.world.trick("ping", "virtual-1", &[Trick::Panic; 100]);
    bench.fake.report(evenkeel_vnode::provider::Report::Node {
        name: "virtual-1".into(),
    });
    eventually("the node is not Ready", DEADLINE, async || {
        let node = bench.nodes().get("virtual-1").await.unwrap();
        let conditions = node.status?.conditions?;
        let ready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False").then_some(())
    })
    .await;
    bench.node_is_ready("virtual-2").await;
    bench.end().await;
}
