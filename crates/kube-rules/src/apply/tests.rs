//! What applies and updates do to objects and to their owners.

use super::set::{FieldSet, Step};
use super::*;
use rstest::rstest;

fn gvk(group: &str, version: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

/// An object that managers write one after the other, as a server has them do it.
pub(super) struct Object {
    gvk: Gvk,
    subresource: &'static str,
    pub(super) value: Option<Value>,
    /// Seconds; each write comes a second after the one before.
    clock: i64,
}

impl Object {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            gvk: gvk(group, version, kind),
            subresource: "",
            value: None,
            clock: 0,
        }
    }

    fn write<T>(&mut self, manager: &str, rules: impl FnOnce(&Write<'_>, Option<&Value>) -> T) -> T {
        self.clock += 1;
        rules(
            &Write {
                manager,
                subresource: self.subresource,
                now: Timestamp::from_second(self.clock).unwrap(),
                kind: Kind::Builtin(self.gvk.clone()),
                convert: &|_, _| None,
            },
            self.value.as_ref(),
        )
    }

    fn canonical(&self, value: Value) -> Value {
        let decoded = strict::check(&self.gvk, value, FieldValidation::Strict).unwrap();
        let mut object = decoded.object;
        crate::defaults::apply(&self.gvk, &mut object);
        object
    }

    fn whole(&self, mut content: Value) -> Value {
        content["apiVersion"] = json!(group_version(&self.gvk.group, &self.gvk.version));
        content["kind"] = json!(self.gvk.kind);
        content["metadata"]["name"] = json!("a");
        content
    }

    pub(super) fn apply_as(&mut self, manager: &str, content: Value, force: bool) -> ApiResult<()> {
        let applied = self.whole(content);
        let merged = self.write(manager, |write, live| apply(write, live, &applied, force))?;
        self.value = Some(self.canonical(merged));
        Ok(())
    }

    pub(super) fn apply(&mut self, manager: &str, content: Value) -> ApiResult<()> {
        self.apply_as(manager, content, false)
    }

    pub(super) fn update(&mut self, manager: &str, content: Value) {
        let mut new = self.canonical(self.whole(content));
        self.write(manager, |write, live| track(write, live, &mut new));
        self.value = Some(new);
    }

    pub(super) fn part(&self, pointer: &str) -> Value {
        let value = self.value.as_ref().unwrap();
        value.pointer(pointer).cloned().unwrap_or_default()
    }

    /// `manager: fields`, `!` behind the name of one who applied.
    pub(super) fn owners(&self) -> Vec<(String, Value)> {
        let entries = self.part("/metadata/managedFields");
        let owner = |entry: &Value| {
            let mark = if entry["operation"] == "Apply" { "!" } else { "" };
            (
                format!("{}{mark}", text(entry, "manager")),
                entry["fieldsV1"].clone(),
            )
        };
        entries.as_array().into_iter().flatten().map(owner).collect()
    }
}

fn config(data: Value) -> Value {
    json!({"data": data})
}

fn owner(name: &str, fields: Value) -> (String, Value) {
    (name.to_owned(), fields)
}

#[test]
fn what_is_applied_no_more_goes_unless_somebody_else_applies_it() {
    let mut object = Object::new("", "v1", "ConfigMap");
    object.apply("one", config(json!({"x": "1", "y": "1"}))).unwrap();
    object.apply("two", config(json!({"x": "1"}))).unwrap();
    object.apply("one", config(json!({"y": "2"}))).unwrap();
    assert_eq!(object.part("/data"), json!({"x": "1", "y": "2"}));
    object.apply("two", json!({})).unwrap();
    assert_eq!(object.part("/data"), json!({"y": "2"}));
    assert_eq!(object.owners(), [owner("one!", json!({"f:data": {"f:y": {}}}))]);
}

#[test]
fn a_conflict_names_each_field_and_its_owner() {
    let mut object = Object::new("", "v1", "ConfigMap");
    object.apply("one", config(json!({"x": "1", "y": "1"}))).unwrap();
    object.update("three", config(json!({"x": "1", "y": "1", "z": "1"})));
    let refused = object
        .apply("two", config(json!({"x": "2", "y": "1", "z": "2"})))
        .unwrap_err();
    assert_eq!(refused.code, 409);
    assert_eq!(
        refused.message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.x\nconflicts with \"three\" using v1:\n- .data.z"
    );
    object.apply_as("two", config(json!({"x": "2"})), true).unwrap();
    assert_eq!(object.part("/data"), json!({"x": "2", "y": "1", "z": "1"}));
    let of_one = object
        .owners()
        .into_iter()
        .find(|(name, _)| name == "one!")
        .unwrap();
    assert_eq!(of_one.1, json!({"f:data": {"f:y": {}}}));
}

