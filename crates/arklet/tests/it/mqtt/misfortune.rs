//! What goes wrong harms the call that it happens to, and no other.

use super::base::FakeBase;
use super::broker::{Broker, Manners, topic};
use super::{Controller, SECONDS, base, done, heart, operation, options};
use crate::golden::outcome;
use evenkeel_arklet::mqtt::SettingNames;
use evenkeel_arklet::{Base, ErrorKind, Install, ModuleId, Outcome, Tunnel as _};
use evenkeel_testkit::log::Log;
use evenkeel_testkit::until_within;
use rstest::rstest;
use rumqttc::ConnectReturnCode;
use serde_json::{Value, json};
use std::time::Duration;

fn install(name: &str) -> Install {
    Install::new(ModuleId::new(name, "1"), "file:a")
}

/// A base that does as it is told, but for modules called `mute`.
async fn willing(broker: &Broker, identity: &str) -> FakeBase {
    FakeBase::start(broker.address, identity, |command, body| match command {
        "installBiz" if body["bizName"] != "mute" => vec![operation(command, body, &done(body))],
        "queryAllBiz" => vec![("simpleBiz", json!({"data": []}).to_string())],
        _ => vec![],
    })
    .await
}

async fn told(peer: &FakeBase, count: usize) {
    until_within("the base is told", SECONDS, async || peer.told().len() >= count).await;
}

