use super::*;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use rstest::rstest;
use serde_json::{Value, json};

fn pod(volumes: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "pod-0", "namespace": "foo", "uid": "u-1",
            "labels": {"app": "db"}, "annotations": {"long": "x".repeat(200_000)},
        },
        "spec": {
            "volumes": volumes,
            "containers": [{"name": "main", "resources": {"limits": {"cpu": "1500m"}}}],
        },
    }))
    .unwrap()
}

fn found() -> Found {
    let config: ConfigMap = serde_json::from_value(json!({
        "data": {"text": "one", "other": "two"}, "binaryData": {"binary": "gIGC"},
    }))
    .unwrap();
    let secret: Secret = serde_json::from_value(json!({"data": {"password": "aHVudGVyMg=="}})).unwrap();
    Found {
        config_maps: BTreeMap::from([
            ("config".to_owned(), Some(Arc::new(config))),
            ("gone".to_owned(), None),
        ]),
        secrets: BTreeMap::from([("secret".to_owned(), Some(Arc::new(secret)))]),
        services: Vec::new(),
    }
}

fn location() -> Location {
    Location {
        allocatable: BTreeMap::from([("memory".to_owned(), "1Gi".to_owned())]).into(),
        ..Location::default()
    }
}

/// One volume named `v`.
fn one(mut source: Value) -> Result<Volume, String> {
    source["name"] = json!("v");
    let mut volumes = resolve(&pod(json!([source])), &found(), &location())?;
    Ok(volumes.0.remove("v").expect("it is there"))
}

/// Paths, contents and modes; a token as its audience and life.
fn files(source: Value) -> Vec<(String, String, u32)> {
    let Volume::Files(files) = one(source).unwrap() else {
        panic!("not files");
    };
    let shown = files.into_iter().map(|(path, file)| {
        let contents = match file.contents {
            Contents::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Contents::Token(token) => format!("token {:?} {}", token.audience, token.expiration),
        };
        (path, contents, file.mode)
    });
    shown.collect()
}

fn file(path: &str, contents: &str, mode: u32) -> (String, String, u32) {
    (path.to_owned(), contents.to_owned(), mode)
}

#[track_caller]
fn fails(source: Value, error: &str) {
    assert_eq!(
        one(source).unwrap_err(),
        format!("MountVolume.SetUp failed for volume \"v\" : {error}")
    );
}

#[test]
fn a_config_map_is_all_its_keys() {
    let mut expected = vec![
        file("binary", "\u{fffd}\u{fffd}\u{fffd}", 0o644),
        file("other", "two", 0o644),
        file("text", "one", 0o644),
    ];
    assert_eq!(files(json!({"configMap": {"name": "config"}})), expected);
    for (_, _, mode) in &mut expected {
        *mode = 0o400;
    }
    assert_eq!(
        files(json!({"configMap": {"name": "config", "defaultMode": 0o400}})),
        expected
    );
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let items = json!([
        {"key": "text", "path": "a/./b//c"}, {"key": "text", "path": "again", "mode": 0o600}, {"key": "binary", "path": "raw"},
    ]);
    assert_eq!(
        files(json!({"configMap": {"name": "config", "defaultMode": 0o444, "items": items}})),
        [
            file("a/b/c", "one", 0o444),
            file("again", "one", 0o600),
            file("raw", "\u{fffd}\u{fffd}\u{fffd}", 0o444)
        ]
    );
    let items = json!([{"key": "password", "path": "p", "mode": 0o7777}]);
    assert_eq!(
        files(json!({"secret": {"secretName": "secret", "items": items}})),
        [file("p", "hunter2", 0o777)]
    );
}

#[test]
fn what_is_shown_twice_is_held_once() {
    let items = json!([{"key": "text", "path": "a"}, {"key": "text", "path": "b"}]);
    let Ok(Volume::Files(files)) = one(json!({"configMap": {"name": "config", "items": items}})) else {
        panic!("not files");
    };
    let (Contents::Bytes(a), Contents::Bytes(b)) = (&files["a"].contents, &files["b"].contents) else {
        panic!("not bytes");
    };
    assert!(Arc::ptr_eq(a, b));
}