#[test]
fn an_apply_that_changes_nothing_leaves_the_time() {
    let mut object = Object::new("", "v1", "ConfigMap");
    object.apply("one", config(json!({"x": "1"}))).unwrap();
    let before = object.value.clone();
    object.apply("one", config(json!({"x": "1"}))).unwrap();
    assert_eq!(object.value, before);
}

#[test]
fn an_update_owns_what_it_changes_and_takes_it_from_others() {
    let mut object = Object::new("", "v1", "ConfigMap");
    object.update("creator", config(json!({"x": "1", "y": "1"})));
    object.apply("one", config(json!({"x": "1"}))).unwrap();
    object.update("other", config(json!({"x": "2"})));
    assert_eq!(
        object.owners(),
        [
            owner("creator", json!({"f:data": {}})),
            owner("other", json!({"f:data": {"f:x": {}}})),
        ]
    );
}

#[test]
fn owners_are_forgotten_when_a_client_empties_them_and_come_back_with_an_apply() {
    let mut object = Object::new("", "v1", "ConfigMap");
    object.update("creator", config(json!({"x": "1"})));
    object.update(
        "creator",
        json!({"data": {"x": "1"}, "metadata": {"managedFields": [{}]}}),
    );
    assert_eq!(object.owners(), []);
    object.update("creator", config(json!({"x": "2"})));
    assert_eq!(object.owners(), []);
    object.apply("one", config(json!({"y": "1"}))).unwrap();
    assert_eq!(
        object.owners(),
        [
            owner("one!", json!({"f:data": {"f:y": {}}})),
            owner("before-first-apply", json!({"f:data": {".": {}, "f:x": {}}})),
        ]
    );
}

#[test]
fn items_of_lists_merge_by_their_keys_and_keep_their_places() {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let pod = |names: &[&str]| json!({"spec": {"containers": names.iter().map(|name| container(name)).collect::<Vec<_>>()}});
    let mut object = Object::new("", "v1", "Pod");
    object.apply("one", pod(&["a", "b", "c"])).unwrap();
    object.apply("two", pod(&["c", "d", "a"])).unwrap();
    let names = |object: &Object| {
        let containers = object.part("/spec/containers");
        let names = containers
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(one, "name").to_owned());
        names.collect::<Vec<_>>().concat()
    };
    assert_eq!(names(&object), "bcda");
    object.apply("one", pod(&["b"])).unwrap();
    assert_eq!(names(&object), "bcda");
    object.apply("two", pod(&["d"])).unwrap();
    assert_eq!(names(&object), "bd");
}

#[test]
fn a_port_without_a_protocol_is_one_of_tcp() {
    let port = |ports: Value| json!({"spec": {"selector": {"a": "b"}, "ports": ports}});
    let mut object = Object::new("", "v1", "Service");
    object.apply("one", port(json!([{"port": 80}]))).unwrap();
    let key = "k:{\"port\":80,\"protocol\":\"TCP\"}";
    assert_eq!(
        object.owners(),
        [owner(
            "one!",
            json!({"f:spec": {"f:ports": {key: {".": {}, "f:port": {}}}, "f:selector": {}}})
        )]
    );
    let refused = object
        .apply("two", json!({"spec": {"selector": {"c": "d"}}}))
        .unwrap_err();
    assert!(
        refused.message.ends_with("conflict with \"one\": .spec.selector"),
        "{}",
        refused.message
    );
}

#[test]
fn a_write_to_a_subresource_owns_nothing_beside_it() {
    let mut object = Object::new("apps", "v1", "StatefulSet");
    let content = |replicas: i64, ready: i64| {
        json!({
            "spec": {"replicas": replicas, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": {}},
            "status": {"replicas": ready},
        })
    };
    object.update("one", content(1, 1));
    let fields = object.owners().remove(0).1;
    assert!(
        fields["f:status"].is_null() && !fields["f:spec"].is_null(),
        "{fields}"
    );
    object.subresource = "status";
    object.update("two", content(1, 2));
    let entry = object.part("/metadata/managedFields/1");
    assert_eq!(entry["subresource"], "status");
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[test]
fn of_many_updates_the_oldest_are_merged() {
    let mut object = Object::new("", "v1", "ConfigMap");
    let mut data = json!({});
    for number in 0..14 {
        data[format!("k{number}")] = json!("v");
        object.update(&format!("m{number:02}"), config(data.clone()));
    }
    let owners = object.owners();
    assert_eq!(owners.len(), 10);
    let ancient = &owners
        .iter()
        .find(|(name, _)| name == managers::ANCIENT)
        .unwrap()
        .1;
    assert_eq!(
        *ancient,
        json!({"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}, "f:k4": {}}})
    );
}

#[rstest]
#[case::unknown(json!({"bogus": 1}), ".bogus: field not declared in schema")]
#[case::scalar(json!({"data": {"x": 1}}), ".data.x: expected string, got &value.valueUnstructured{Value:1}")]
#[case::map(json!({"data": "x"}), ".data: expected map, got &{x}")]
#[case::list(json!({"metadata": {"finalizers": "x"}}), ".metadata.finalizers: expected list, got &{x}")]
#[case::twice(json!({"metadata": {"finalizers": ["x", "x"]}}),
    ".metadata.finalizers: duplicate entries for key [=\"x\"]")]
#[case::no_key(json!({"metadata": {"ownerReferences": [1]}}),
    ".metadata.ownerReferences: element 0: associative list with keys may not have non-map elements")]
