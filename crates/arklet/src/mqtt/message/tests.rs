use super::*;
use crate::command::Install;
use crate::health::{Health, Limit};
use crate::mqtt::topic;
use crate::outcome::{BatchOutcome, Outcome};
use proptest::prelude::*;

const OPS: &str = include_str!("../../../tests/golden/arklet-mqtt-ops.txt");
const CONNECT: &str = include_str!("../../../tests/golden/arklet-mqtt-connect.txt");
const REPLAY: &str = include_str!("../../../tests/golden/arklet-mqtt-retained-replay.txt");

/// `topic qos=N retain=N payload`.
fn lines(recording: &str) -> impl Iterator<Item = (&str, &str)> {
    recording.lines().map(|line| {
        let (topic, rest) = line.split_once(" qos=").unwrap();
        (topic, rest.split_once(" retain=0 ").unwrap().1)
    })
}

fn meaning(message: &Message) -> String {
    match &message.body {
        Body::Heart(heart) => {
            assert!(heart.is_active());
            format!("heart of {} at {:?}", heart.metadata.identity, heart.address())
        }
        Body::QueryBaseline(metadata) => format!(
            "{} of {} wants a baseline",
            metadata.identity,
            metadata.cluster_name.as_deref().unwrap()
        ),
        Body::Health(envelope) => {
            let health = Health::read(envelope.data.as_ref().unwrap()).unwrap();
            let jvm = health.jvm.unwrap();
            assert_eq!(jvm.metaspace_max, Some(Limit::Bytes(268_435_456)));
            assert_eq!(jvm.metaspace_used, Some(16_471_152));
            assert_eq!(jvm.metaspace_committed, Some(16_777_216));
            assert_eq!(health.cpu.unwrap().count, Some(2));
            assert!(health.master.unwrap().is_active());
            format!("health with {} modules", health.modules.modules.len())
        }
        Body::Modules(list) => {
            assert_eq!(list.unreadable, []);
            let words = list.modules.iter().map(|module| {
                let latest = module.latest().unwrap();
                format!("{} {} by {}", module.id, module.state, latest.reason.as_str())
            });
            format!("modules [{}]", words.collect::<Vec<_>>().join(", "))
        }
        Body::Operation { command, id, answer } => {
            let outcome = Outcome::of(answer.as_ref().unwrap(), Some(id));
            let kind = match &outcome {
                Outcome::Repeat { .. } => "repeat: ",
                Outcome::NotFound { .. } => "not found: ",
                Outcome::Failed(_) => "failed: ",
                _ => "",
            };
            format!("{command} {id}: {kind}{outcome}")
        }
        Body::Batch(answer) => {
            let installs = ["biz2", "bad"].map(|name| {
                Install::new(
                    ModuleId::new(name, "0.0.1"),
                    format!("file:///opt/biz/{name}-0.0.1-ark-biz.jar"),
                )
            });
            let batch = BatchOutcome::of(answer.as_ref().unwrap(), &installs);
            let each: Vec<String> = batch.by_url.values().map(ToString::to_string).collect();
            format!("batch: {}; {}", batch.overall, each.join("; "))
        }
    }
}

fn read(recording: &str) -> Vec<String> {
    let meanings = lines(recording).map(|(topic, payload)| {
        let name = topic.strip_prefix("koupleless_default/192.0.2.2/").unwrap();
        match topic::parse(topic) {
            Some(from) => {
                assert_eq!((from.environment, from.identity), ("default", "192.0.2.2"));
                let message = Message::decode(from.kind, payload.as_bytes()).unwrap();
                assert!(message.published_ms.unwrap() > 1_795_170_000_000);
                assert!(
                    message
                        .identity()
                        .is_none_or(|identity| identity == from.identity)
                );
                meaning(&message)
            }
            None => format!("> {name}"),
        }
    });
    meanings.collect()
}

