//! What a real Koupleless base does, and that the recordings of arklet say the same.

mod http;
mod mqtt;
mod recorded;
mod shape;

use evenkeel_testkit::koupleless::{self, Built, JavaBase};
use serde_json::{Value, json};
use std::time::Duration;

/// For whatever a base does.
const SOON: Duration = Duration::from_secs(60);

/// The built base; without, the test is skipped.
fn built(test: &str) -> Option<Built> {
    match koupleless::build() {
        Ok(built) => Some(built),
        Err(why) => {
            evenkeel_testkit::skipped(test, &why.to_string());
            None
        }
    }
}

/// The body of an `installBiz`.
fn module(built: &Built, name: &str, version: &str) -> Value {
    json!({ "bizName": name, "bizVersion": version, "bizUrl": built.jar(name, version) })
}

/// The body of an `uninstallBiz`.
fn named(name: &str, version: &str) -> Value {
    json!({ "bizName": name, "bizVersion": version })
}

/// The modules by `queryAllBiz`, as `NAME:VERSION STATE`, sorted.
async fn modules(base: &JavaBase) -> Vec<String> {
    let answer = base.post("queryAllBiz", &json!({})).await;
    let all = answer["data"].as_array().expect("a list");
    let text = |one: &Value, key: &str| one[key].as_str().expect("a string").to_owned();
    let mut all: Vec<String> = all
        .iter()
        .map(|one| {
            format!(
                "{}:{} {}",
                text(one, "bizName"),
                text(one, "bizVersion"),
                text(one, "bizState")
            )
        })
        .collect();
    all.sort();
    all
}
