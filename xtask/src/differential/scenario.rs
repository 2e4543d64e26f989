//! What is done with an object: one list of requests per scenario.

use super::case::{APPLY, Case, JSON_PATCH, MERGE, Payload, STRATEGIC, Step, YAML};
use super::generate::{Dice, add_field, places, remove, spoil, status, vary};
use super::kinds::Kind;
use serde_json::{Value, json};

/// Draws the requests of one scenario.
type Draw = fn(&mut Dice, &Kind) -> Vec<Step>;

/// Scenarios with how many of a hundred cases they are.
pub(super) const SCENARIOS: [(&str, usize, Draw); 13] = [
    ("create", 22, create),
    ("generate", 2, generate),
    ("list", 6, list),
    ("update", 14, update),
    ("merge", 8, merge),
    ("strategic", 6, strategic),
    ("jsonpatch", 5, json_patch),
    ("status", 6, status_part),
    ("delete", 8, delete),
    ("collection", 4, delete_collection),
    ("apply", 11, apply),
    ("sequence", 6, sequence),
    ("watch", 2, watch),
];

/// The case of a number: its kind, its scenario, its requests.
pub(super) fn draw(
    seed: u64,
    number: u64,
    kinds: &[&Kind],
    scenarios: &[(&'static str, usize, Draw)],
) -> Case {
    let mut dice = Dice::new(seed, number);
    let kind = *dice.pick(kinds);
    let total = scenarios.iter().map(|(_, share, _)| share).sum();
    let mut ticket = dice.below(total);
    let (scenario, _, draw) = scenarios
        .iter()
        .find(|(_, share, _)| {
            let drawn = ticket < *share;
            ticket = ticket.wrapping_sub(*share);
            drawn
        })
        .unwrap_or(&scenarios[0]);
    let (scenario, draw): (&'static str, Draw) = if kind.only_created {
        ("create", create)
    } else {
        (scenario, *draw)
    };
    Case {
        seed,
        number,
        scenario,
        kind: format!("{} {}", kind.api_version, kind.name),
        steps: draw(&mut dice, kind),
        leaves: kind.leaves(),
    }
}

/// A valid object, mostly with more fields than it needs.
fn valid(dice: &mut Dice, kind: &Kind) -> Value {
    let mut object = kind.object();
    let more = *dice.pick(&[0, 0, 1, 1, 2, 3]);
    for _ in 0..more {
        grow(dice, kind, &mut object);
    }
    object
}

fn grow(dice: &mut Dice, kind: &Kind, object: &mut Value) {
    match kind.definition {
        Some(definition) => add_field(dice, definition, object),
        None => vary(dice, object),
    }
}

/// A third is invalid, some of those in more than one place.
fn any(dice: &mut Dice, kind: &Kind) -> Value {
    let mut object = valid(dice, kind);
    if dice.percent(45) {
        spoil(dice, &mut object);
        if dice.percent(15) {
            spoil(dice, &mut object);
        }
    }
    object
}

fn post(kind: &Kind, object: Value) -> Step {
    Step::new("POST", kind.collection()).with(object)
}

fn get(kind: &Kind) -> Step {
    Step::new("GET", kind.path())
}

/// Parameters that every write has.
fn options(dice: &mut Dice, mut step: Step) -> Step {
    if dice.percent(40) {
        step = step.ask(
            "fieldValidation",
            *dice.pick(&["Strict", "Strict", "Warn", "Ignore", "Loose"]),
        );
    }
    if dice.percent(8) {
        step = step.ask("dryRun", *dice.pick(&["All", "All", "Some"]));
    }
    if dice.percent(10) {
        step = step.ask("fieldManager", *dice.pick(&["other", "a/b", "\u{7}"]));
    }
    step
}

fn create(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = any(dice, kind);
    let mut step = post(kind, object);
    if dice.percent(15) {
        step = step.of_type(YAML);
    }
    if dice.percent(3)
        && let Payload::Object(object) = &step.payload
    {
        let text = object.to_string();
        let broken = [
            text.chars().take(text.len() / 2).collect(),
            text.replacen(':', "", 1),
            format!("[{text}]"),
            format!("{text}{text}"),
            String::new(),
            text.replacen("\"spec\"", "\"spec\":{},\"spec\"", 1),
            "null".to_owned(),
        ];
        step.payload = Payload::Text(dice.pick(&broken).clone());
    }
    let step = options(dice, step);
    if kind.only_created {
        vec![step]
    } else {
        vec![step, get(kind)]
    }
}

fn generate(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let mut object = valid(dice, kind);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("name");
        let prefix = *dice.pick(&["gen-", "gen-", "Gen_", "a.", "0", ""]);
        metadata.insert("generateName".to_owned(), json!(prefix));
    }
    vec![options(dice, post(kind, object))]
}

fn list(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let mut other = kind.object();
    let name = format!("y{}", kind.object_name());
    other["metadata"]["name"] = json!(name);
    other["metadata"]["labels"]["tier"] = json!("b");
    let mut steps = vec![post(kind, valid(dice, kind)), post(kind, other)];
    let mut list = Step::new("GET", kind.collection());
    let selector = *dice.pick(&[
        "case={{run}}",
        "case={{run}},tier=b",
        "case={{run}},tier!=b",
        "case={{run}},tier notin (a,b)",
        "case={{run}},!tier",
        "case in ({{run}}),tier",
        "case={{run}},tier>1",
        "case=={{run}},,",
        "case={{run}},tier in ()",
        "case={{run}},Bad_Key!=x y",
    ]);
    list = list.ask("labelSelector", selector);
    if dice.percent(50) {
        let name = kind.object_name();
        let field = [
            format!("metadata.name={name}"),
            format!("metadata.name!={name}"),
            format!("metadata.namespace={}", super::case::NAMESPACE),
            "spec.nodeName=".to_owned(),
            "status.phase=Pending".to_owned(),
            "type=Opaque".to_owned(),
            "spec.unknown=x".to_owned(),
            "metadata.name".to_owned(),
            "metadata.labels=x".to_owned(),
        ];
        list = list.ask("fieldSelector", dice.pick(&field).clone());
    }
    if dice.percent(30) {
        list = list.ask("limit", *dice.pick(&["1", "2", "0", "-1", "x"]));
    }
    if dice.percent(20) {
        list = list.ask("resourceVersion", *dice.pick(&["0", "x", "-1", "{{cap:rv}}"]));
    }
    if dice.percent(15) {
        list = list.ask(
            "resourceVersionMatch",
            *dice.pick(&["Exact", "NotOlderThan", "Other"]),
        );
    }
    steps.push(list);
    steps.push(Step::new("DELETE", kind.collection()).ask("labelSelector", "case={{run}}"));
    steps
}

/// Another state of an object that was created.
fn changed(dice: &mut Dice, kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    for _ in 0..=dice.below(2) {
        match dice.below(10) {
            0..4 => grow(dice, kind, &mut object),
            4..8 => vary(dice, &mut object),
            _ => spoil(dice, &mut object),
        }
    }
    object
}

fn update(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let mut next = changed(dice, kind, &object);
    let version = match dice.below(10) {
        0..6 => Some("{{cap:rv}}"),
        6 => Some("1"),
        7 => Some("x"),
        _ => None,
    };
    if next["metadata"].is_object() {
        if let Some(version) = version {
            next["metadata"]["resourceVersion"] = json!(version);
        }
        if dice.percent(15) {
            next["metadata"]["uid"] = json!(*dice.pick(&["{{cap:uid}}", "other"]));
        }
    }
    let mut steps = vec![post(kind, object)];
    if dice.percent(4) {
        steps.clear();
    }
    let put = Step::new("PUT", kind.path()).with(next);
    steps.push(options(dice, put));
    steps.push(get(kind));
    steps
}

/// The smallest merge patch that holds one place of an object.
fn fragment(dice: &mut Dice, object: &Value) -> Value {
    let mut places = places(object);
    places.retain(|place| {
        let named = place == "/apiVersion" || place == "/kind" || place.starts_with("/metadata/name");
        !named && !place.split('/').any(|part| part.parse::<usize>().is_ok())
    });
    if places.is_empty() {
        return json!({});
    }
    let place = dice.pick(&places).clone();
    let value = if dice.percent(12) {
        Value::Null
    } else {
        object.pointer(&place).cloned().unwrap_or_default()
    };
    place
        .split('/')
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .fold(
            value,
            |inner, key| json!({key.replace("~1", "/").replace("~0", "~"): inner}),
        )
}

fn patch(dice: &mut Dice, kind: &Kind, content_type: &'static str, body: Value) -> Step {
    options(
        dice,
        Step::new("PATCH", kind.path()).of_type(content_type).with(body),
    )
}

fn merge(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let next = changed(dice, kind, &object);
    let body = fragment(dice, &next);
    vec![post(kind, object), patch(dice, kind, MERGE, body), get(kind)]
}

fn strategic(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let next = changed(dice, kind, &object);
    let mut body = fragment(dice, &next);
    if dice.percent(25) {
        let places: Vec<String> = places(&body)
            .into_iter()
            .filter(|place| body.pointer(place).is_some_and(Value::is_object))
            .collect();
        if !places.is_empty() {
            let place = dice.pick(&places).clone();
            let directive = *dice.pick(&["replace", "delete", "merge", "other"]);
            if let Some(inner) = body.pointer_mut(&place) {
                inner["$patch"] = json!(directive);
            }
        }
    }
    vec![post(kind, object), patch(dice, kind, STRATEGIC, body), get(kind)]
}

fn json_patch(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let next = changed(dice, kind, &object);
    let places = places(&next);
    let place = dice.pick(&places).clone();
    let value = next.pointer(&place).cloned().unwrap_or_default();
    let operation = match dice.below(8) {
        0 | 1 => json!({"op": "replace", "path": place, "value": value}),
        2 | 3 => json!({"op": "add", "path": place, "value": value}),
        4 => json!({"op": "remove", "path": place}),
        5 => json!({"op": "test", "path": place, "value": value}),
        6 => json!({"op": "move", "from": place, "path": "/metadata/annotations"}),
        _ => dice
            .pick(&[
                json!({"op": "other", "path": "/spec"}),
                json!({"op": "remove", "path": "/none/there"}),
                json!({"op": "add", "path": "spec", "value": 1}),
                json!({"op": "replace", "path": "/none", "value": 1}),
                json!({"op": "test", "path": "/kind", "value": "Other"}),
            ])
            .clone(),
    };
    let body = if dice.percent(5) {
        operation
    } else {
        json!([operation])
    };
    vec![post(kind, object), patch(dice, kind, JSON_PATCH, body), get(kind)]
}

fn status_part(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let mut next = object.clone();
    next["status"] = kind
        .definition
        .map_or_else(|| json!({"ready": true}), |definition| status(dice, definition));
    if dice.percent(20) {
        spoil(dice, &mut next);
    }
    let path = format!("{}/status", kind.path());
    let step = if dice.percent(50) {
        Step::new("PUT", path).with(next)
    } else {
        Step::new("PATCH", path)
            .of_type(MERGE)
            .with(json!({"status": next["status"]}))
    };
    vec![post(kind, object), options(dice, step), get(kind)]
}

fn delete(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let mut object = valid(dice, kind);
    if dice.percent(30) {
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    let body = dice
        .pick(&[
            json!({}),
            json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
            json!({"preconditions": {"uid": "{{cap:uid}}"}}),
            json!({"preconditions": {"uid": "other"}}),
            json!({"preconditions": {"resourceVersion": "{{cap:rv}}"}}),
            json!({"preconditions": {"resourceVersion": "1"}}),
            json!({"propagationPolicy": "Orphan"}),
            json!({"propagationPolicy": "Foreground"}),
            json!({"propagationPolicy": "Background"}),
            json!({"propagationPolicy": "Other"}),
            json!({"orphanDependents": true}),
            json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            json!({"gracePeriodSeconds": 0}),
            json!({"gracePeriodSeconds": 5}),
            json!({"gracePeriodSeconds": -1}),
            json!({"dryRun": ["All"]}),
            json!({"dryRun": ["Some"]}),
            json!({"unknown": 1}),
            json!({"apiVersion": "v1", "kind": "Other"}),
            json!({"apiVersion": "apps/", "kind": "DeleteOptions"}),
            json!({"apiVersion": "a/b/c", "dryRun": "All"}),
            json!({"gracePeriodSeconds": "1"}),
            json!([]),
        ])
        .clone();
    let removal = Step::new("DELETE", kind.path()).with(body);
    let mut steps = vec![post(kind, object), removal.clone(), get(kind)];
    if dice.percent(40) {
        steps.push(removal);
        steps.push(
            Step::new("PATCH", kind.path())
                .of_type(MERGE)
                .with(json!({"metadata": {"finalizers": null}})),
        );
        steps.push(get(kind));
    }
    steps
}

fn delete_collection(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let mut other = kind.object();
    other["metadata"]["name"] = json!(format!("y{}", kind.object_name()));
    other["metadata"]["labels"]["tier"] = json!("b");
    if dice.percent(30) {
        other["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    let all = "case={{run}}";
    let selector = *dice.pick(&[all, "case={{run}},tier=b", "case={{run}},tier!=b"]);
    let mut removal = Step::new("DELETE", kind.collection()).ask("labelSelector", selector);
    if dice.percent(20) {
        removal = removal.ask("dryRun", "All");
    }
    let list = Step::new("GET", kind.collection()).ask("labelSelector", all);
    vec![post(kind, valid(dice, kind)), post(kind, other), removal, list]
}

/// What a manager applies: a part of an object, mostly with what it requires.
fn configuration(dice: &mut Dice, kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    match dice.below(10) {
        0..3 => grow(dice, kind, &mut object),
        3..6 => vary(dice, &mut object),
        _ => {}
    }
    for _ in 0..dice.below(3) {
        let mut places = places(&object);
        places.retain(|place| {
            !matches!(
                place.as_str(),
                "/apiVersion" | "/kind" | "/metadata" | "/metadata/name"
            )
        });
        if places.is_empty() {
            break;
        }
        let place = dice.pick(&places).clone();
        match dice.below(8) {
            0 => {
                if let Some(value) = object.pointer_mut(&place) {
                    *value = Value::Null;
                }
            }
            1 => match object.pointer_mut(&place) {
                Some(Value::Array(list)) => list.clear(),
                Some(Value::Object(map)) => map.clear(),
                _ => {}
            },
            2 => match object.pointer_mut(&place) {
                Some(Value::Array(list)) if !list.is_empty() => list.push(list[0].clone()),
                Some(Value::Object(map)) => drop(map.insert("unknownField".to_owned(), json!("x"))),
                _ => {}
            },
            _ => drop(remove(&mut object, &place)),
        }
    }
    object
}

fn apply_step(dice: &mut Dice, kind: &Kind, body: Value) -> Step {
    let manager = *dice.pick(&["a", "a", "b", "b", "c", "golden"]);
    let mut step = Step::new("PATCH", kind.path())
        .of_type(APPLY)
        .with(body)
        .ask("fieldManager", manager);
    if dice.percent(40) {
        step = step.ask("force", "true");
    }
    if dice.percent(8) {
        step = step.ask("fieldValidation", *dice.pick(&["Strict", "Ignore"]));
    }
    if dice.percent(5) {
        step = step.ask("dryRun", "All");
    }
    step
}

fn apply(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let object = valid(dice, kind);
    let mut steps = Vec::new();
    let count = 2 + dice.below(5);
    for number in 0..count {
        let step = match dice.below(12) {
            0 if number == 0 => post(kind, object.clone()),
            1 => {
                let next = changed(dice, kind, &object);
                Step::new("PUT", kind.path())
                    .with(next)
                    .ask("fieldManager", "writer")
            }
            2 => {
                let next = changed(dice, kind, &object);
                let body = fragment(dice, &next);
                Step::new("PATCH", kind.path())
                    .of_type(MERGE)
                    .with(body)
                    .ask("fieldManager", "merger")
            }
            3 if kind.has_status => {
                let mut next = json!({"apiVersion": kind.api_version, "kind": kind.name,
                    "metadata": {"name": kind.object_name()}});
                next["status"] = kind
                    .definition
                    .map_or_else(|| json!({"ready": true}), |definition| status(dice, definition));
                let mut step = apply_step(dice, kind, next);
                step.path.push_str("/status");
                step
            }
            _ => {
                let body = configuration(dice, kind, &object);
                apply_step(dice, kind, body)
            }
        };
        steps.push(step);
    }
    steps.push(get(kind));
    steps
}

fn watch(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let (mut other, object) = (kind.object(), valid(dice, kind));
    other["metadata"]["name"] = json!(format!("y{}", kind.object_name()));
    other["metadata"]["labels"]["tier"] = json!("b");
    let mut steps = vec![post(kind, object.clone()), post(kind, other)];
    for _ in 0..=dice.below(3) {
        let step = match dice.below(4) {
            0 => Step::new("DELETE", kind.path()),
            1 => patch(dice, kind, MERGE, json!({"metadata": {"labels": {"tier": "b"}}})),
            _ => {
                let next = changed(dice, kind, &object);
                let body = fragment(dice, &next);
                patch(dice, kind, MERGE, body)
            }
        };
        steps.push(step);
    }
    let selector = *dice.pick(&["case={{run}}", "case={{run}},tier=b", "case={{run}},tier!=b"]);
    let mut watch = Step::new("GET", kind.collection())
        .ask("watch", "true")
        .ask("timeoutSeconds", "1")
        .ask("labelSelector", selector);
    if dice.percent(30) {
        watch = watch
            .ask("sendInitialEvents", "true")
            .ask("resourceVersionMatch", "NotOlderThan")
            .ask("allowWatchBookmarks", "true");
    } else {
        watch = watch.ask("resourceVersion", "{{cap:old}}");
    }
    steps.push(watch);
    steps
}

fn sequence(dice: &mut Dice, kind: &Kind) -> Vec<Step> {
    let mut object = valid(dice, kind);
    if dice.percent(40) {
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    let mut steps = vec![post(kind, object.clone())];
    for _ in 0..3 + dice.below(4) {
        let next = changed(dice, kind, &object);
        let step = match dice.below(8) {
            0 => post(kind, next),
            1 | 2 => {
                let mut next = next;
                if next["metadata"].is_object() {
                    next["metadata"]["resourceVersion"] = json!(*dice.pick(&["{{cap:rv}}", "{{cap:old}}"]));
                }
                Step::new("PUT", kind.path()).with(next)
            }
            3 => Step::new("DELETE", kind.path()),
            4 => {
                let body = fragment(dice, &next);
                patch(dice, kind, MERGE, body)
            }
            5 => Step::new("PATCH", kind.path())
                .of_type(MERGE)
                .with(json!({"metadata": {"finalizers": []}})),
            _ => {
                let body = configuration(dice, kind, &object);
                apply_step(dice, kind, body)
            }
        };
        steps.push(step);
    }
    steps.push(get(kind));
    steps
}
