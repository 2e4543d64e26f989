//! Over HTTP.

use super::{SOON, built, module, modules, named};
use evenkeel_testkit::eventually;
use evenkeel_testkit::koupleless::{JavaBase, Setup};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The outer and the inner code.
fn codes(answer: &Value) -> (&str, &str) {
    (
        answer["code"].as_str().unwrap_or_default(),
        answer["data"]["code"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn modules_are_installed_once_and_uninstalled_once() {
    let Some(built) = built("modules_are_installed_once_and_uninstalled_once") else {
        return;
    };
    let mut base = built.start(Setup::default()).await;
    assert_eq!(modules(&base).await, Vec::<String>::new());
    let answer = base.post("installBiz", &module(&built, "good", "1.0.0")).await;
    assert_eq!(codes(&answer), ("SUCCESS", "SUCCESS"), "{answer}");
    let answer = base.post("installBiz", &module(&built, "good", "1.0.0")).await;
    assert_eq!(codes(&answer), ("FAILED", "REPEAT_BIZ"), "{answer}");
    let answer = base.post("installBiz", &module(&built, "good", "2.0.0")).await;
    assert_eq!(codes(&answer), ("SUCCESS", "SUCCESS"), "{answer}");
    let both = ["good:1.0.0 activated", "good:2.0.0 deactivated"];
    assert_eq!(modules(&base).await, both);
    for name in ["one", "two", "three"] {
        let answer = base.post("installBiz", &module(&built, name, "1.0.0")).await;
        assert_eq!(codes(&answer), ("SUCCESS", "SUCCESS"), "{answer}");
    }
    let group = [
        "one:1.0.0 activated",
        "three:1.0.0 activated",
        "two:1.0.0 activated",
    ];
    assert_eq!(modules(&base).await, [&both[..], &group[..]].concat());
    let answer = base.post("uninstallBiz", &named("good", "1.0.0")).await;
    assert_eq!(codes(&answer), ("SUCCESS", "SUCCESS"), "{answer}");
    let answer = base.post("uninstallBiz", &named("good", "1.0.0")).await;
    assert_eq!(codes(&answer), ("FAILED", "NOT_FOUND_BIZ"), "{answer}");
    assert_eq!(
        modules(&base).await,
        [&both[1..], &group[..]].concat(),
        "nothing activates the other version"
    );

    let port = base.address().port();
    base.restart().await;
    assert_eq!(base.address().port(), port);
    assert_eq!(
        modules(&base).await,
        Vec::<String>::new(),
        "a new process is empty"
    );
    let status = base.stop().await;
    assert!(!status.success(), "SIGTERM: {status}");
}

/// The first answer to `queryBizOps` whose status is not `EXECUTING`.
async fn outcome(base: &JavaBase, request: &str) -> Value {
    eventually("the operation ends", SOON, || async {
        let answer = base.post("queryBizOps", &json!({ "requestId": request })).await;
        let running = ["INITIALIZED", "EXECUTING"].map(Value::from);
        (!running.contains(&answer["data"]["status"])).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn a_slow_module_can_be_asked_after_while_the_base_answers() {
    let Some(built) = built("a_slow_module_can_be_asked_after_while_the_base_answers") else {
        return;
    };
    let base = built
        .start(Setup {
            slow: Duration::from_secs(4),
            ..Setup::default()
        })
        .await;
    let mut request = module(&built, "slow", "1.0.0");
    request["async"] = true.into();
    request["requestId"] = "r1".into();
    let answer = base.post("installBiz", &request).await;
    assert_eq!(answer["code"], "SUCCESS", "{answer}");
    let record = eventually("the module starts", SOON, || async {
        let answer = base.post("queryBizOps", &json!({ "requestId": "r1" })).await;
        (answer["data"]["status"] == "EXECUTING").then_some(answer)
    })
    .await;
    assert_eq!(record["data"]["endTimestamp"], 0, "{record}");
    let again = base.post("installBiz", &module(&built, "slow", "1.0.0")).await;
    assert_eq!(
        again["message"],
        "FAILED:slow:1.0.0 installBiz conflict, exist unfinished command(installBiz) for this biz"
    );
    let record = outcome(&base, "r1").await;
    assert_eq!(record["data"]["status"], "SUCCEEDED", "{record}");
    assert_eq!(modules(&base).await, ["slow:1.0.0 activated"]);

    request = module(&built, "failing", "1.0.0");
    request["async"] = true.into();
    request["requestId"] = "r2".into();
    base.post("installBiz", &request).await;
    let record = outcome(&base, "r2").await;
    assert_eq!(record["data"]["status"], "FAILED", "{record}");
}

#[tokio::test]
async fn a_module_that_does_not_start_says_why_and_is_gone() {
    let Some(built) = built("a_module_that_does_not_start_says_why_and_is_gone") else {
        return;
    };
    let base = built.start(Setup::default()).await;
    let answer = base.post("installBiz", &module(&built, "failing", "1.0.0")).await;
    assert_eq!(answer["code"], "CMD_PROCESS_INTERNAL_ERROR");
    let trace = answer["errorStackTrace"].as_str().unwrap();
    let causes: Vec<_> = trace
        .lines()
        .filter_map(|line| line.strip_prefix("Caused by: "))
        .collect();
    assert_eq!(
        causes,
        [
            "java.lang.reflect.InvocationTargetException",
            "java.lang.IllegalStateException: module failing cannot start",
            "java.lang.IllegalArgumentException: no database at db.example:5432",
        ]
    );
    assert_eq!(modules(&base).await, Vec::<String>::new());
}

#[tokio::test]
async fn several_versions_are_active_and_broken_modules_stay_if_the_base_is_told_so() {
    let Some(built) = built("several_versions_are_active_and_broken_modules_stay_if_the_base_is_told_so")
    else {
        return;
    };
    let base = built
        .start(Setup {
            multi_version: true,
            auto_uninstall: false,
            ..Setup::default()
        })
        .await;
    for (name, version) in [("good", "1.0.0"), ("good", "2.0.0"), ("failing", "1.0.0")] {
        base.post("installBiz", &module(&built, name, version)).await;
    }
    let all = [
        "failing:1.0.0 broken",
        "good:1.0.0 activated",
        "good:2.0.0 activated",
    ];
    assert_eq!(modules(&base).await, all);
    let answer = base.post("installBiz", &module(&built, "failing", "1.0.0")).await;
    assert_eq!(codes(&answer), ("FAILED", "REPEAT_BIZ"), "{answer}");
}

/// Used, committed and greatest metaspace in bytes.
async fn metaspace(base: &JavaBase) -> [i64; 3] {
    let health = base.post("health", &json!({})).await;
    ["used", "committed", "max"].map(|which| {
        let figure = &health["data"]["healthData"]["jvm"][format!("java {which} metaspace")];
        assert!(figure.is_i64(), "{which}: {health}");
        figure.as_i64().expect("looked at above")
    })
}

#[tokio::test]
async fn a_fat_module_fills_the_metaspace_until_the_base_is_restarted() {
    let Some(built) = built("a_fat_module_fills_the_metaspace_until_the_base_is_restarted") else {
        return;
    };
    let mut base = built
        .start(Setup {
            max_metaspace_mib: Some(96),
            fat_mib: 32,
            ..Setup::default()
        })
        .await;
    let fat = 32 << 20;
    let [before, committed, max] = metaspace(&base).await;
    assert_eq!(max, 96 << 20);
    assert!((1..=committed).contains(&before), "{before} of {committed}");
    let answer = base.post("installBiz", &module(&built, "fat", "1.0.0")).await;
    assert_eq!(codes(&answer), ("SUCCESS", "SUCCESS"), "{answer}");
    let [filled, ..] = metaspace(&base).await;
    assert!(filled >= before + fat, "{before}, then {filled}");
    base.post("uninstallBiz", &named("fat", "1.0.0")).await;
    assert_eq!(modules(&base).await, Vec::<String>::new());
    let [leaked, ..] = metaspace(&base).await;
    assert!(leaked >= before + fat, "{before}, {filled}, then {leaked}");
    base.restart().await;
    let [fresh, ..] = metaspace(&base).await;
    assert!(fresh < before + fat / 2, "{before}, {leaked}, then {fresh}");
}

#[tokio::test]
async fn heartbeats_tell_who_the_base_is() {
    let Some(built) = built("heartbeats_tell_who_the_base_is") else {
        return;
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let setup = Setup {
        heartbeat: Some(format!("http://{}", listener.local_addr().unwrap())),
        identity: "base-7".to_owned(),
        name: "shop".to_owned(),
        version: "3.1".to_owned(),
        cluster: "east".to_owned(),
        ..Setup::default()
    };
    let (base, request) = tokio::join!(built.start(setup), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.ends_with('}') {
            let mut some = [0; 4096];
            let read = stream.read(&mut some).await.unwrap();
            assert_ne!(read, 0, "ended after {request}");
            request.push_str(std::str::from_utf8(&some[..read]).unwrap());
        }
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nSUCCESS";
        stream.write_all(answer.as_bytes()).await.unwrap();
        request
    });
    assert!(request.starts_with("POST /heartbeat HTTP/1.1\r\n"), "{request}");
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let wanted = json!({
        "baseMetadata": { "clusterName": "east", "identity": "base-7", "name": "shop", "version": "3.1" },
        "localHostName": "localhost",
        "localIP": "127.0.0.1",
        "port": base.address().port(),
        "state": "activated",
    });
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), wanted);
}

#[tokio::test]
async fn a_base_that_hangs_says_nothing_until_it_is_woken() {
    let Some(built) = built("a_base_that_hangs_says_nothing_until_it_is_woken") else {
        return;
    };
    let base = built.start(Setup::default()).await;
    base.hang();
    let mut stream = tokio::net::TcpStream::connect(base.address()).await.unwrap();
    let request = b"POST /health HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let early = tokio::time::timeout(Duration::from_millis(300), stream.read_buf(&mut answer)).await;
    assert!(early.is_err(), "{early:?}");
    base.wake();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}