fn a_configuration_that_does_not_fit_its_kind_is_refused(#[case] content: Value, #[case] wrong: &str) {
    let mut object = Object::new("", "v1", "ConfigMap");
    let refused = object.apply("one", content).unwrap_err();
    assert_eq!(
        refused.message,
        format!("failed to create typed patch object (/a; /v1, Kind=ConfigMap): {wrong}")
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_from_its_own_side() {
    let mut object = Object::new("", "v1", "ConfigMap");
    let last =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
    let annotated =
        json!({"metadata": {"annotations": {LAST_APPLIED: last.to_string()}}, "data": {"x": "1"}});
    object.update("kubectl-client-side-apply", annotated);
    object.apply("other", config(json!({"x": "2"}))).unwrap_err();
    object.apply("kubectl", config(json!({"x": "2"}))).unwrap();
    let kept = object.part("/metadata/annotations")[LAST_APPLIED].clone();
    assert!(kept.as_str().unwrap().contains("\"x\":\"2\""), "{kept}");
    object.update(
        "editor",
        json!({"metadata": {"annotations": {LAST_APPLIED: kept}}, "data": {"x": "3"}}),
    );
    object.apply("kubectl", config(json!({"x": "4"}))).unwrap_err();
}

#[test]
fn sets_are_written_as_they_were_read() {
    let fields = json!({
        "f:a": {".": {}, "k:{\"n\":1,\"p\":\"x\"}": {".": {}, "f:b": {}}},
        "f:c": {"v:true": {}, "v:2": {}, "i:3": {}},
        "f:d": {},
    });
    let set = FieldSet::parse(&fields).unwrap();
    assert_eq!(set.to_json(), fields);
    assert!(FieldSet::parse(&json!({"q:new": {}})).unwrap().is_empty());
    for wrong in [
        json!({"f": {}}),
        json!({"k:1": {}}),
        json!({"i:x": {}}),
        json!({"f:a": 1}),
        json!([]),
    ] {
        FieldSet::parse(&wrong).unwrap_err();
    }
}

#[test]
fn taking_a_field_away_leaves_what_is_below_it_where_that_is_asked() {
    let set = FieldSet::of(&[&["a"], &["a", "b"], &["c"]]);
    let taken = FieldSet::of(&[&["a"]]);
    assert_eq!(set.difference(&taken), FieldSet::of(&[&["a", "b"], &["c"]]));
    assert_eq!(set.recursive_difference(&taken), FieldSet::of(&[&["c"]]));
    assert!(!set.has(&Step::Field("b".to_owned())));
}

/// A kind of a definition: a map of named members, an atomic one, a list of items with a default key.
fn widgets() -> CustomKind {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "side"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "side": {"type": "string", "default": "left"}, "size": {"type": "integer"},
            }}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    let crd = json!({"spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    CustomKind::compile(&crd, "v1").unwrap()
}

#[rstest]
#[case::atomic(json!({"whole": {"a": "1"}}), json!({"f:whole": {}}))]
#[case::keys(json!({"parts": [{"name": "n", "size": 1}]}),
    json!({"f:parts": {"k:{\"name\":\"n\",\"side\":\"left\"}": {".": {}, "f:name": {}, "f:size": {}}}}))]
#[case::unknown(json!({"any": {"a": {"b": [1]}}}), json!({"f:any": {"f:a": {".": {}, "f:b": {}}}}))]
fn custom_resources_are_owned_as_their_schema_says(#[case] spec: Value, #[case] owned: Value) {
    let kind = widgets();
    let applied =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let write = Write {
        manager: "one",
        subresource: "",
        now: Timestamp::UNIX_EPOCH,
        kind: Kind::Custom(&kind),
        convert: &|_, _| None,
    };
    let merged = apply(&write, None, &applied, false).unwrap();
    assert_eq!(merged["spec"], spec);
    assert_eq!(
        merged["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": owned})
    );
    let mut wrong = applied.clone();
    wrong["spec"]["no"] = json!(1);
    let refused = apply(&write, None, &wrong, false).unwrap_err();
    assert!(
        refused
            .message
            .ends_with(".spec.no: field not declared in schema"),
        "{}",
        refused.message
    );
}
