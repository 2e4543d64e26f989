use super::*;
use rstest::rstest;

fn gvk(group: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

fn smp(kind: &str, object: Value, patch: Value) -> Value {
    strategic_merge_patch(&gvk("", kind), &object, patch.to_string().as_bytes()).unwrap()
}

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

#[test]
fn json_patch_operations() {
    let object = json!({"a": {"b": "1"}, "l": [1, 2]});
    for (patch, expected) in [
        (
            json!([{"op": "add", "path": "/a/c", "value": 2}]),
            json!({"a": {"b": "1", "c": 2}, "l": [1, 2]}),
        ),
        (
            json!([{"op": "add", "path": "/l/-", "value": 3}]),
            json!({"a": {"b": "1"}, "l": [1, 2, 3]}),
        ),
        (
            json!([{"op": "add", "path": "/l/0", "value": 0}]),
            json!({"a": {"b": "1"}, "l": [0, 1, 2]}),
        ),
        (
            json!([{"op": "replace", "path": "/a/absent", "value": 1}]),
            json!({"a": {"b": "1", "absent": 1}, "l": [1, 2]}),
        ),
        (
            json!([{"op": "move", "from": "/a/b", "path": "/m"}]),
            json!({"a": {}, "l": [1, 2], "m": "1"}),
        ),
        (
            json!([{"op": "copy", "from": "/a/b", "path": "/a~1x"}]),
            json!({"a": {"b": "1"}, "l": [1, 2], "a/x": "1"}),
        ),
        (
            json!([{"op": "test", "path": "/none", "value": null}, {"op": "remove", "path": "/l/0"}]),
            json!({"a": {"b": "1"}, "l": [2]}),
        ),
    ] {
        assert_eq!(
            json_patch(&object, patch.to_string().as_bytes()).unwrap(),
            expected,
            "{patch}"
        );
    }
}

/// A list that is copied into itself doubles, and an object that is copied into itself grows in depth.
#[rstest]
#[case::size("/m/l/-", "/m/l/0", 17, true)]
#[case::too_large("/m/l/-", "/m/l", 40, false)]
#[case::deep("/m/d", "/m", 490, true)]
#[case::too_deep("/m/d", "/m", 500, false)]
fn copies_of_a_json_patch_are_bounded(
    #[case] path: &str,
    #[case] from: &str,
    #[case] times: usize,
    #[case] passes: bool,
) {
    let object = json!({"m": {"l": [1]}});
    let copy = json!({"op": "copy", "from": from, "path": path});
    let patch = Value::Array(vec![copy; times]);
    let patched = json_patch(&object, patch.to_string().as_bytes());
    assert_eq!(patched.err().map(|error| error.code), (!passes).then_some(422));
}

#[test]
fn json_patches_that_fail() {
    let object = json!({"a": {"b": "1"}, "l": [1]});
    for patch in [
        r#"[{"op":"test","path":"/a/b","value":"2"}]"#,
        r#"[{"op":"remove","path":"/none"}]"#,
        r#"[{"op":"nope","path":"/a"}]"#,
        r#"[{"op":"add","path":"/x/y","value":1}]"#,
        r#"[{"op":"add","path":"/l/5","value":1}]"#,
        r#"[{"op":"add","path":"a","value":1}]"#,
        r#"[{"op":"add","path":"","value":{}}]"#,
        r#"[{"op":"copy","from":"","path":"/a/b"}]"#,
        r#"[{"op":"replace","path":"","value":1}]"#,
    ] {
        let error = json_patch(&object, patch.as_bytes()).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"), "{patch}");
        assert_eq!(error.details, json!({}));
    }
    for (patch, text) in [
        (
            "{}",
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            "[1]",
            "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            "{bad",
            "invalid character 'b' looking for beginning of object key string",
        ),
    ] {
        let error = json_patch(&object, patch.as_bytes()).unwrap_err();
        assert_eq!(
            (error.code, error.message),
            (400, format!("error decoding patch: {text}"))
        );
    }
}

#[test]
fn merge_patch_removes_nulls_at_every_depth() {
    let merged = merge_patch(
        &json!({"a": 1, "b": {"c": 1, "d": 2}}),
        br#"{"a":null,"b":{"c":null},"e":{"f":null,"g":1}}"#,
    );
    assert_eq!(merged.unwrap(), json!({"b": {"d": 2}, "e": {"g": 1}}));
    let error = merge_patch(&json!({}), b"[1]").unwrap_err();
    assert_eq!(
        error.message,
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}

#[test]
fn lists_of_maps_merge_by_key_and_keep_an_order() {
    let merged = smp(
        "Pod",
        pod(json!({"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b"}]})),
        pod(json!({"containers": [{"name": "a", "image": "2", "args": ["z"]}, {"name": "c"}]})),
    );
    assert_eq!(
        merged,
        pod(
            json!({"containers": [{"name": "a", "image": "2", "args": ["z"]}, {"name": "c"}, {"name": "b"}]})
        )
    );
}

#[test]
fn items_of_the_patch_are_interleaved_with_the_others() {
    let names =
        |list: &[&str]| pod(json!({"volumes": list.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}));
    for (old, patch, expected) in [
        (vec!["x", "y"], vec!["y", "z"], vec!["x", "y", "z"]),
        (vec!["a", "b", "c"], vec!["c", "a"], vec!["b", "c", "a"]),
        (vec!["a"], vec!["b"], vec!["b", "a"]),
    ] {
        assert_eq!(
            smp("Pod", names(&old), names(&patch)),
            names(&expected),
            "{old:?} {patch:?}"
        );
    }
}

#[test]
fn directives_delete_replace_and_order() {
    let spec =
        json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {"x": "1"}});
    for (patch, expected) in [
        (
            json!({"containers": [{"name": "b", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a"}, {"name": "c"}], "nodeSelector": {"x": "1"}}),
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            json!({"containers": [{"name": "z"}], "nodeSelector": {"x": "1"}}),
        ),
        (
            json!({"nodeSelector": {"$patch": "replace", "y": "2"}, "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}], "nodeSelector": {"y": "2"}}),
        ),
        (
            json!({"nodeSelector": {"$patch": "delete"}}),
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {}}),
        ),
        (
            json!({"nodeSelector": {"x": null}}),
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {}}),
        ),
        (
            json!({"securityContext": {"$patch": "replace", "fsGroup": 1}, "affinity": {"nodeAffinity": null}}),
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {"x": "1"}, "affinity": {}}),
        ),
    ] {
        assert_eq!(
            smp("Pod", pod(spec.clone()), pod(patch.clone())),
            pod(expected),
            "{patch}"
        );
    }
}

