//! What a controller and a base say to each other, over both brokers.

use super::base::FakeBase;
use super::broker::{Broker, Manners, topic};
use super::{Controller, SECONDS, base, heart, options};
use crate::golden::{batch, modules, outcome, recording};
use evenkeel_arklet::mqtt::EventKind;
use evenkeel_arklet::{Install, ModuleId, Tunnel as _};
use evenkeel_testkit::mqtt::{Mosquitto, MosquittoSetup};
use evenkeel_testkit::{skipped, until_within};
use rumqttc::QoS;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

fn install(name: &str) -> Install {
    let url = format!("file:///opt/biz/{name}-0.0.1-ark-biz.jar");
    Install::new(ModuleId::new(name, "0.0.1"), url)
}

/// A base that goes through the recorded operations in their order.
async fn recorded_base(broker: SocketAddr) -> FakeBase {
    let text = recording("arklet-mqtt-ops.txt");
    let mut replies: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let (topic, rest) = line.split_once(" qos=").unwrap();
        let name = topic.strip_prefix("koupleless_default/192.0.2.2/base/");
        if let Some(name) = name.filter(|name| !matches!(*name, "heart" | "baseline")) {
            replies.push((
                name.to_owned(),
                rest.split_once(" retain=0 ").unwrap().1.to_owned(),
            ));
        }
    }
    let next = AtomicUsize::new(0);
    FakeBase::start(broker, "192.0.2.2", move |_, _| {
        let (name, payload) = &replies[next.fetch_add(1, Ordering::SeqCst)];
        let ends = ["health", "simpleBiz", "bizOperation", "batchInstallBizResponse"];
        let end = ends.into_iter().find(|end| end == name).unwrap();
        vec![(end, payload.clone())]
    })
    .await
}

async fn the_recorded_operations(broker: SocketAddr) {
    let peer = recorded_base(broker).await;
    let mut controller = Controller::start(options(broker));
    let base = base("192.0.2.2");
    let tunnel = &controller.tunnel;
    let health = tunnel.health(&base).await.unwrap();
    assert_eq!(health.jvm.unwrap().metaspace_used, Some(16_471_152));
    assert_eq!(modules(&tunnel.modules(&base).await.unwrap()), "modules []");
    let (biz1, bad) = (install("biz1"), install("bad"));
    let id = biz1.id.clone().unwrap();
    let told = [
        outcome(&tunnel.install(&base, &biz1).await.unwrap()),
        outcome(&tunnel.install(&base, &biz1).await.unwrap()),
        modules(&tunnel.modules(&base).await.unwrap()),
        outcome(&tunnel.install(&base, &bad).await.unwrap()),
        outcome(&tunnel.uninstall(&base, &id).await.unwrap()),
        outcome(&tunnel.uninstall(&base, &id).await.unwrap()),
        batch(&tunnel.batch(&base, &[install("biz2"), bad]).await.unwrap()),
    ];
    let wanted = [
        "done, biz1:0.0.1 is activated",
        "repeat: Biz: biz1:0.0.1 has been installed or registered.",
        "modules [biz1:0.0.1 activated by Started]",
        "FAILED: IllegalStateException: boom from bad",
        "done",
        "not found: Uninstall biz: biz1:0.0.1 not found.",
        "FAILED: batch install failed; bad-0.0.1-ark-biz.jar -> FAILED: internal exception: null; \
         biz2-0.0.1-ark-biz.jar -> done, biz2:0.0.1 is activated",
    ];
    assert_eq!(told, wanted);
    // The answer to `health` is news for whoever listens, too.
    assert!(matches!(controller.event().await.kind, EventKind::Health(_)));

    // What the base was told is what was recorded, at QoS 1 and not retained.
    let recorded = recording("arklet-mqtt-ops.txt");
    let commands: Vec<(&str, Value)> = recorded
        .lines()
        .filter_map(|line| {
            let (topic, rest) = line.split_once(" qos=").unwrap();
            let end = topic.strip_prefix("koupleless_default/192.0.2.2/").unwrap();
            let is_command = !end.starts_with("base/") || end == "base/baseline";
            let payload = rest.split_once(" retain=0 ").unwrap().1;
            (is_command && end != "help").then(|| (end, serde_json::from_str(payload).unwrap()))
        })
        .collect();
    let told = peer.told();
    assert_eq!(told.len(), commands.len());
    for (publish, (end, body)) in told.iter().zip(commands) {
        assert_eq!(topic(publish), format!("koupleless_dev/192.0.2.2/{end}"));
        assert_eq!(serde_json::from_slice::<Value>(&publish.payload).unwrap(), body);
        assert!(!publish.retain, "{end}");
    }
    assert_eq!(controller.tunnel.counts(), Default::default());

    // A base that connects now finds nothing to do: no command was kept.
    let late = FakeBase::start(broker, "192.0.2.2", |_, _| vec![]).await;
    // Its own word comes back to it after all that the broker had for it.
    late.publish("baseline", "[]", false);
    until_within("the echo", SECONDS, async || !late.told().is_empty()).await;
    assert_eq!(late.told().len(), 1);
}

