//! Objects out of schemas: fields that a seed lacks, and faults that it has not.

use evenkeel_kube_rules::schema::{Definition, Field, Shape, Type};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};

/// The random choices of one case.
pub(super) struct Dice(StdRng);

impl Dice {
    /// A case alone draws what it draws among others.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        Self(StdRng::seed_from_u64(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case,
        ))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            self.0.random_range(0..bound)
        }
    }

    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        list.choose(&mut self.0).expect("a list to pick from has items")
    }
}

/// Fields that would reach other cases, or that the server sets.
const LEFT_OUT: [&str; 10] = [
    "apiVersion",
    "kind",
    "metadata",
    "status",
    "globalDefault",
    "nodeName",
    "deletionTimestamp",
    "managedFields",
    "healthCheckNodePort",
    // Of Leases: a gate that only the embedded server has open.
    "preferredHolder",
];

/// What such a field mostly holds.
fn words(name: &str) -> &'static [&'static str] {
    match name {
        "protocol" => &["TCP", "UDP", "SCTP"],
        "imagePullPolicy" => &["Always", "IfNotPresent", "Never"],
        "restartPolicy" => &["Always", "OnFailure", "Never"],
        "operator" => &["In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt"],
        "effect" => &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        "dnsPolicy" => &["ClusterFirst", "Default", "None", "ClusterFirstWithHostNet"],
        "type" => &[
            "ClusterIP",
            "NodePort",
            "ExternalName",
            "RollingUpdate",
            "Recreate",
            "Utilization",
            "File",
        ],
        "topologyKey" => &["kubernetes.io/hostname", "zone"],
        "pathType" => &["Prefix", "Exact", "ImplementationSpecific"],
        "accessModes" => &[
            "ReadWriteOnce",
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOncePod",
        ],
        "volumeMode" => &["Filesystem", "Block"],
        "verbs" => &["get", "list", "*", "create"],
        "apiGroups" => &["none.example.com", "apps"],
        "sessionAffinity" => &["None", "ClientIP"],
        "ipFamilies" | "ipFamily" => &["IPv4", "IPv6"],
        "ipFamilyPolicy" => &["SingleStack", "PreferDualStack", "RequireDualStack"],
        "policyTypes" => &["Ingress", "Egress"],
        "whenUnsatisfiable" => &["DoNotSchedule", "ScheduleAnyway"],
        "scheme" => &["HTTP", "HTTPS"],
        "concurrencyPolicy" => &["Allow", "Forbid", "Replace"],
        "schedule" => &["*/5 * * * *", "@hourly"],
        "path" | "mountPath" | "devicePath" => &["/a", "/b/c", "a"],
        "ip" | "podIP" | "addresses" | "clusterIP" | "loadBalancerIP" | "externalIPs" => {
            &["192.0.2.1", "2001:db8::1"]
        }
        "cidr" | "podCIDR" => &["192.0.2.0/24", "2001:db8::/32"],
        "image" => &["nginx", "registry.k8s.io/pause:3.10"],
        "internalTrafficPolicy" | "externalTrafficPolicy" => &["Cluster", "Local"],
        "completionMode" => &["Indexed", "NonIndexed"],
        "podManagementPolicy" => &["OrderedReady", "Parallel"],
        "mountPropagation" => &["None", "HostToContainer", "Bidirectional"],
        "preemptionPolicy" => &["Never", "PreemptLowerPriority"],
        "terminationMessagePolicy" => &["File", "FallbackToLogsOnError"],
        _ => &["a", "b", "web", "example.com/a", "A_b", "x.y"],
    }
}

