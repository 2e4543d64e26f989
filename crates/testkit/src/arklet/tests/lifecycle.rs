//! The life of modules, and arklet's rules about commands.

use super::{ask, base, identity, install, recorded_jars, url};
use crate::arklet::{Base, BizState, Download, Flags, Jar, Metaspace, Setup, Start, Thrown};
use serde_json::json;
use std::time::Duration;

fn base_with(flags: Flags) -> Base {
    Base::start(Setup {
        jars: recorded_jars(),
        flags,
        ..Setup::default()
    })
}

async fn until(base: &Base, name: &str, version: &str, state: Option<BizState>) {
    crate::until("the module is in this state", async || {
        base.state(name, version) == state
    })
    .await;
}

#[tokio::test]
async fn a_failed_module_stays_broken_where_it_is_not_uninstalled() {
    let base = base_with(Flags {
        auto_uninstall_when_failed: false,
        ..Flags::default()
    });
    let failed = ask(&base, "installBiz", &install("bad", "0.0.1")).await;
    assert_eq!(failed["code"], "CMD_PROCESS_INTERNAL_ERROR");
    let trace = failed["errorStackTrace"].as_str().unwrap();
    assert!(trace.contains("\nCaused by: java.lang.IllegalStateException: boom from bad\n"));
    let listed = ask(&base, "queryAllBiz", "{}").await;
    assert_eq!(listed["data"][0]["bizState"], "broken");
    let record = &listed["data"][0]["bizStateRecords"][1];
    assert_eq!(record["reason"], "Install Failed");
    assert!(
        record["message"]
            .as_str()
            .unwrap()
            .contains("Caused by: java.lang.IllegalStateException: boom from bad")
    );
    let again = ask(&base, "installBiz", &install("bad", "0.0.1")).await;
    assert_eq!(again["data"]["code"], "REPEAT_BIZ");
    let switched = ask(&base, "switchBiz", &identity("bad", "0.0.1")).await;
    assert_eq!(switched["data"]["code"], "ILLEGAL_STATE_BIZ");
    assert_eq!(
        switched["data"]["message"],
        "Switch Biz: bad:0.0.1's state must not be broken."
    );
    let removed = ask(&base, "uninstallBiz", &identity("bad", "0.0.1")).await;
    assert_eq!(removed["data"]["code"], "SUCCESS");
    assert_eq!(base.state("bad", "0.0.1"), None);
}

#[tokio::test]
async fn the_flags_decide_which_versions_are_active() {
    let cases = [
        (false, false, BizState::Activated, BizState::Deactivated),
        (true, false, BizState::Activated, BizState::Activated),
        (false, true, BizState::Deactivated, BizState::Activated),
    ];
    for (multi_version, activate_new_module, old, new) in cases {
        let base = base_with(Flags {
            multi_version,
            activate_new_module,
            ..Flags::default()
        });
        for version in ["0.0.1", "0.0.2"] {
            let answer = ask(&base, "installBiz", &install("biz1", version)).await;
            assert_eq!(answer["code"], "SUCCESS");
        }
        assert_eq!(base.state("biz1", "0.0.1"), Some(old));
        assert_eq!(base.state("biz1", "0.0.2"), Some(new));
    }
}

#[tokio::test]
async fn uninstalling_the_active_version_activates_no_other() {
    let base = base();
    for version in ["0.0.1", "0.0.2"] {
        ask(&base, "installBiz", &install("biz1", version)).await;
    }
    ask(&base, "uninstallBiz", &identity("biz1", "0.0.1")).await;
    assert_eq!(base.state("biz1", "0.0.2"), Some(BizState::Deactivated));
}

#[tokio::test]
async fn a_failed_stop_keeps_the_module_only_where_the_flag_says_so() {
    for (remove, state) in [(true, None), (false, Some(BizState::Broken))] {
        let base = base_with(Flags {
            remove_when_stop_failed: remove,
            ..Flags::default()
        });
        let stuck = Jar::new("stuck", "1").stop_fails(Thrown::new("a.StuckException", "held"));
        base.inner.ground.jars.put("file:///stuck.jar", stuck);
        base.install_by_hand("file:///stuck.jar").await;
        let answer = ask(&base, "uninstallBiz", &identity("stuck", "1")).await;
        assert_eq!(answer["message"], "Internal Error: a.StuckException: held");
        assert_eq!(base.state("stuck", "1"), state);
    }
}

