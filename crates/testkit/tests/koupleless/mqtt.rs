//! Over MQTT, through a real broker. The frame of the messages is a stand-in's, the commands are arklet's.

use super::{SOON, built, module, named, recorded};
use evenkeel_testkit::koupleless::{MqttSetup, Setup};
use evenkeel_testkit::mqtt::{Mosquitto, MosquittoSetup};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A client at QoS 0 that has subscribed to everything (MQTT 3.1.1, OASIS standard).
struct Client {
    stream: TcpStream,
}

impl Client {
    async fn connect(broker: SocketAddr) -> Self {
        let stream = TcpStream::connect(broker).await.expect("a broker");
        let mut this = Self { stream };
        // Level 4, a clean session, no keep-alive.
        let connect = [&text("MQTT")[..], &[4, 2, 0, 0], &text("watcher")].concat();
        this.send(0x10, &connect).await;
        assert_eq!(this.packet().await, (0x20, vec![0, 0]), "CONNACK");
        let subscribe = [&[0, 1][..], &text("#"), &[0]].concat();
        this.send(0x82, &subscribe).await;
        assert_eq!(this.packet().await, (0x90, vec![0, 1, 0]), "SUBACK");
        this
    }

    async fn publish(&mut self, topic: &str, message: &Value) {
        let body = [text(topic), message.to_string().into_bytes()].concat();
        self.send(0x30, &body).await;
    }

    /// The next message whose topic is the one wanted.
    async fn message(&mut self, wanted: &str) -> Value {
        let found = async {
            loop {
                let (kind, body) = self.packet().await;
                assert_eq!(kind & 0xf0, 0x30, "PUBLISH");
                let (topic, message) = body[2..].split_at(usize::from(body[0]) << 8 | usize::from(body[1]));
                if topic == wanted.as_bytes() {
                    return serde_json::from_slice(message).expect("JSON");
                }
            }
        };
        let found = tokio::time::timeout(SOON, found).await;
        assert!(found.is_ok(), "nothing at {wanted}");
        found.expect("looked at above")
    }

    async fn send(&mut self, kind: u8, body: &[u8]) {
        let mut packet = vec![kind];
        let mut left = body.len();
        while left > 127 {
            packet.push((left & 127) as u8 | 128);
            left >>= 7;
        }
        packet.push(left as u8);
        packet.extend(body);
        self.stream.write_all(&packet).await.expect("a broker");
    }

    async fn packet(&mut self) -> (u8, Vec<u8>) {
        let kind = self.stream.read_u8().await.expect("a packet");
        let (mut length, mut shift) = (0, 0);
        loop {
            let byte = self.stream.read_u8().await.expect("a packet");
            length |= usize::from(byte & 127) << shift;
            shift += 7;
            if byte & 128 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.expect("a packet");
        (kind, body)
    }
}

/// A string with its length before it.
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a short text").to_be_bytes();
    [&length, text.as_bytes()].concat()
}

/// The first recorded message at `topic` of identity 192.0.2.2 for which `is` holds.
fn recorded_message(text: &str, topic: &str, is: impl Fn(&Value) -> bool) -> Value {
    let start = format!("koupleless_default/192.0.2.2/base/{topic} ");
    let found = text
        .lines()
        .filter(|line| line.starts_with(&start))
        .filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok())
        .find(is);
    found.expect("it was recorded")
}