const OPERATIONS: [&str; 19] = [
    "> health",
    "health with 1 modules",
    "> queryAllBiz",
    "modules []",
    "> installBiz",
    "installBiz biz1:0.0.1: done, biz1:0.0.1 is activated",
    "> installBiz",
    "installBiz biz1:0.0.1: repeat: Biz: biz1:0.0.1 has been installed or registered.",
    "> queryAllBiz",
    "modules [biz1:0.0.1 activated by Started]",
    "> installBiz",
    "installBiz bad:0.0.1: failed: IllegalStateException: boom from bad",
    "> uninstallBiz",
    "uninstallBiz biz1:0.0.1: done",
    "heart of 192.0.2.2 at None",
    "> uninstallBiz",
    "uninstallBiz biz1:0.0.1: not found: Uninstall biz: biz1:0.0.1 not found.",
    "> base/baseline",
    "batch: batch install failed; internal exception: null; done, biz2:0.0.1 is activated",
];

#[test]
fn every_message_of_the_recorded_operations_is_read() {
    let mut wanted = OPERATIONS.to_vec();
    wanted.extend(["> help", "heart of 192.0.2.2 at None"]);
    assert_eq!(read(OPS), wanted);
}

#[test]
fn every_message_of_the_recorded_connection_is_read() {
    let heart = "heart of 192.0.2.2 at None";
    let mut wanted = vec!["192.0.2.2 of default wants a baseline", heart, heart, heart];
    wanted.extend(OPERATIONS);
    wanted.extend(["> help", heart, heart]);
    assert_eq!(read(CONNECT), wanted);
}

#[test]
fn a_replayed_command_is_answered_like_any_other() {
    let message = Message::decode(Kind::BizOperation, REPLAY.trim_end().as_bytes()).unwrap();
    assert_eq!(
        meaning(&message),
        "installBiz biz1:0.0.1: done, biz1:0.0.1 is activated"
    );
}

#[test]
fn the_recorded_commands_are_those_that_are_made_here() {
    use crate::command::Request;
    let biz1 = Install::new(
        ModuleId::new("biz1", "0.0.1"),
        "file:///opt/biz/biz1-0.0.1-ark-biz.jar",
    );
    let payload = |name: &str| -> Value {
        let (_, payload) = lines(OPS).find(|(topic, _)| topic.ends_with(name)).unwrap();
        serde_json::from_str(payload).unwrap()
    };
    assert_eq!(payload("/installBiz"), Value::Object(biz1.body()));
    let id = biz1.id.as_ref().unwrap();
    assert_eq!(payload("/uninstallBiz"), Request::Uninstall(id).body());
    assert_eq!(payload("/queryAllBiz"), Request::Modules.body());
}

#[test]
fn an_operation_without_a_readable_answer_is_still_told_apart() {
    let payload = br#"{"data":{"command":"installBiz","bizName":"a","bizVersion":"1","response":7}}"#;
    let message = Message::decode(Kind::BizOperation, payload).unwrap();
    assert!(matches!(message.body, Body::Operation { answer: Err(_), .. }));
    assert_eq!(message.published_ms, None);
}

proptest! {
    #[test]
    fn recorded_messages_with_a_flaw_are_read_without_panic(
        nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let all: Vec<(&str, &str)> = lines(OPS).collect();
        let (topic, payload) = all[nth.index(all.len())];
        let mut payload = payload.as_bytes().to_vec();
        let at = at.index(payload.len());
        if cut {
            payload.truncate(at);
        } else {
            payload[at] = byte;
        }
        if let Some(from) = topic::parse(topic)
            && let Ok(Message { body: Body::Operation { answer: Ok(answer), .. } | Body::Batch(Ok(answer)), .. }) =
                Message::decode(from.kind, &payload)
        {
            let _ = Outcome::of(&answer, None).to_string();
            let _ = BatchOutcome::of(&answer, &[]);
        }
    }

    #[test]
    fn topics_of_any_kind_are_read_without_panic(topic in "(koupleless_)?[a-z/+#]{0,20}(/base/heart)?") {
        if let Some(from) = topic::parse(&topic) {
            prop_assert!(topic::check("identity", from.identity).is_ok());
        }
    }
}