/// The released controller listens to both topics, and takes the answer as over HTTP under one of them.
#[tokio::test]
async fn modules_are_told_under_either_topic_and_in_either_shape() {
    let broker = Broker::start(Manners::default()).await;
    let entry = r#"{"bizName":"biz1","bizVersion":"0.0.1","bizState":"ACTIVATED","bizStateRecords":[]}"#;
    let list = format!(r#"{{"data":[{entry}]}}"#);
    let answer = format!(r#"{{"data":{{"code":"success","data":[{entry}]}}}}"#);
    let answers = [
        ("biz", answer.clone()),
        ("biz", list.clone()),
        ("simpleBiz", answer),
        ("simpleBiz", list),
    ];
    let next = AtomicUsize::new(0);
    let said = answers.clone();
    let _peer = FakeBase::start(broker.address, "b1", move |_, _| {
        vec![said[next.fetch_add(1, Ordering::SeqCst)].clone()]
    })
    .await;
    let controller = Controller::start(options(broker.address));
    controller.until(true).await;
    for (topic, _) in answers {
        let list = controller.tunnel.modules(&base("b1")).await.unwrap();
        let [module] = &list.modules[..] else {
            panic!("{topic}: {list:?}")
        };
        assert_eq!(module.id, ModuleId::new("biz1", "0.0.1"));
        assert!(module.is_active(), "{topic}: {module:?}");
    }
    assert_eq!(controller.tunnel.counts(), Default::default());
}

#[tokio::test]
async fn the_recorded_operations_over_our_broker() {
    let broker = Broker::start(Manners::default()).await;
    the_recorded_operations(broker.address).await;
    let commands = broker.published();
    let commands = commands
        .iter()
        .filter(|publish| !topic(publish).contains("/base/"));
    for publish in commands {
        assert_eq!(publish.qos, QoS::AtLeastOnce, "{publish:?}");
        assert!(!publish.retain && !publish.dup, "{publish:?}");
    }
}

#[tokio::test]
async fn the_recorded_operations_over_mosquitto() {
    let Some(broker) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped("the_recorded_operations_over_mosquitto", "no mosquitto");
    };
    the_recorded_operations(broker.address()).await;
}

/// After the broker came back without memory.
async fn all_is_heard_again(controller: &mut Controller, peer: &FakeBase) {
    controller.until(true).await;
    peer.listens(2).await;
    peer.publish("heart", &heart("192.0.2.2"), false);
    assert_eq!(controller.heart().await.identity, "192.0.2.2");
    let health = controller.tunnel.health(&base("192.0.2.2")).await.unwrap();
    assert!(health.master.unwrap().is_active());
}

#[tokio::test]
async fn subscriptions_are_made_again_after_our_broker_restarted() {
    let mut broker = Broker::start(Manners::default()).await;
    let peer = recorded_base(broker.address).await;
    let mut controller = Controller::start(options(broker.address));
    controller.until(true).await;
    let filters = broker.filters("controller-0");
    assert_eq!(filters.len(), 7, "{filters:?}");
    broker.stop().await;
    controller.until(false).await;
    assert_eq!(broker.filters("controller-0"), [""; 0]);
    broker.again().await;
    all_is_heard_again(&mut controller, &peer).await;
    assert_eq!(broker.filters("controller-0"), filters);
    assert!(controller.tunnel.counts().disconnects > 0);
}

#[tokio::test]
async fn subscriptions_are_made_again_after_mosquitto_restarted() {
    let Some(broker) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped(
            "subscriptions_are_made_again_after_mosquitto_restarted",
            "no mosquitto",
        );
    };
    let peer = recorded_base(broker.address()).await;
    let mut controller = Controller::start(options(broker.address()));
    controller.until(true).await;
    broker.stop();
    controller.until(false).await;
    broker.restart();
    all_is_heard_again(&mut controller, &peer).await;
}

async fn what_was_kept_is_not_believed(broker: SocketAddr) {
    let peer = FakeBase::start(broker, "b1", |_, _| vec![]).await;
    peer.publish("heart", &heart("b1"), true);
    // The echo of its own word proves that the broker has both.
    peer.publish("baseline", "[]", false);
    until_within("the echo", SECONDS, async || !peer.told().is_empty()).await;
    let mut controller = Controller::start(options(broker));
    until_within("the kept heart is counted", SECONDS, async || {
        controller.tunnel.counts().retained == 1
    })
    .await;
    let other = FakeBase::start(broker, "b2", |_, _| vec![]).await;
    other.publish("heart", &heart("b2"), false);
    assert_eq!(controller.heart().await.identity, "b2");
}

#[tokio::test]
async fn what_our_broker_kept_is_not_believed() {
    let broker = Broker::start(Manners::default()).await;
    what_was_kept_is_not_believed(broker.address).await;
}

#[tokio::test]
async fn what_mosquitto_kept_is_not_believed() {
    let Some(broker) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped("what_mosquitto_kept_is_not_believed", "no mosquitto");
    };
    what_was_kept_is_not_believed(broker.address()).await;
}

#[tokio::test]
async fn hearts_count_from_their_arrival_whatever_the_clock_of_the_base_says() {
    let broker = Broker::start(Manners::default()).await;
    let mut controller = Controller::start(options(broker.address));
    let peer = FakeBase::start(broker.address, "192.0.2.2", |_, _| vec![]).await;
    controller.until(true).await;
    let before = std::time::Instant::now();
    // Published in 1970, by the base's clock.
    peer.publish("heart", &heart("192.0.2.2"), false);
    let event = controller.heart().await;
    assert_eq!(event.published_ms, Some(1));
    assert_eq!(event.environment, "dev");
    assert!(event.received >= before);

    let recorded = recording("arklet-mqtt-connect.txt");
    let first = recorded.lines().next().unwrap();
    peer.publish("queryBaseline", first.split_once("retain=0 ").unwrap().1, false);
    match controller.event().await.kind {
        EventKind::BaselineWanted(metadata) => assert_eq!(metadata.cluster_name.as_deref(), Some("default")),
        other => panic!("{other:?}"),
    }
}