#[test]
fn what_is_not_there_fails_in_the_kubelets_words() {
    let items = json!([{"key": "k", "path": "p"}]);
    fails(
        json!({"configMap": {"name": "gone"}}),
        "configmap \"gone\" not found",
    );
    fails(
        json!({"configMap": {"name": "config", "items": items}}),
        "configmap references non-existent config key: k",
    );
    fails(
        json!({"secret": {"secretName": "gone"}}),
        "secret \"gone\" not found",
    );
    fails(
        json!({"secret": {"secretName": "secret", "items": items}}),
        "references non-existent secret key: k",
    );
    fails(
        json!({"projected": {"sources": [{"secret": {"name": "gone"}}]}}),
        "secret \"gone\" not found",
    );
    fails(
        json!({"projected": {"sources": [
            {"secret": {"name": "gone"}}, {"configMap": {"name": "gone"}}, {"secret": {"name": "gone"}},
        ]}}),
        "[secret \"gone\" not found, configmap \"gone\" not found]",
    );
}

#[test]
fn what_is_optional_may_be_missing() {
    let items = json!([{"key": "k", "path": "p"}, {"key": "text", "path": "t"}]);
    assert_eq!(
        files(json!({"configMap": {"name": "gone", "optional": true, "items": items}})),
        []
    );
    assert_eq!(
        files(json!({"configMap": {"name": "config", "optional": true, "items": items}})),
        [file("t", "one", 0o644)]
    );
    assert_eq!(
        files(json!({"secret": {"secretName": "gone", "optional": true}})),
        []
    );
    assert_eq!(
        files(json!({"projected": {"sources": [
            {"secret": {"name": "gone", "optional": true}},
            {"configMap": {"name": "config", "optional": true, "items": items}},
        ]}})),
        [file("t", "one", 0o644)]
    );
}

