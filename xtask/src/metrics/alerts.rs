//! What `deploy/alerts.yaml` and `deploy/dashboard.json` ask for is served: every metric, label and value.

use super::declared::Metric;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Metrics and labels that Prometheus makes itself for each target.
const OF_PROMETHEUS: (&str, [&str; 3]) = ("up", ["job", "instance", "le"]);
/// Words of the language that are no function.
const WORDS: [&str; 12] = [
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "atan2",
];

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    expr: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the checkout")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn alerts() -> Vec<Alert> {
    let rules: Rules = serde_saphyr::from_str(&file("deploy/alerts.yaml")).expect("rules");
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

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

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file")
}

/// The metrics that an expression names, each with its matchers: label, and the value or values.
fn selectors(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let grouped = regex(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)");
    let text = grouped.replace_all(expression, " ");
    let text = regex(r"\[[^\]]*\]").replace_all(&text, " ");
    let selector = regex(
        r#"("[^"]*")|([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\(|\{(?:[^}"]|"[^"]*")*\})?|[0-9][0-9a-zA-Z_.]*|\$\w+"#,
    );
    let matcher = regex(r#"(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)""#);
    let mut found = Vec::new();
    for part in selector.captures_iter(&text) {
        let Some(name) = part.get(2).map(|name| name.as_str()) else {
            continue;
        };
        let rest = part.get(3).map_or("", |rest| rest.as_str());
        if rest.starts_with('(') || WORDS.contains(&name) {
            continue;
        }
        let pairs = matcher
            .captures_iter(rest)
            .map(|pair| (pair[1].to_owned(), pair[2].to_owned()));
        found.push((name.to_owned(), pairs.collect()));
    }
    found
}

/// What an expression asks for and nobody serves.
fn unknown(expression: &str, metrics: &[Metric]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, matchers) in selectors(expression) {
        let is_meant = |metric: &&Metric| {
            let series = ["_bucket", "_sum", "_count"];
            metric.name == name
                || metric.kind == "histogram"
                    && series.iter().any(|end| format!("{}{end}", metric.name) == name)
        };
        let metric = metrics.iter().find(is_meant);
        if metric.is_none() && name != OF_PROMETHEUS.0 {
            problems.push(format!("nobody serves {name}: {expression}"));
        }
        for (label, values) in matchers {
            if OF_PROMETHEUS.1.contains(&label.as_str()) {
                continue;
            }
            let known = metric.and_then(|metric| metric.labels.iter().find(|known| known.name == label));
            let Some(known) = known else {
                problems.push(format!("{name} has no label {label}: {expression}"));
                continue;
            };
            let is_open = known.values.iter().all(|value| value.name.is_empty());
            for value in values.split('|') {
                if !is_open && !known.values.iter().any(|known| known.name == value) {
                    problems.push(format!("{name} has no {label}=\"{value}\": {expression}"));
                }
            }
        }
    }
    problems
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_served() {
    let metrics = super::all(root()).expect("the metrics");
    let dashboard: Value = serde_json::from_str(&file("deploy/dashboard.json")).expect("JSON");
    let mut asked: Vec<String> = alerts().into_iter().map(|alert| alert.expr).collect();
    let of_alerts = asked.len();
    expressions(&dashboard, &mut asked);
    assert!(
        of_alerts >= 15 && asked.len() - of_alerts >= 20,
        "{of_alerts} alerts, {} expressions",
        asked.len()
    );
    let problems: Vec<String> = asked
        .iter()
        .flat_map(|expression| unknown(expression, &metrics))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_alert_says_how_bad_it_is_what_it_means_and_what_to_do() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = alert.name;
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(
            matches!(severity, Some("warning" | "critical")),
            "{name}: {severity:?}"
        );
        for annotation in ["summary", "description", "action"] {
            let text = alert.annotations.get(annotation);
            assert!(
                text.is_some_and(|text| !text.is_empty()),
                "{name} has no {annotation}"
            );
        }
        let runbook = format!("docs/operate.md#{}", name.to_lowercase());
        assert_eq!(alert.annotations.get("runbook"), Some(&runbook), "{name}");
        assert!(names.insert(name.clone()), "{name} stands there twice");
    }
}

#[test]
fn what_is_not_served_is_found_in_expressions() {
    let metrics = super::all(root()).expect("the metrics");
    let lines = [
        (
            "evenkeel_failover_node > 0",
            "nobody serves evenkeel_failover_node",
        ),
        (
            "sum by (state) (evenkeel_failover_nodes{state=\"Undead\"})",
            "evenkeel_failover_nodes has no state=\"Undead\"",
        ),
        (
            "rate(evenkeel_failover_actions_total{result=\"done\"}[5m])",
            "evenkeel_failover_actions_total has no label result",
        ),
        (
            "evenkeel_failover_nodes_bucket",
            "nobody serves evenkeel_failover_nodes_bucket",
        ),
    ];
    for (expression, problem) in lines {
        let problem = format!("{problem}: {expression}");
        assert_eq!(unknown(expression, &metrics), [problem]);
    }
    for expression in [
        "histogram_quantile(0.99, sum by (le) (rate(evenkeel_webhook_duration_seconds_bucket[5m]))) > 1e-3",
        "up{job=\"x\"} and on (job) group_left (a) (evenkeel_failover_leading == bool 1) offset 5m",
        "evenkeel_agent_datagrams_refused_total{reason=~\"stranger|code\", instance=\"a}b\"}",
    ] {
        assert_eq!(unknown(expression, &metrics), Vec::<String>::new());
    }
}