#[test]
fn retain_keys_drops_the_other_members() {
    let deployment =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}).to_string();
    let merged = strategic_merge_patch(&gvk("apps", "Deployment"), &deployment, patch.as_bytes()).unwrap();
    assert_eq!(merged, json!({"spec": {"strategy": {"type": "Recreate"}}}));
    let bad = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}).to_string();
    assert_eq!(
        strategic_merge_patch(&gvk("apps", "Deployment"), &deployment, bad.as_bytes())
            .unwrap_err()
            .code,
        422
    );
}

#[test]
fn primitive_lists_merge_as_sets() {
    let object = json!({"metadata": {"finalizers": ["a/a", "a/b"]}});
    let added = smp(
        "Pod",
        object.clone(),
        json!({"metadata": {"finalizers": ["a/c", "a/a"]}}),
    );
    assert_eq!(added, json!({"metadata": {"finalizers": ["a/c", "a/a", "a/b"]}}));
    let removed = smp(
        "Pod",
        object,
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}),
    );
    assert_eq!(removed, json!({"metadata": {"finalizers": ["a/b"]}}));
}

#[test]
fn atomic_lists_are_replaced_and_owners_merge_by_uid() {
    let merged = smp(
        "Pod",
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}, "spec": {"tolerations": [{"key": "a"}]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "1", "controller": true}, {"uid": "2"}]}, "spec": {"tolerations": [{"key": "b"}]}}),
    );
    assert_eq!(
        merged,
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": true}, {"uid": "2"}]},
            "spec": {"tolerations": [{"key": "b"}]}})
    );
}

#[test]
fn items_that_were_there_without_a_key_are_put_into_no_order() {
    let original = json!({"secrets": [{}]});
    let gvk = Gvk::of("v1", "ServiceAccount");
    let error = strategic_merge_patch(&gvk, &original, br#"{"secrets":[{"name":"b"}]}"#).unwrap_err();
    let wanted = "map: map[] does not contain declared merge key: name";
    assert_eq!((error.code, error.message.as_str()), (500, wanted));
}

#[test]
fn strategic_patches_that_fail() {
    let object = pod(json!({"containers": [{"name": "a"}]}));
    for (patch, code, text) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"$patch": "nope"}}),
            500,
            "unknown patch type: nope in map: map[$patch:nope]",
        ),
        (
            json!({"spec": {"containers": ["x"]}}),
            500,
            "list element types are not identical: [[map[name:a]] [x]]",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
    ] {
        let error =
            strategic_merge_patch(&gvk("", "Pod"), &object, patch.to_string().as_bytes()).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, text), "{patch}");
    }
}

#[test]
fn a_patch_whose_result_does_not_decode() {
    let error = undecodable_strategic(br#"{"nope":1}"#, "strict decoding error: unknown field \"nope\"");
    assert_eq!(error.code, 422);
    assert_eq!(
        error.message,
        r#" "" is invalid: patch: Invalid value: "map[nope:1]": strict decoding error: unknown field "nope""#
    );
    assert_eq!(error.details["causes"][0]["field"], "patch");
    assert_eq!(error.details.as_object().unwrap().len(), 1);
}
