//! Prometheus' own promtool takes the alerts and the expressions of the dashboard, and the alerts fire when
//! they should.

use evenkeel_testkit::interop::{build_promtool, source};
use evenkeel_testkit::skipped;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All expressions of a dashboard, wherever they stand.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    other => expressions(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// Writes the expressions as a rule file, with times where Grafana puts them in.
fn as_rules(deploy: &Path, directory: &Path) -> PathBuf {
    let dashboard = std::fs::read_to_string(deploy.join("dashboard.json")).expect("the dashboard");
    let mut found = Vec::new();
    expressions(
        &serde_json::from_str(&dashboard).expect("a dashboard in JSON"),
        &mut found,
    );
    assert!(found.len() >= 20, "{found:?}");
    let rule = |(at, expression): (usize, &String)| {
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$__range", "6h");
        json!({"record": format!("dashboard:expression:{at}"), "expr": expression})
    };
    let rules: Vec<Value> = found.iter().enumerate().map(rule).collect();
    let file = directory.join("dashboard-rules.yaml");
    let text = json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    std::fs::write(&file, text).expect("a rule file");
    file
}

#[test]
fn promtool_takes_the_alerts_and_they_fire_when_they_should() {
    let Some(go) = evenkeel_testkit::go() else {
        return skipped(
            "promtool_takes_the_alerts_and_they_fire_when_they_should",
            "no go on PATH",
        );
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let promtool = build_promtool(&go, directory).unwrap_or_else(|why| panic!("{why}"));
    let tests = source("promtool");
    let deploy = tests.join("../../deploy");
    let dashboard = as_rules(&deploy, directory);
    for arguments in [
        vec!["check", "rules", "--lint-fatal", "../../deploy/alerts.yaml"],
        vec![
            "check",
            "rules",
            "--lint-fatal",
            dashboard.to_str().expect("a path in UTF-8"),
        ],
        vec!["test", "rules", "alerts_test.yaml"],
    ] {
        let output = Command::new(&promtool)
            .args(&arguments)
            .current_dir(&tests)
            .output()
            .expect("promtool");
        assert!(
            output.status.success(),
            "promtool {arguments:?}:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