/// A value that suits a type, and mostly a field of that name.
fn value(dice: &mut Dice, ty: &Type, name: &str, depth: usize) -> Value {
    match ty {
        Type::String => json!(*dice.pick(words(name))),
        Type::Bytes => json!("YQ=="),
        Type::Int32 | Type::Int64 => json!(*dice.pick(&[0, 1, 2, 3, 5, 30, 80, 1000])),
        Type::Number => json!(1.5),
        Type::Boolean => json!(dice.percent(50)),
        Type::Any => json!({"a": 1}),
        Type::List(item) => {
            let count = *dice.pick(&[1, 1, 2]);
            (0..count).map(|_| value(dice, item, name, depth)).collect()
        }
        Type::Map(item) => json!({"a": value(dice, item, name, depth)}),
        Type::Ref(_) => match ty.definition() {
            Some(definition) => described(dice, definition, depth),
            None => json!({}),
        },
    }
}

fn described(dice: &mut Dice, definition: &'static Definition, depth: usize) -> Value {
    match definition.shape {
        Shape::Quantity => json!(*dice.pick(&["1", "100m", "1Gi", "2000m", "0.5", "1e3"])),
        Shape::IntOrString => match dice.below(3) {
            0 => json!(80),
            1 => json!("25%"),
            _ => json!("http"),
        },
        Shape::Time => json!("2001-02-03T04:05:06Z"),
        Shape::MicroTime => json!("2001-02-03T04:05:06.000007Z"),
        Shape::Any => json!({"a": 1}),
        Shape::Object => {
            let mut object = Map::new();
            for field in &definition.fields {
                let wanted = field.required || (depth < 3 && dice.percent(20 / (depth + 1)));
                if wanted && depth < 8 && usable(field) {
                    object.insert(
                        field.name.to_owned(),
                        value(dice, &field.ty, field.name, depth + 1),
                    );
                }
            }
            if object.is_empty()
                && depth < 5
                && let Some(field) = definition.fields.get(dice.below(definition.fields.len()))
                && usable(field)
            {
                object.insert(
                    field.name.to_owned(),
                    value(dice, &field.ty, field.name, depth + 1),
                );
            }
            Value::Object(object)
        }
    }
}

/// Whether a field is drawn. The strategy of Leases is behind the gate of their preferred holder.
fn usable(field: &Field) -> bool {
    let of_leases = field.name == "strategy" && field.ty == Type::String;
    !of_leases && !LEFT_OUT.contains(&field.name)
}

/// The part of an object of which a status subresource decides.
pub(super) fn status(dice: &mut Dice, definition: &'static Definition) -> Value {
    match definition.field("status").and_then(|field| field.ty.definition()) {
        Some(status) => described(dice, status, 1),
        None => json!({}),
    }
}

/// Adds a field that is not there yet, somewhere in the object.
pub(super) fn add_field(dice: &mut Dice, definition: &'static Definition, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    if dice.percent(80) {
        let mut inner: Vec<(&'static Definition, &mut Value)> = Vec::new();
        for (key, value) in map.iter_mut() {
            let Some(field) = definition.field(key).filter(|field| usable(field)) else {
                continue;
            };
            let (ty, value) = match (&field.ty, value) {
                (Type::List(item), Value::Array(list)) => (&**item, list.first_mut()),
                (ty, value) => (ty, Some(value)),
            };
            let inside = ty.definition().filter(|inside| inside.shape == Shape::Object);
            if let (Some(inside), Some(value)) = (inside, value) {
                inner.push((inside, value));
            }
        }
        if !inner.is_empty() {
            let chosen = dice.below(inner.len());
            let (inside, value) = inner.swap_remove(chosen);
            return add_field(dice, inside, value);
        }
    }
    let absent: Vec<&Field> = definition
        .fields
        .iter()
        .filter(|field| usable(field) && !map.contains_key(field.name))
        .collect();
    if !absent.is_empty() {
        let field = dice.pick(&absent);
        map.insert(field.name.to_owned(), value(dice, &field.ty, field.name, 1));
    }
}