#[tokio::test]
async fn a_base_that_does_not_answer_is_left_at_the_deadline_and_its_late_reply_is_nobodys() {
    let broker = Broker::start(Manners::default()).await;
    let mut short = options(broker.address);
    short.install = Duration::from_millis(300);
    let controller = Controller::start(short);
    let peer = willing(&broker, "b1").await;
    controller.until(true).await;
    let mute = install("mute");
    let error = controller.tunnel.install(&base("b1"), &mute).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "base b1 in Dev: no answer to installBiz under koupleless_dev/b1/base/bizOperation within 300ms"
    );
    assert!(error.may_have_run());
    let body = Value::Object(mute.body());
    let (end, late) = operation("installBiz", &body, &done(&body));
    peer.publish(end, &late, false);
    until_within("the late reply is counted", SECONDS, async || {
        controller.tunnel.counts().unclaimed == 1
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_read_is_counted_and_harms_nobody() {
    let broker = Broker::start(Manners::default()).await;
    let mut controller = Controller::start(options(broker.address));
    controller.until(true).await;
    let peer = willing(&broker, "b1").await;
    let flawed = [
        ("koupleless_dev/b1/base/heart", "{"),
        ("koupleless_dev/b1/base/heart", "\u{0}"),
        ("koupleless_dev/b1/base/heart", "{}"),
        ("koupleless_dev/b1/base/heart", r#"{"data":{"baseMetadata":{}}}"#),
        ("koupleless_dev/b1/base/simpleBiz", r#"{"data":7}"#),
        (
            "koupleless_dev/b1/base/biz",
            r#"{"data":{"code":"FAILED","message":"no"}}"#,
        ),
        ("koupleless_dev/b1/base/BIZ", r#"{"data":[]}"#),
        (
            "koupleless_dev/b1/base/bizOperation",
            r#"{"data":{"command":"installBiz"}}"#,
        ),
        ("koupleless_dev/b1/base/unheard", "{}"),
        ("koupleless_dev/b1", "{}"),
        ("elsewhere", "{}"),
    ];
    for (topic, payload) in flawed {
        broker.inject("controller-0", topic, payload, false);
    }
    // A base that speaks for another one.
    broker.inject(
        "controller-0",
        "koupleless_dev/b1/base/heart",
        &heart("b2"),
        false,
    );
    let list = controller.tunnel.modules(&base("b1")).await.unwrap();
    assert_eq!(list.modules, []);
    assert_eq!(controller.tunnel.counts().malformed, flawed.len() as u64 + 1);
    peer.publish("heart", &heart("b1"), false);
    assert_eq!(controller.heart().await.identity, "b1");
    assert_eq!(broker.connections().0, 2, "nobody was cut off");
}

/// The next line of the log with these words.
async fn says(log: &Log, words: &[&str]) {
    until_within(&format!("the log says {words:?}"), SECONDS, async || {
        !log.with(words).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_base_that_answers_under_another_topic_or_twice_is_named() {
    let log = Log::capture();
    let broker = Broker::start(Manners::default()).await;
    let mut short = options(broker.address);
    short.install = Duration::from_secs(1);
    let controller = Controller::start(short);
    let _peer = FakeBase::start(broker.address, "b1", |command, body| {
        let (_, answer) = operation(command, body, &done(body));
        match body["bizName"].as_str() {
            Some("case") => vec![("BizOperation", answer)],
            Some("topic") => vec![("operations", answer)],
            _ => vec![("bizOperation", answer.clone()), ("bizOperation", answer)],
        }
    })
    .await;
    controller.until(true).await;
    // The broker does not even hand on what comes under a topic that nobody has subscribed to.
    for name in ["case", "topic"] {
        let error = controller.tunnel.install(&base("b1"), &install(name)).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "base b1 in Dev: no answer to installBiz under koupleless_dev/b1/base/bizOperation within 1s"
        );
    }
    let outcome = controller.tunnel.install(&base("b1"), &install("twice")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    says(&log, &["b1", "it came twice"]).await;
}

#[rstest]
#[case::level(
    Manners { code: Some(ConnectReturnCode::RefusedProtocolVersion), ..Manners::default() },
    "another protocol level than 4 (MQTT 3.1.1)"
)]
#[case::identifier(Manners { code: Some(ConnectReturnCode::BadClientId), ..Manners::default() }, "--mqtt-client-prefix")]
#[case::unavailable(Manners { code: Some(ConnectReturnCode::ServiceUnavailable), ..Manners::default() }, "it is not ready")]
#[case::user(Manners { credentials: Some(("a".to_owned(), "b".to_owned())), ..Manners::default() }, "--mqtt-password-file")]
#[case::rights(Manners { code: Some(ConnectReturnCode::NotAuthorized), ..Manners::default() }, "may not connect")]
#[case::silence(Manners { hangs: true, ..Manners::default() }, "does not answer within 10 s")]
#[tokio::test]
async fn a_broker_that_lets_nobody_in_is_named_with_its_reason(
    #[case] manners: Manners,
    #[case] words: &str,
) {
    let log = Log::capture();
    let broker = Broker::start(manners).await;
    let mut options = options(broker.address);
    options.names = SettingNames {
        client_id: "--mqtt-client-prefix",
        username: "--mqtt-username",
        password: "--mqtt-password-file",
    };
    let controller = Controller::start(options);
    let port = format!("port={}", broker.address.port());
    says(&log, &["WARN", "no connection to the MQTT broker", &port, words]).await;
    broker.set_manners(Manners::default());
    controller.until(true).await;
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_named_with_its_reason() {
    let log = Log::capture();
    let mut broker = Broker::start(Manners::default()).await;
    broker.stop().await;
    let controller = Controller::start(options(broker.address));
    let port = format!("port={}", broker.address.port());
    says(
        &log,
        &["no connection to the MQTT broker", &port, "Connection refused"],
    )
    .await;
    broker.again().await;
    controller.until(true).await;
}

#[tokio::test]
async fn an_unreadable_reply_ends_the_call_that_it_belongs_to() {
    let broker = Broker::start(Manners::default()).await;
    let controller = Controller::start(options(broker.address));
    let _peer = FakeBase::start(broker.address, "b1", |command, body| {
        vec![operation(command, body, &json!("what?"))]
    })
    .await;
    controller.until(true).await;
    let error = controller
        .tunnel
        .install(&base("b1"), &install("a"))
        .await
        .unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn one_operation_per_module_waits_and_questions_are_shared() {
    let broker = Broker::start(Manners::default()).await;
    let controller = Controller::start(options(broker.address));
    let peer = FakeBase::start(broker.address, "b1", |_, _| vec![]).await;
    controller.until(true).await;
    let (tunnel, base) = (&controller.tunnel, base("b1"));
    let (first, other) = (install("a"), install("b"));
    let operations = async {
        let mut waiting = tunnel.install(&base, &first);
        tokio::select! {
            outcome = &mut waiting => panic!("{outcome:?}"),
            () = told(&peer, 1) => {}
        }
        let second = tunnel.install(&base, &first).await.unwrap_err();
        assert!(matches!(second.kind, ErrorKind::Busy { .. }), "{second:?}");
        assert!(!second.may_have_run());
        // Another module, and another command for the same one, are not the same.
        let answers = async {
            told(&peer, 3).await;
            for (command, install) in [
                ("installBiz", &other),
                ("uninstallBiz", &first),
                ("installBiz", &first),
            ] {
                let body = Value::Object(install.body());
                let (end, payload) = operation(command, &body, &done(&body));
                peer.publish(end, &payload, false);
            }
        };
        let id = first.id.clone().unwrap();
        let (one, two, three, ()) = tokio::join!(
            waiting,
            tunnel.install(&base, &other),
            tunnel.uninstall(&base, &id),
            answers
        );
        assert_eq!(outcome(&one.unwrap()), "done, a:1 is activated");
        assert_eq!(outcome(&two.unwrap()), "done, b:1 is activated");
        assert!(three.unwrap().is_gone());
        // Whoever gave up makes room.
        tokio::select! {
            outcome = tunnel.install(&base, &first) => panic!("{outcome:?}"),
            () = told(&peer, 4) => {}
        }
        let again = async {
            told(&peer, 5).await;
            let body = Value::Object(first.body());
            let (end, payload) = operation("installBiz", &body, &done(&body));
            peer.publish(end, &payload, false);
        };
        let (outcome, ()) = tokio::join!(tunnel.install(&base, &first), again);
        assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    };
    tokio::time::timeout(SECONDS, operations).await.unwrap();

    let count = peer.told().len();
    let answer = async {
        told(&peer, count + 2).await;
        peer.publish("simpleBiz", r#"{"data":[]}"#, false);
    };
    let (one, two, ()) = tokio::join!(tunnel.modules(&base), tunnel.modules(&base), answer);
    assert!(one.is_ok() && two.is_ok());
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused() {
    let broker = Broker::start(Manners::default()).await;
    let mut narrow = options(broker.address);
    narrow.calls = 1;
    let controller = Controller::start(narrow);
    let peer = FakeBase::start(broker.address, "b1", |_, _| vec![]).await;
    controller.until(true).await;
    let base = base("b1");
    let waiting = controller.tunnel.modules(&base);
    tokio::select! {
        outcome = waiting => panic!("{outcome:?}"),
        () = async {
            told(&peer, 1).await;
            let error = controller.tunnel.health(&base).await.unwrap_err();
            assert_eq!(error.to_string(), "base b1 in Dev: health not sent, too many calls wait");
        } => {}
    }
}

#[tokio::test]
async fn without_a_broker_nothing_is_sent_then_or_later() {
    let mut broker = Broker::start(Manners::default()).await;
    let peer = willing(&broker, "b1").await;
    let mut short = options(broker.address);
    short.query = Duration::from_millis(200);
    let controller = Controller::start(short);
    controller.until(true).await;
    broker.stop().await;
    controller.until(false).await;
    let error = controller
        .tunnel
        .install(&base("b1"), &install("a"))
        .await
        .unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NoBroker), "{error:?}");
    assert!(!error.may_have_run());
    broker.again().await;
    controller.until(true).await;
    peer.listens(2).await;
    let outcome = controller.tunnel.install(&base("b1"), &install("b")).await;
    assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    let told: Vec<Value> = peer
        .told()
        .iter()
        .map(|publish| serde_json::from_slice(&publish.payload).unwrap())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn a_command_that_the_broker_did_not_confirm_is_not_sent_twice() {
    let broker = Broker::start(Manners {
        swallow: Some("/installBiz"),
        ..Manners::default()
    })
    .await;
    let controller = Controller::start(options(broker.address));
    let _peer = willing(&broker, "b1").await;
    controller.until(true).await;
    let error = controller
        .tunnel
        .install(&base("b1"), &install("a"))
        .await
        .unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Broken { .. }), "{error:?}");
    assert!(error.may_have_run());
    broker.set_manners(Manners::default());
    controller.until(true).await;
    assert!(controller.tunnel.modules(&base("b1")).await.is_ok());
    let published = broker.published();
    let commands = published
        .iter()
        .filter(|publish| topic(publish).ends_with("/installBiz"));
    assert_eq!(commands.count(), 1);
}

#[tokio::test]
async fn a_reply_that_comes_after_a_reconnection_is_still_awaited() {
    let mut broker = Broker::start(Manners::default()).await;
    let peer = FakeBase::start(broker.address, "b1", |_, _| vec![]).await;
    let controller = Controller::start(options(broker.address));
    controller.until(true).await;
    let (target, module) = (base("b1"), install("a"));
    let interruption = async {
        told(&peer, 1).await;
        broker.stop().await;
        controller.until(false).await;
        broker.again().await;
        controller.until(true).await;
        peer.listens(2).await;
        let body = Value::Object(module.body());
        let (end, payload) = operation("installBiz", &body, &done(&body));
        peer.publish(end, &payload, false);
    };
    let (installed, ()) = tokio::join!(controller.tunnel.install(&target, &module), interruption);
    assert!(matches!(installed, Ok(Outcome::Done { .. })), "{installed:?}");
}

#[tokio::test]
async fn a_refused_subscription_is_no_connection_and_is_tried_again() {
    let broker = Broker::start(Manners {
        refuse: Some("/heart"),
        ..Manners::default()
    })
    .await;
    let controller = Controller::start(options(broker.address));
    until_within("a third attempt", SECONDS, async || broker.connections().0 >= 3).await;
    assert!(!*controller.tunnel.connected().borrow());
    broker.set_manners(Manners::default());
    controller.until(true).await;
}

#[tokio::test]
async fn events_that_nobody_takes_are_dropped_and_calls_go_on() {
    let broker = Broker::start(Manners::default()).await;
    let mut narrow = options(broker.address);
    narrow.events = 1;
    let mut controller = Controller::start(narrow);
    let peer = willing(&broker, "b1").await;
    controller.until(true).await;
    for _ in 0..3 {
        peer.publish("heart", &heart("b1"), false);
    }
    until_within("two are dropped", SECONDS, async || {
        controller.tunnel.counts().overflowed == 2
    })
    .await;
    assert!(controller.tunnel.modules(&base("b1")).await.is_ok());
    assert_eq!(controller.event().await.identity, "b1");
}

#[tokio::test]
async fn what_cannot_be_said_over_mqtt_is_refused_before_it_is() {
    let broker = Broker::start(Manners::default()).await;
    let controller = Controller::start(options(broker.address));
    controller.until(true).await;
    let tunnel = &controller.tunnel;
    for identity in ["", "+", "#", "a/b", "a\0"] {
        let error = tunnel.modules(&base(identity)).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Invalid { .. }), "{error:?}");
    }
    let elsewhere = Base {
        environment: "prod".to_owned(),
        ..base("b1")
    };
    let errors = [
        tunnel.modules(&elsewhere).await.unwrap_err(),
        tunnel
            .switch(&base("b1"), &ModuleId::new("a", "1"))
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind, ErrorKind::Unsupported { .. }), "{error:?}");
    }
    let nameless = Install {
        id: None,
        ..install("a")
    };
    let bare = Install::new(ModuleId::new("a", "1"), "/a.jar");
    for install in [&nameless, &bare] {
        let error = tunnel.install(&base("b1"), install).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Invalid { .. }), "{error:?}");
    }
    assert_eq!(broker.published(), []);
}

#[tokio::test]
async fn a_broker_that_falls_silent_is_given_up() {
    let broker = Broker::start(Manners::default()).await;
    let mut lively = options(broker.address);
    lively.keep_alive = Duration::from_secs(1);
    let controller = Controller::start(lively);
    controller.until(true).await;
    broker.set_manners(Manners {
        mute: true,
        ..Manners::default()
    });
    controller.until(false).await;
    broker.set_manners(Manners::default());
    controller.until(true).await;
}

#[tokio::test]
async fn the_connection_ends_with_a_farewell() {
    let broker = Broker::start(Manners::default()).await;
    let mut controller = Controller::start(options(broker.address));
    controller.until(true).await;
    controller.shutdown.cancel();
    let link = &mut controller.link;
    tokio::time::timeout(SECONDS, link).await.unwrap().unwrap();
    until_within("the farewell", SECONDS, async || broker.connections().1 == 1).await;
    assert!(!*controller.tunnel.connected().borrow());
}