#[test]
fn the_downward_api_shows_metadata_and_resources() {
    let items = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "label", "fieldRef": {"fieldPath": "metadata.labels['app']"}, "mode": 0o400},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}},
    ]);
    let expected = [
        file("cpu", "1500", 0o644),
        file("label", "db", 0o400),
        file("labels", "app=\"db\"", 0o644),
        file("memory", "1073741824", 0o644),
    ];
    assert_eq!(files(json!({"downwardAPI": {"items": items}})), expected);
    assert_eq!(
        files(json!({"projected": {"sources": [{"downwardAPI": {"items": items}}]}})),
        expected
    );
    let wrong = |item: Value| json!({"downwardAPI": {"items": [item]}});
    fails(
        wrong(json!({"path": "p", "fieldRef": {"fieldPath": "status.podIP"}})),
        "unsupported fieldPath: status.podIP",
    );
    fails(
        wrong(json!({"path": "p", "resourceFieldRef": {"containerName": "none", "resource": "limits.cpu"}})),
        "container none not found",
    );
    fails(
        wrong(json!({"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}})),
        "resourceFieldRef of a volume names no container",
    );
    fails(
        wrong(json!({"path": "p"})),
        "downward API file \"p\" has a source that this node does not know; use fieldRef or resourceFieldRef",
    );
}

#[test]
fn projected_sources_share_a_volume_and_the_later_one_wins() {
    assert_eq!(
        files(json!({"projected": {"defaultMode": 0o440, "sources": [
            {"configMap": {"name": "config", "items": [{"key": "text", "path": "x"}, {"key": "other", "path": "y"}]}},
            {"secret": {"name": "secret", "items": [{"key": "password", "path": "x", "mode": 0o400}]}},
            {"serviceAccountToken": {"path": "token"}},
            {"serviceAccountToken": {"path": "vault/token", "audience": "vault", "expirationSeconds": 7200}},
        ]}})),
        [
            file("token", "token \"\" 3600", 0o440),
            file("vault/token", "token \"vault\" 7200", 0o440),
            file("x", "hunter2", 0o400),
            file("y", "two", 0o440),
        ]
    );
}

#[test]
fn sources_that_cannot_be_made_are_refused_with_a_way_out() {
    fails(
        json!({"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}),
        "clusterTrustBundle is not supported on this node; put the certificates into a configMap",
    );
    let unknown =
        one(json!({"projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}})).unwrap_err();
    assert!(unknown.contains("podCertificate is not supported"), "{unknown}");
}

#[rstest]
#[case("", "must not be empty: \"\"")]
#[case("/etc/passwd", "must be relative path: /etc/passwd")]
#[case("../up", "must not contain '..': ../up")]
#[case("a/../../up", "must not contain '..': a/../../up")]
#[case("..data", "must not start with '..': ..data")]
#[case(".", "must name a file: .")]
#[case(&"n".repeat(256), "filenames must be less than or equal to 255 characters")]
#[case(&"n/".repeat(2049), "must be less than or equal to 4096 characters")]
fn paths_stay_in_the_volume(#[case] path: &str, #[case] error: &str) {
    let items = json!([{"key": "text", "path": path}]);
    fails(
        json!({"configMap": {"name": "config", "items": items}}),
        &format!("invalid path: {error}"),
    );
    fails(
        json!({"projected": {"sources": [{"serviceAccountToken": {"path": path}}]}}),
        &format!("invalid path: {error}"),
    );
}

#[test]
fn no_file_is_a_directory_too() {
    let items = json!([{"key": "text", "path": "a"}, {"key": "text", "path": "a/b/c"}]);
    fails(
        json!({"configMap": {"name": "config", "items": items}}),
        "invalid path: a is a file and a directory: a/b/c",
    );
    let items = json!([{"key": "text", "path": "a.b"}, {"key": "text", "path": "a/b"}, {"key": "text", "path": "a-"}]);
    assert_eq!(
        files(json!({"configMap": {"name": "config", "items": items}})).len(),
        3
    );
}

#[test]
fn contents_are_bounded() {
    let many: Vec<Value> = (0..6)
        .map(|n| json!({"path": format!("f{n}"), "fieldRef": {"fieldPath": "metadata.annotations"}}))
        .collect();
    fails(
        json!({"downwardAPI": {"items": many}}),
        "its files of the downward API hold more than 1 MiB; show fewer fields",
    );
    let big: ConfigMap = serde_json::from_value(json!({"data": {
        "a": "x".repeat(600_000), "b": "x".repeat(600_000),
    }}))
    .unwrap();
    let mut found = found();
    found.config_maps.insert("big".to_owned(), Some(Arc::new(big)));
    let volumes = json!([{"name": "v", "configMap": {"name": "big"}}]);
    let error = resolve(&pod(volumes), &found, &location()).unwrap_err();
    assert!(
        error.ends_with("configmap \"big\" holds more than 1 MiB; make it smaller"),
        "{error}"
    );
}

#[rstest]
#[case(json!({}), None)]
#[case(json!({"medium": "Memory", "sizeLimit": "64Mi"}), Some(64 << 20))]
#[case(json!({"sizeLimit": "0"}), None)]
fn an_empty_directory_is_scratch(#[case] source: Value, #[case] limit: Option<u64>) {
    assert_eq!(one(json!({"emptyDir": source})), Ok(Volume::Scratch { limit }));
}

#[rstest]
#[case(json!({"hostPath": {"path": "/"}}))]
#[case(json!({"persistentVolumeClaim": {"claimName": "c"}}))]
#[case(json!({"csi": {"driver": "d"}}))]
#[case(json!({"image": {"reference": "r"}}))]
fn other_volumes_are_the_providers(#[case] source: Value) {
    assert_eq!(one(source), Ok(Volume::Foreign));
}

#[test]
fn a_pod_without_volumes_has_none() {
    let mut pod = pod(json!([]));
    assert_eq!(resolve(&pod, &found(), &location()), Ok(Volumes::default()));
    pod.spec = None;
    assert_eq!(resolve(&pod, &found(), &location()), Ok(Volumes::default()));
}

#[test]
fn references_name_the_objects_of_all_volumes() {
    let pod = pod(json!([
        {"name": "a", "configMap": {"name": "a"}},
        {"name": "b", "secret": {"secretName": "b"}},
        {"name": "c", "projected": {"sources": [
            {"configMap": {"name": "c"}}, {"secret": {"name": "d"}}, {"serviceAccountToken": {"path": "t"}},
        ]}},
        {"name": "d", "emptyDir": {}},
        {"name": "e", "secret": {"secretName": "../x"}},
    ]));
    assert_eq!(
        references(&pod),
        BTreeSet::from([
            Reference::ConfigMap("a".to_owned()),
            Reference::ConfigMap("c".to_owned()),
            Reference::Secret("b".to_owned()),
            Reference::Secret("d".to_owned()),
        ])
    );
}

#[test]
fn contents_are_not_shown() {
    let volumes = resolve(
        &pod(json!([{"name": "v", "secret": {"secretName": "secret"}}])),
        &found(),
        &location(),
    );
    let shown = format!("{:?}", volumes.unwrap());
    assert!(
        shown.contains("password") && shown.contains("7 of them"),
        "{shown}"
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("104, 117"),
        "{shown}"
    );
}