/// The places of a value, outermost first, as JSON pointers; the value itself is not among them.
pub(super) fn places(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut level = vec![(String::new(), value)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (path, value) in level {
            match value {
                Value::Object(map) => next.extend(map.iter().map(|(key, value)| {
                    (
                        format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                        value,
                    )
                })),
                Value::Array(list) => {
                    next.extend(
                        list.iter()
                            .enumerate()
                            .map(|(at, value)| (format!("{path}/{at}"), value)),
                    );
                }
                _ => {}
            }
        }
        found.extend(next.iter().map(|(path, _)| path.clone()));
        level = next;
    }
    found
}

/// Takes a place out of a value.
pub(super) fn remove(value: &mut Value, place: &str) -> Option<Value> {
    let (parent, key) = place.rsplit_once('/')?;
    match value.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&key.replace("~1", "/").replace("~0", "~")),
        Value::Array(list) => {
            let at = key.parse::<usize>().ok().filter(|at| *at < list.len())?;
            Some(list.remove(at))
        }
        _ => None,
    }
}

/// Places of an object that may be changed: not what names it.
fn changeable(object: &Value) -> Vec<String> {
    let fixed = [
        "/apiVersion",
        "/kind",
        "/metadata",
        "/metadata/name",
        "/metadata/labels/case",
    ];
    let mut places = places(object);
    places
        .retain(|place| !fixed.contains(&place.as_str()) && !place.starts_with("/metadata/resourceVersion"));
    places
}

/// A change that mostly leaves the object valid: another scalar, an item more or less, a field gone.
pub(super) fn vary(dice: &mut Dice, object: &mut Value) {
    let places = changeable(object);
    if places.is_empty() {
        return;
    }
    let place = dice.pick(&places).clone();
    if dice.percent(20) {
        remove(object, &place);
        return;
    }
    match object.pointer_mut(&place) {
        Some(Value::String(text)) if text.len() < 20 => text.push('x'),
        Some(Value::Number(number)) => {
            let next = number.as_i64().unwrap_or_default() + 1;
            *number = next.into();
        }
        Some(Value::Bool(flag)) => *flag = !*flag,
        Some(Value::Array(list)) if !list.is_empty() => match dice.below(3) {
            0 => drop(list.pop()),
            1 => list.reverse(),
            _ => {
                let mut item = list[0].clone();
                match &mut item {
                    Value::String(text) => text.push('2'),
                    Value::Object(map) => {
                        if let Some(Value::String(name)) = map.get_mut("name") {
                            name.push('2');
                        }
                    }
                    _ => {}
                }
                list.push(item);
            }
        },
        _ => {}
    }
}

/// One fault, of the kinds that clients make.
pub(super) fn spoil(dice: &mut Dice, object: &mut Value) {
    let mut places = changeable(object);
    places.extend(["/metadata/name", "/metadata/labels/case", "/spec"].map(str::to_owned));
    let place = dice.pick(&places).clone();
    if dice.percent(15) {
        remove(object, &place);
        return;
    }
    if dice.percent(12) {
        return spoil_metadata(dice, object);
    }
    if dice.percent(5) {
        return spoil_type(dice, object);
    }
    let Some(value) = object.pointer_mut(&place) else {
        return;
    };
    match dice.below(10) {
        0 => *value = Value::Null,
        1 => *value = json!(dice.pick(&["", "Bad_Name!", "-a", "a..b", "1x", "é", "a/b/c", "UPPER"])),
        2 => *value = json!(dice.pick(&[-1_i64, 0, 65_536, 2_147_483_648, 1_000_000])),
        3 => *value = json!("x".repeat(*dice.pick(&[16, 64, 254, 300]))),
        4 => {
            let other = [
                json!([]),
                json!({}),
                json!(true),
                json!("x"),
                json!(1.5),
                json!([{}]),
                json!([null]),
            ];
            value.clone_from(dice.pick(&other));
        }
        5 | 6 => match value {
            Value::Object(map) => drop(map.insert("unknownField".to_owned(), json!(1))),
            Value::Array(list) if !list.is_empty() => list.push(list[0].clone()),
            Value::String(text) => text.push('!'),
            Value::Number(_) => *value = json!("1"),
            _ => *value = json!(1),
        },
        7 => match value {
            Value::Array(list) => list.clear(),
            Value::Object(map) => map.clear(),
            Value::String(text) => text.clear(),
            other => *other = json!(-5),
        },
        _ => match value {
            Value::String(text) => *text = dice.pick(&["Other", "none", "1", "a b", "0", "*"]).to_string(),
            Value::Number(_) => *value = json!(dice.pick(&[-1, 0, 7, 100_000])),
            Value::Bool(flag) => *flag = !*flag,
            Value::Array(list) => list.push(json!(null)),
            Value::Object(map) => drop(map.insert("Bad Key!".to_owned(), json!("x"))),
            Value::Null => {}
        },
    }
}

