//! The MQTT tunnel, against its recordings and beyond.

use super::fed::{Facts, Fed};
use super::recordings::{feed_answer, recorded_base, recording};
use super::{SOON, base, install, url};
use crate::arklet::{Base, BizState, Carrier, Machine, Moment, MqttTunnel};
use crate::mqtt::Broker;
use crate::{eventually, until};
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const HOME: &str = "koupleless_default/192.0.2.2/";

/// A recorder as the one that recorded: prints each message as it gets it.
struct Recorder {
    client: AsyncClient,
    lines: UnboundedReceiver<String>,
}

impl Recorder {
    async fn start(broker: &Broker, qos: QoS) -> Self {
        let address = broker.address();
        let mut options = MqttOptions::new("recorder", (address.ip().to_string(), address.port()));
        options.set_max_packet_size(1 << 20, 1 << 20);
        let (client, mut events) = AsyncClient::builder(options).unbounded().build();
        client.try_subscribe("koupleless_default/#", qos).unwrap();
        let (sender, lines) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                let Event::Incoming(Packet::Publish(message)) = event else {
                    continue;
                };
                let line = format!(
                    "{} qos={} retain={} {}",
                    String::from_utf8_lossy(&message.topic),
                    message.qos as u8,
                    u8::from(message.retain),
                    String::from_utf8_lossy(&message.payload)
                );
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        until("the recorder has subscribed", async || {
            !broker.subscriptions("recorder").is_empty()
        })
        .await;
        Self { client, lines }
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(SOON, self.lines.recv())
            .await
            .unwrap()
            .unwrap()
    }
}

/// Topic below the base's, and payload.
fn parts(line: &str) -> (&str, &str) {
    let (topic, rest) = line.strip_prefix(HOME).unwrap().split_once(' ').unwrap();
    (topic, rest.splitn(3, ' ').nth(2).unwrap())
}

/// A line as its reader takes it: topic, quality of service, whether it is retained, and the JSON of the
/// payload, or the payload itself if it is no JSON.
fn read(line: &str) -> (&str, Result<Value, &str>) {
    let payload = parts(line).1;
    let head = line.strip_suffix(payload).unwrap();
    (head, serde_json::from_str(payload).map_err(|_| payload))
}

fn is_command(topic: &str) -> bool {
    !topic.contains('/') || topic == "base/baseline"
}

/// What a message of the base shows of the world when it was made.
fn feed(facts: &mut Facts, topic: &str, payload: &str) {
    let message: Value = serde_json::from_str(payload).unwrap();
    let time = message["publishTimestamp"].as_i64().unwrap();
    facts.time(Moment::Published, topic.strip_prefix("base/").unwrap(), time);
    let data = &message["data"]["response"]["data"];
    feed_answer(facts, data);
    if let Some(trace) = data["message"].as_str().filter(|text| text.contains("\tat ")) {
        facts.trace(trace);
    }
    let health = &message["data"]["data"]["healthData"];
    if health.is_object() {
        facts.machine = Some(machine(&health["jvm"], &health["cpu"]));
    }
}

fn machine(jvm: &Value, cpu: &Value) -> Machine {
    let text = |key: &str| jvm[key].as_str().unwrap().to_owned();
    let float = |key: &str| jvm[key].as_f64().unwrap();
    let count = |key: &str| jvm[key].as_i64().unwrap();
    let memory = |key: &str, what: &str| float(&format!("{what} {key} memory(M)"));
    let area = |key: &str| ["init", "used", "committed", "max"].map(|what| memory(key, what));
    Machine {
        java_version: text("java version"),
        java_home: text("java home"),
        run_time: float("run time(s)"),
        memory: ["total", "max", "free"].map(|what| float(&format!("{what} memory(M)"))),
        heap: area("heap"),
        non_heap: area("non heap"),
        classes: ["loaded", "unload", "total"].map(|what| count(&format!("{what} class count"))),
        cpus: cpu["count"].as_i64().unwrap(),
        cpu_type: cpu["type"].as_str().unwrap().to_owned(),
        cpu: ["total used (%)", "user used (%)", "system used (%)", "free (%)"]
            .map(|key| cpu[key].as_f64().unwrap()),
    }
}