#[tokio::test]
async fn a_conflicting_asynchronous_command_never_fails_and_frees_the_lock_of_the_other() {
    let base = base();
    let begin = |id: &str| {
        let url = url("slow", "0.0.1");
        format!(
            r#"{{"async":true,"requestId":"{id}","bizName":"slow","bizVersion":"0.0.1","bizUrl":"{url}"}}"#
        )
    };
    ask(&base, "installBiz", &begin("a")).await;
    until(&base, "slow", "0.0.1", Some(BizState::Resolved)).await;
    let locked = ask(&base, "uninstallBiz", &identity("slow", "0.0.1")).await;
    assert_eq!(
        locked["message"],
        "FAILED:slow:0.0.1 uninstallBiz conflict, exist unfinished command(installBiz) for this biz"
    );
    ask(&base, "installBiz", &begin("b")).await;
    let record = ask(&base, "queryBizOps", r#"{"requestId":"b"}"#).await;
    assert_eq!(record["data"]["status"], "INITIALIZED");
    assert_ne!(record["data"]["endTimestamp"], 0);
    let unlocked = ask(&base, "uninstallBiz", &identity("slow", "0.0.1")).await;
    assert_eq!(
        unlocked["message"],
        "Internal Error: java.lang.IllegalArgumentException: BizState must be ACTIVATED, DEACTIVATED or BROKEN."
    );
    let repeated = ask(&base, "installBiz", &install("slow", "0.0.1")).await;
    assert_eq!(repeated["data"]["code"], "REPEAT_BIZ");
    base.release(&url("slow", "0.0.1"));
    until(&base, "slow", "0.0.1", Some(BizState::Activated)).await;
    let record = ask(&base, "queryBizOps", r#"{"requestId":"a"}"#).await;
    assert_eq!(record["data"]["status"], "SUCCEEDED");
}

#[tokio::test]
async fn a_batch_goes_by_priority_and_fails_as_a_whole_when_a_jar_is_missing() {
    let base = base();
    let jars = &base.inner.ground.jars;
    jars.put(
        "file:///late.jar",
        Jar::new("late", "1").priority(2000).start(Start::Held),
    );
    jars.put(
        "file:///early.jar",
        Jar::new("early", "1").priority(10).start(Start::Held),
    );
    let missing = ask(
        &base,
        "batchInstallBiz",
        r#"{"bizList":[{"bizUrl":"file:///early.jar"},{"bizUrl":"http://127.0.0.1/no.jar"}]}"#,
    )
    .await;
    assert_eq!(
        missing["message"],
        "Internal Error: java.io.FileNotFoundException: http://127.0.0.1/no.jar"
    );
    assert_eq!(base.modules(), []);
    let both = r#"{"bizList":[{"bizUrl":"file:///late.jar"},{"bizUrl":"file:///early.jar"}]}"#;
    let batch = ask(&base, "batchInstallBiz", both);
    let watch = async {
        until(&base, "early", "1", Some(BizState::Resolved)).await;
        assert_eq!(base.state("late", "1"), None);
        let second = ask(&base, "batchInstallBiz", both).await;
        assert_eq!(
            second["message"],
            "FAILED:null:null batchInstallBiz conflict, exist unfinished command(batchInstallBiz) for this biz"
        );
        base.release("file:///early.jar");
        until(&base, "late", "1", Some(BizState::Resolved)).await;
        base.release("file:///late.jar");
    };
    let (answer, ()) = tokio::join!(batch, watch);
    assert_eq!(answer["data"]["message"], "batch install success");
}

#[tokio::test]
async fn the_messages_of_the_checks_are_arklets() {
    let base = base();
    for (command, body, message) in [
        ("uninstallBiz", "{}", "bizName should not be blank"),
        (
            "switchBiz",
            r#"{"bizName":"a"}"#,
            "bizVersion should not be blank",
        ),
        (
            "uninstallBiz",
            r#"{"bizName":"a","bizVersion":"1","async":true}"#,
            "requestId should not be blank when async is true",
        ),
        (
            "installBiz",
            r#"{"bizUrl":"file:///none.jar"}"#,
            "refresh biz info from jar failed: /none.jar (No such file or directory)",
        ),
        (
            "installBiz",
            r#"{"bizName":"a","bizVersion":"1","bizUrl":"/a.jar"}"#,
            "java.net.MalformedURLException: no protocol: /a.jar",
        ),
        ("health", r#"{"type":"zzz"}"#, "type: zzz can not be found"),
    ] {
        let answer = ask(&base, command, body).await;
        assert_eq!(answer["message"], format!("Internal Error: {message}"));
        assert_eq!(answer["code"], "CMD_PROCESS_INTERNAL_ERROR");
    }
}

#[tokio::test]
async fn health_tells_of_the_machine_the_base_and_its_modules() {
    let base = base();
    base.install_by_hand(&url("biz1", "0.0.1")).await;
    let all = ask(&base, "health", "").await;
    let data = &all["data"]["healthData"];
    assert_eq!(data["masterBizInfo"]["bizState"], "activated");
    assert_eq!(data["bizListInfo"][1]["bizName"], "biz1");
    assert_eq!(
        data["jvm"]["java used metaspace"],
        json!(base.metaspace_used().unwrap())
    );
    let one = r#"{"type":"biz","bizName":"biz1","bizVersion":"0.0.1"}"#;
    let one = ask(&base, "health", one).await;
    assert_eq!(
        one["data"]["healthData"],
        json!({"bizInfo": {"bizName": "biz1", "bizState": "activated", "bizVersion": "0.0.1", "webContextPath": "/biz1"}})
    );
    let none = r#"{"type":"biz","bizName":"biz1","bizVersion":"9"}"#;
    assert_eq!(ask(&base, "health", none).await["message"], "can not find biz");
    let jvm = ask(&base, "health", r#"{"type":"system","metrics":["jvm"]}"#).await;
    let keys = jvm["data"]["healthData"].as_object().unwrap().keys();
    assert_eq!(keys.collect::<Vec<_>>(), ["jvm"]);
    base.partial_health(true);
    let partial = ask(&base, "health", "{}").await;
    let partial = partial["data"]["healthData"].as_object().unwrap();
    assert!(!partial.contains_key("jvm") && !partial.contains_key("cpu"));
    assert!(partial.contains_key("bizListInfo"));
}

#[tokio::test]
async fn modules_take_metaspace_and_do_not_always_give_it_back() {
    let base = Base::start(Setup {
        jars: recorded_jars(),
        metaspace: Metaspace {
            used: 100,
            committed: 150,
            max: 250,
        },
        ..Setup::default()
    });
    let jars = &base.inner.ground.jars;
    jars.put(
        "file:///leaky.jar",
        Jar::new("leaky", "1").metaspace(100).leaking(60),
    );
    jars.put("file:///big.jar", Jar::new("big", "1").metaspace(100));
    base.install_by_hand("file:///leaky.jar").await;
    assert_eq!(base.metaspace_used(), Some(200));
    ask(&base, "uninstallBiz", &identity("leaky", "1")).await;
    assert_eq!(base.metaspace_used(), Some(160));
    let full = ask(&base, "installBiz", r#"{"bizUrl":"file:///big.jar"}"#).await;
    let trace = full["errorStackTrace"].as_str().unwrap();
    assert!(trace.contains("Caused by: java.lang.OutOfMemoryError: Metaspace"));
    base.metaspace(50, -1);
    assert_eq!(base.metaspace_used(), Some(50));
    base.install_by_hand("file:///big.jar").await;
    assert_eq!(base.metaspace_used(), Some(150));
}

#[tokio::test]
async fn a_restart_loses_modules_and_records_and_keeps_the_address() {
    let base = base();
    base.install_by_hand(&url("biz1", "0.0.1")).await;
    assert!(base.modules()[0].by_hand);
    let begin = format!(
        r#"{{"async":true,"requestId":"r","bizUrl":"{}"}}"#,
        url("biz2", "0.0.1")
    );
    ask(&base, "installBiz", &begin).await;
    let address = base.address();
    base.restart().await;
    assert_eq!((base.address(), base.modules()), (address, vec![]));
    let record = ask(&base, "queryBizOps", r#"{"requestId":"r"}"#).await;
    assert_eq!(record["message"], "Not found the corresponding ops record.");
}

#[tokio::test]
async fn a_download_that_never_ends_holds_the_lock() {
    let base = base();
    let jars = &base.inner.ground.jars;
    jars.put(
        "http://127.0.0.1/stuck.jar",
        Jar::new("stuck", "1").download(Download::Hangs),
    );
    jars.put(
        "http://127.0.0.1/late.jar",
        Jar::new("late", "1").download(Download::Takes(Duration::from_millis(1))),
    );
    let stuck = r#"{"async":true,"requestId":"s","bizName":"stuck","bizVersion":"1","bizUrl":"http://127.0.0.1/stuck.jar"}"#;
    ask(&base, "installBiz", stuck).await;
    let late = ask(&base, "installBiz", r#"{"bizUrl":"http://127.0.0.1/late.jar"}"#).await;
    assert_eq!(late["code"], "SUCCESS");
    let conflict = ask(&base, "uninstallBiz", &identity("stuck", "1")).await;
    assert!(conflict["message"].as_str().unwrap().contains("conflict"));
    assert_eq!(base.state("stuck", "1"), None);
}

#[tokio::test]
async fn help_lists_the_commands_in_arklets_order() {
    let help = ask(&base(), "help", "").await;
    let ids: Vec<_> = help["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            "health",
            "batchInstallBiz",
            "queryAllBiz",
            "help",
            "uninstallBiz",
            "switchBiz",
            "installBiz",
            "queryBizOps"
        ]
    );
}