#[tokio::test]
async fn a_base_is_heard_and_commanded_through_a_broker() {
    const TEST: &str = "a_base_is_heard_and_commanded_through_a_broker";
    let Some(built) = built(TEST) else { return };
    let Some(broker) = Mosquitto::start(&MosquittoSetup::default()) else {
        return evenkeel_testkit::skipped(TEST, "no mosquitto on PATH");
    };
    let mut client = Client::connect(broker.address()).await;
    let base = built
        .start(Setup {
            mqtt: Some(MqttSetup::open(broker.address())),
            identity: "base-7".to_owned(),
            env: "Dev".to_owned(),
            ..Setup::default()
        })
        .await;
    let own = |topic: &str| format!("koupleless_dev/base-7/{topic}");
    let who = json!({ "clusterName": "default", "identity": "base-7", "name": "base", "version": "1.0.0" });

    let asked = client.message(&own("base/queryBaseline")).await;
    assert_eq!(asked["data"], who);
    let heart = client.message(&own("base/heart")).await;
    assert_eq!(heart["data"]["baseMetadata"], who);
    assert_eq!(heart["data"]["port"], 0);

    client.publish(&own("health"), &json!({})).await;
    let health = client.message(&own("base/health")).await;
    let used = &health["data"]["data"]["healthData"]["jvm"]["java used metaspace"];
    assert!(used.as_i64() > Some(0), "{health}");

    let mut told = Vec::new();
    for (command, topic, request) in [
        ("installBiz", "base/bizOperation", module(&built, "good", "1.0.0")),
        ("installBiz", "base/bizOperation", module(&built, "good", "1.0.0")),
        (
            "installBiz",
            "base/bizOperation",
            module(&built, "failing", "1.0.0"),
        ),
        ("queryAllBiz", "base/simpleBiz", json!({})),
        ("uninstallBiz", "base/bizOperation", named("good", "1.0.0")),
        ("uninstallBiz", "base/bizOperation", named("good", "1.0.0")),
    ] {
        client.publish(&own(command), &request).await;
        told.push(client.message(&own(topic)).await);
    }
    let [installed, repeated, failed, all, uninstalled, gone] = &told[..] else {
        unreachable!("as many as were asked for")
    };
    let response = |message: &Value| message["data"]["response"].clone();
    let module = &response(installed)["data"]["bizInfos"][0];
    assert_eq!(module["bizState"], "ACTIVATED", "{installed}");
    assert_eq!(response(repeated)["data"]["code"], "REPEAT_BIZ", "{repeated}");
    let trace = response(failed)["data"]["message"].to_string();
    assert!(trace.contains("Caused by: java.lang.IllegalArgumentException: no database at db.example:5432"));
    let only = json!({ "name": "good", "version": "1.0.0", "state": "activated",
        "latestStateRecord": all["data"][0]["latestStateRecord"] });
    assert_eq!(all["data"], json!([only]));
    assert_eq!(only["latestStateRecord"]["state"], "ACTIVATED");
    assert_eq!(response(uninstalled)["code"], "SUCCESS", "{uninstalled}");
    assert_eq!(response(gone)["data"]["code"], "NOT_FOUND_BIZ", "{gone}");
    assert_eq!(super::modules(&base).await, Vec::<String>::new());

    let Some(directory) = recorded::directory(TEST) else {
        return;
    };
    let read = |file: &str| {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        recorded::translated(&text, |name, version| built.jar(name, version))
    };
    let (connect, ops) = (read("arklet-mqtt-connect.txt"), read("arklet-mqtt-ops.txt"));
    let any = |_: &Value| true;
    let some = |message: &Value| message["data"][0].is_object();
    let operation = |command: &str, code: &str| {
        recorded_message(&ops, "bizOperation", |message| {
            let data = &message["data"];
            data["command"] == command && data["response"]["data"]["code"] == code
        })
    };
    for (theirs, ours) in [
        (recorded_message(&connect, "queryBaseline", any), &asked),
        (recorded_message(&ops, "heart", any), &heart),
        (recorded_message(&ops, "health", any), &health),
        (recorded_message(&ops, "simpleBiz", some), all),
        (operation("installBiz", "SUCCESS"), installed),
        (operation("installBiz", "REPEAT_BIZ"), repeated),
        (operation("installBiz", "FAILED"), failed),
        (operation("uninstallBiz", "SUCCESS"), uninstalled),
        (operation("uninstallBiz", "NOT_FOUND_BIZ"), gone),
    ] {
        let surprises = recorded::surprises(&theirs, ours);
        assert!(surprises.is_empty(), "{surprises:#?} in {ours}");
    }
}