/// Plays the commands of a recording, and expects every line of it.
async fn replay(recording: &str, qos: QoS, connects: bool) {
    let lines: Vec<_> = recording.lines().collect();
    let fed = Fed::default();
    let broker = Broker::start();
    let base = recorded_base(&fed);
    let mut recorder;
    let mut from = 0;
    if connects {
        recorder = Recorder::start(&broker, qos).await;
        for line in &lines[..2] {
            let (topic, payload) = parts(line);
            feed(&mut fed.0.lock().unwrap(), topic, payload);
        }
        base.mqtt(Some(MqttTunnel::to(broker.address())));
        for line in &lines[..2] {
            assert_eq!(read(&recorder.next().await), read(line));
        }
        from = 2;
    } else {
        base.mqtt(Some(MqttTunnel::to(broker.address())));
        until("the base is connected", async || {
            let hearts = broker.published_to(&format!("{HOME}base/heart"));
            !hearts.is_empty()
        })
        .await;
        recorder = Recorder::start(&broker, qos).await;
    }
    for (index, line) in lines.iter().enumerate().skip(from) {
        let (topic, payload) = parts(line);
        if is_command(topic) {
            // Its answer is the next line; `help` has none.
            if let Some((answer, payload)) = lines.get(index + 1).map(|line| parts(line))
                && answer != "base/heart"
            {
                feed(&mut fed.0.lock().unwrap(), answer, payload);
            }
            let options = PublishOptions::at_most_once();
            recorder
                .client
                .try_publish(format!("{HOME}{topic}"), payload, options)
                .unwrap();
        } else if topic == "base/heart" {
            feed(&mut fed.0.lock().unwrap(), topic, payload);
            base.beat();
        }
        let heard = recorder.next().await;
        assert!(
            read(&heard) == read(line),
            "line {}\nrecorded: {line}\nanswered: {heard}",
            index + 1
        );
    }
    assert!(recorder.lines.try_recv().is_err(), "the base says no more");
    let heard = broker.published();
    assert!(
        heard
            .iter()
            .filter(|message| message.client.starts_with("koupleless@@@"))
            .all(|message| message.qos == 1 && !message.retain)
    );
}

#[tokio::test]
async fn the_recorded_mqtt_traffic_from_the_first_connection_is_met() {
    let test = "the_recorded_mqtt_traffic_from_the_first_connection_is_met";
    if let Some(recording) = recording(test, "arklet-mqtt-connect.txt") {
        replay(&recording, QoS::AtMostOnce, true).await;
    }
}

#[tokio::test]
async fn the_recorded_mqtt_operations_are_met() {
    let test = "the_recorded_mqtt_operations_are_met";
    if let Some(recording) = recording(test, "arklet-mqtt-ops.txt") {
        replay(&recording, QoS::AtLeastOnce, false).await;
    }
}

#[tokio::test]
async fn a_retained_command_is_executed_on_connecting_and_again_after_a_restart() {
    let test = "a_retained_command_is_executed_on_connecting_and_again_after_a_restart";
    let Some(recording) = recording(test, "arklet-mqtt-retained-replay.txt") else {
        return;
    };
    let recording = recording.trim_end();
    let fed = Fed::default();
    feed(&mut fed.0.lock().unwrap(), "base/bizOperation", recording);
    let broker = Broker::start();
    broker.publish(&format!("{HOME}installBiz"), &install("biz1", "0.0.1"), true);
    let base = recorded_base(&fed);
    base.mqtt(Some(MqttTunnel::to(broker.address())));
    let operations = async |count: usize| {
        eventually("the base has told of its operations", SOON, async || {
            let told = broker.published_to(&format!("{HOME}base/bizOperation"));
            (told.len() == count).then_some(told)
        })
        .await
    };
    let operation: Value = serde_json::from_str(&operations(1).await[0].text()).unwrap();
    assert_eq!(operation, serde_json::from_str::<Value>(recording).unwrap());
    base.restart().await;
    operations(2).await;
    assert_eq!(base.state("biz1", "0.0.1"), Some(BizState::Activated));
    assert_eq!(base.requests("installBiz"), 2);
    assert_eq!(base.log()[0].carrier, Carrier::Mqtt);
}

async fn subscribed(broker: &Broker, base: &Base) {
    let client = format!("koupleless@@@{}", base.identity().id);
    let prefix = format!("koupleless_default/{}", base.identity().id);
    let wanted = [(format!("{prefix}/+"), 1), (format!("{prefix}/base/baseline"), 1)];
    until("the base has subscribed", async || {
        broker.subscriptions(&client) == wanted
    })
    .await;
}

#[tokio::test]
async fn a_base_comes_back_to_a_restarted_broker_and_asks_for_its_baseline_once() {
    let broker = Broker::start();
    let base = base();
    base.mqtt(Some(MqttTunnel::to(broker.address())));
    subscribed(&broker, &base).await;
    broker.restart().await;
    subscribed(&broker, &base).await;
    let told = |topic: &str| broker.published_to(&format!("koupleless_default/127.0.0.1/base/{topic}"));
    broker.publish("koupleless_default/127.0.0.1/health", "{}", false);
    until("it answers again", async || !told("health").is_empty()).await;
    assert_eq!(told("queryBaseline").len(), 1);
}

#[tokio::test]
async fn a_hanging_base_keeps_its_heart_beating() {
    let broker = Broker::start();
    let base = base();
    base.mqtt(Some(MqttTunnel::to(broker.address())));
    subscribed(&broker, &base).await;
    base.hang();
    let prefix = "koupleless_default/127.0.0.1";
    broker.publish(&format!("{prefix}/installBiz"), &install("biz1", "0.0.1"), false);
    until("the command is read", async || base.requests("installBiz") == 1).await;
    base.beat();
    until("two hearts", async || {
        let hearts = broker.published_to(&format!("{prefix}/base/heart"));
        hearts.len() == 2
    })
    .await;
    assert_eq!(broker.published_to(&format!("{prefix}/base/bizOperation")), []);
    assert_eq!(base.modules(), []);
    base.serve();
    base.install_by_hand(&url("biz1", "0.0.1")).await;
}