/// Names another kind or version, or none.
fn spoil_type(dice: &mut Dice, object: &mut Value) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let faults = [
        ("kind", Value::Null),
        ("kind", json!("")),
        ("kind", json!("Other")),
        ("kind", json!("ConfigMap")),
        ("kind", json!(1)),
        ("apiVersion", Value::Null),
        ("apiVersion", json!("")),
        ("apiVersion", json!("/")),
        ("apiVersion", json!("v1")),
        ("apiVersion", json!("a/b/c")),
        ("apiVersion", json!("apps/")),
        ("apiVersion", json!("events.k8s.io/v1")),
        ("apiVersion", json!(format!("{group}/"))),
        ("apiVersion", json!(format!("{group}/v1"))),
        ("apiVersion", json!(format!("{group}/v2"))),
    ];
    let (name, value) = dice.pick(&faults).clone();
    object[name] = value;
}

fn spoil_metadata(dice: &mut Dice, object: &mut Value) {
    let faults = [
        ("labels", json!({"bad key": "v"})),
        ("labels", json!({"a": "bad value!"})),
        ("labels", json!({"a": 1})),
        ("annotations", json!({"UPPER/x": "v", "a": "b"})),
        ("annotations", json!({"a": null})),
        ("finalizers", json!(["none"])),
        ("finalizers", json!(["example.com/a", "example.com/a"])),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        ),
        (
            "ownerReferences",
            json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "w", "controller": true}]),
        ),
        (
            "ownerReferences",
            json!([{"apiVersion": "a/b/c", "kind": "", "name": "", "uid": ""}]),
        ),
        ("namespace", json!("other")),
        ("name", json!("other")),
        ("name", json!("Bad_Name")),
        ("generateName", json!("Bad_")),
        ("uid", json!("5")),
        ("resourceVersion", json!("5")),
        ("generation", json!(7)),
        ("creationTimestamp", json!("yesterday")),
        ("deletionGracePeriodSeconds", json!(-1)),
        ("managedFields", json!([{"manager": "x", "operation": "Update"}])),
        (
            "managedFields",
            json!([{"manager": "x", "operation": "No", "apiVersion": "v1", "fieldsType": "FieldsV1"}]),
        ),
        ("selfLink", json!("/x")),
    ];
    let (name, value) = dice.pick(&faults).clone();
    object["metadata"][name] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_case_make_the_same_object() {
        let definition = evenkeel_kube_rules::schema::definition("io.k8s.api.core.v1.Pod").unwrap();
        let make = || {
            let mut dice = Dice::new(7, 11);
            let mut object = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
            (0..5).for_each(|_| add_field(&mut dice, definition, &mut object));
            spoil(&mut dice, &mut object);
            object
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn every_place_can_be_taken_out() {
        let object = json!({"a": [{"b/c": 1}], "d": {}});
        let places = places(&object);
        assert_eq!(places, ["/a", "/d", "/a/0", "/a/0/b~1c"]);
        for place in places {
            assert!(remove(&mut object.clone(), &place).is_some(), "{place}");
        }
    }
}
