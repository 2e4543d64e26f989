//! What comes by way of the MQTT broker, without one.

use super::*;
use evenkeel_arklet::heartbeat::{Heartbeat, Metadata};
use evenkeel_arklet::mqtt::{Event as Message, EventKind};
use evenkeel_koupleless::core::Connection;
use evenkeel_koupleless::discovery::mqtt::MqttHeartbeats;
use std::time::Instant;

fn heart(environment: &str, topic: &str, claims: &str) -> Message {
    let body = heartbeat(claims, 0);
    Message {
        environment: environment.to_owned(),
        identity: topic.to_owned(),
        received: Instant::now(),
        published_ms: None,
        kind: EventKind::Heart(Heartbeat::decode(body.as_bytes()).unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hearts_of_our_environment_in_their_own_name_count() {
    let (_api, client) = api().await;
    let (sender, events) = mpsc::channel(16);
    let (asked, mut wanted) = mpsc::unbounded_channel();
    let (_link, connected) = watch::channel(true);
    let hearts = MqttHeartbeats {
        events,
        connected,
        wanted: Some(Arc::new(move |metadata: Metadata| {
            asked.send(metadata.identity).unwrap();
        })),
    };
    let sources = Sources {
        hearts: Some(hearts),
        ..Sources::default()
    };
    let setup = Setup {
        sources,
        ..Setup::default()
    };
    let mut replica = Replica::start(&client, setup);
    sender.send(heart("prod", "b", "b")).await.unwrap();
    sender.send(heart("dev", "b", "c")).await.unwrap();
    sender.send(heart("dev", "a", "a")).await.unwrap();
    assert_eq!(replica.next().await.change, Change::Online);
    let bases: Vec<Arc<str>> = replica.discovery.bases().into_keys().collect();
    assert_eq!(bases, ["vnode.a.dev".into()]);
    assert_eq!(replica.base("a").unwrap().endpoint.by, Connection::Mqtt);

    let mut question = heart("dev", "a", "a");
    let EventKind::Heart(heartbeat) = question.kind else {
        panic!("a heart")
    };
    question.kind = EventKind::BaselineWanted(heartbeat.metadata);
    sender.send(question).await.unwrap();
    assert_eq!(wanted.recv().await.unwrap(), "a");
}
