//! Virtual-kubelet's cases by the names of its tests, then the kubelet's rules that it does not have.
//!
//! | upstream | here |
//! |---|---|
//! | `TestPopulatePodWithInitContainersUsingEnv` | `containers_of_all_lists_take_values_from_keys` |
//! | `TestPopulatePodWithInitContainersUsingEnvWithFieldRef` | `fields_of_the_pod_are_values` |
//! | `TestPopulatePodWithInitContainersUsingEnvFrom` | `containers_of_all_lists_take_whole_objects` |
//! | `TestEnvFromTwoConfigMapsAndOneSecret` | `whole_objects_come_with_their_prefixes` |
//! | `TestEnvFromConfigMapAndSecretWithInvalidKeys` | `invalid_names_are_skipped_and_told` |
//! | `TestEnvOverridesEnvFrom` | `env_overrides_env_from` |
//! | `TestEnvFromInexistentConfigMaps` | `config_maps_that_are_not_there` |
//! | `TestEnvFromInexistentSecrets` | `secrets_that_are_not_there` |
//! | `TestEnvReferencingInexistentConfigMapKey` | `keys_of_config_maps_that_are_not_there` |
//! | `TestEnvReferencingInexistentSecretKey` | `keys_of_secrets_that_are_not_there` |
//! | `TestServiceEnvVar` | `services_are_told_by_namespace_and_links` |
//! | `TestComposingEnv` | `values_are_composed_of_earlier_ones` |
//! | `TestEmptyEnvVar` | `an_empty_value_is_a_value` |
//! | `TestPopulatePodWithEphemeralContainersUsingEnv` | `containers_of_all_lists_take_values_from_keys` |
//! | `TestPopulatePodWithEphemeralContainersUsingEnvFrom` | `containers_of_all_lists_take_whole_objects` |
//! | `TestPopulatePodWithEphemeralContainersUsingFieldRef` | `fields_of_the_pod_are_values` |

use super::*;
use rstest::rstest;
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "pod-0", "namespace": "foo", "uid": "u-1",
            "labels": {"zone": "us-est-coast", "cluster": "test-cluster1", "rack": "rack-22"},
            "annotations": {"build": "two", "builder": "john \"doe\"", "a[b]/c": "odd", "example.com/Case": "kept"},
        },
        "spec": spec,
    }))
    .unwrap()
}

/// A pod of one container without the Services of its namespace.
fn single(container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("main");
    pod(json!({"enableServiceLinks": false, "containers": [container]}))
}

fn object<T: serde::de::DeserializeOwned>(name: &str, data: Value) -> (String, Option<Arc<T>>) {
    let object = json!({"metadata": {"name": name, "namespace": "foo"}, "data": data});
    (
        name.to_owned(),
        Some(Arc::new(serde_json::from_value(object).unwrap())),
    )
}

fn service(namespace: &str, name: &str, ip: Option<&str>, ports: Value) -> Arc<Service> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": ports},
        }))
        .unwrap(),
    )
}

fn found() -> Found {
    let encoded = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    Found {
        config_maps: BTreeMap::from([
            object("configmap-1", json!({"FOO": "__foo__"})),
            object("configmap-2", json!({"BAR": "__bar__"})),
            object(
                "invalid-configmap-1",
                json!({"FOO": "__foo__", "2INVALID": "x", "1INVALID": "x"}),
            ),
            ("gone".to_owned(), None),
        ]),
        secrets: BTreeMap::from([
            object("secret-1", json!({"BAZ": encoded("__baz__")})),
            object(
                "invalid-secret-1",
                json!({"BAZ": encoded("__baz__"), "3INVALID": encoded("x")}),
            ),
            object("binary", json!({"KEY": "gIGC"})),
            ("gone".to_owned(), None),
        ]),
        services: Vec::new(),
    }
}

fn location() -> Location {
    Location {
        host_addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        pod_addresses: vec!["10.1.0.7".parse().unwrap(), "fd01::7".parse().unwrap()],
        allocatable: BTreeMap::from([
            ("cpu".to_owned(), "4".to_owned()),
            ("memory".to_owned(), "8Gi".to_owned()),
        ])
        .into(),
    }
}

fn resolved(pod: &Pod, name: &str, found: &Found) -> Resolved {
    resolve(pod, &container_of(pod, name).expect(name), found, &location())
}

fn env_of(container: &Container) -> Vec<(&str, &str)> {
    let env = container.env.iter().flatten();
    env.map(|variable| {
        assert!(variable.value_from.is_none());
        (
            variable.name.as_str(),
            variable.value.as_deref().expect("values are literal"),
        )
    })
    .collect()
}

/// The environment of the only container, where nothing is to be recorded.
#[track_caller]
fn holds(container: Value, expected: &[(&str, &str)]) {
    let resolved = resolved(&single(container), "main", &found());
    let container = resolved.container.unwrap();
    assert_eq!(env_of(&container), expected);
    assert_eq!(resolved.events, []);
    assert_eq!(container.env_from, None);
}

fn told(resolved: &Resolved) -> Vec<(&str, &str)> {
    let events = resolved.events.iter();
    events
        .map(|event| {
            assert!(event.warning);
            (event.reason, event.message.as_str())
        })
        .collect()
}

#[rstest]
fn containers_of_all_lists_take_values_from_keys(#[values("init", "main", "debug")] name: &str) {
    let env = json!([
        {"name": "FOO", "value": "foo_value"},
        {"name": "BAR", "valueFrom": {"configMapKeyRef": {"name": "configmap-1", "key": "FOO"}}},
        {"name": "CHO", "valueFrom": {"secretKeyRef": {"name": "secret-1", "key": "BAZ", "optional": false}}},
    ]);
    let pod = pod(json!({
        "enableServiceLinks": false,
        "initContainers": [{"name": "init", "env": env}],
        "containers": [{"name": "main", "env": env}],
        "ephemeralContainers": [{"name": "debug", "env": env, "targetContainerName": "main"}],
    }));
    let resolved = resolved(&pod, name, &found());
    assert_eq!(
        env_of(&resolved.container.unwrap()),
        [("FOO", "foo_value"), ("BAR", "__foo__"), ("CHO", "__baz__")]
    );
}

#[rstest]
fn containers_of_all_lists_take_whole_objects(#[values("init", "main", "debug")] name: &str) {
    let from = json!([
        {"configMapRef": {"name": "configmap-1"}},
        {"secretRef": {"name": "secret-1", "optional": false}},
    ]);
    let pod = pod(json!({
        "enableServiceLinks": false,
        "initContainers": [{"name": "init", "envFrom": from}],
        "containers": [{"name": "main", "envFrom": from}],
        "ephemeralContainers": [{"name": "debug", "envFrom": from}],
    }));
    let resolved = resolved(&pod, name, &found());
    assert_eq!(
        env_of(&resolved.container.unwrap()),
        [("FOO", "__foo__"), ("BAZ", "__baz__")]
    );
}

#[rstest]
#[case("metadata.name", "pod-0")]
#[case("metadata.namespace", "foo")]
#[case("metadata.uid", "u-1")]
#[case(
    "metadata.labels",
    "cluster=\"test-cluster1\"\nrack=\"rack-22\"\nzone=\"us-est-coast\""
)]
#[case(
    "metadata.annotations",
    "a[b]/c=\"odd\"\nbuild=\"two\"\nbuilder=\"john \\\"doe\\\"\"\nexample.com/Case=\"kept\""
)]
#[case("metadata.labels['rack']", "rack-22")]
#[case("metadata.labels['none']", "")]
#[case("metadata.annotations['build']", "two")]
#[case("metadata.annotations['example.com/Case']", "kept")]
#[case("spec.nodeName", "namenode")]
#[case("spec.host", "namenode")]
#[case("spec.serviceAccountName", "serviceaccount")]
#[case("status.hostIP", "10.0.0.1")]
#[case("status.hostIPs", "10.0.0.1,fd00::1")]
#[case("status.podIP", "10.1.0.7")]
#[case("status.podIPs", "10.1.0.7,fd01::7")]
fn fields_of_the_pod_are_values(#[case] path: &str, #[case] value: &str) {
    let env = json!([{"name": "FOO", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}]);
    let pod = pod(json!({
        "enableServiceLinks": false,
        "nodeName": "namenode",
        "serviceAccountName": "serviceaccount",
        "initContainers": [{"name": "init", "env": env}],
        "containers": [{"name": "main", "env": env}],
        "ephemeralContainers": [{"name": "debug", "env": env}],
    }));
    for name in ["init", "main", "debug"] {
        let container = resolved(&pod, name, &found()).container.unwrap();
        assert_eq!(env_of(&container), [("FOO", value)]);
    }
}

#[rstest]
#[case("status.phase", "v1", "unsupported fieldPath: status.phase")]
#[case("metadata.name", "v2", "unsupported pod version: v2")]
#[case(
    "metadata.name['x']",
    "v1",
    "fieldPath \"metadata.name['x']\" does not support subscript"
)]
#[case("metadata.labels['']", "v1", "invalid key subscript in metadata.labels['']: ")]
#[case(
    "metadata.annotations['a[b]/c']",
    "v1",
    "invalid key subscript in metadata.annotations"
)]
#[case("['x']", "v1", "unsupported fieldPath: ['x']")]
#[case("", "", "unsupported fieldPath: ")]
fn fields_that_there_are_not_are_errors(#[case] path: &str, #[case] version: &str, #[case] error: &str) {
    let env = json!([{"name": "FOO", "valueFrom": {"fieldRef": {"apiVersion": version, "fieldPath": path}}}]);
    let refused = resolved(&single(json!({"env": env})), "main", &found())
        .container
        .unwrap_err();
    assert!(refused.starts_with(error), "{refused}");
}

#[test]
fn a_host_without_an_address_is_an_error_and_a_pod_without_one_is_empty() {
    let field = |path: &str| {
        let env = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        let pod = single(json!({"env": env}));
        let container = container_of(&pod, "main").unwrap();
        resolve(&pod, &container, &found(), &Location::default()).container
    };
    assert_eq!(env_of(&field("status.podIP").unwrap()), [("IP", "")]);
    assert!(
        field("status.hostIP")
            .unwrap_err()
            .contains("status.hostIP is not known")
    );
}

#[test]
fn whole_objects_come_with_their_prefixes() {
    holds(
        json!({"envFrom": [
            {"prefix": "FROM_CONFIGMAP_1_", "configMapRef": {"name": "configmap-1"}},
            {"prefix": "FROM_CONFIGMAP_2_", "configMapRef": {"name": "configmap-2"}},
            {"prefix": "FROM_SECRET_1_", "secretRef": {"name": "secret-1"}},
        ]}),
        &[
            ("FROM_CONFIGMAP_1_FOO", "__foo__"),
            ("FROM_CONFIGMAP_2_BAR", "__bar__"),
            ("FROM_SECRET_1_BAZ", "__baz__"),
        ],
    );
}

#[test]
fn invalid_names_are_skipped_and_told() {
    let pod = single(json!({"envFrom": [
        {"configMapRef": {"name": "invalid-configmap-1"}}, {"secretRef": {"name": "invalid-secret-1"}},
    ]}));
    let resolved = resolved(&pod, "main", &found());
    assert_eq!(
        told(&resolved),
        [
            (
                "InvalidEnvironmentVariableNames",
                "keys [1INVALID, 2INVALID] from configmap foo/invalid-configmap-1 were skipped since they are invalid as \
                 environment variable names"
            ),
            (
                "InvalidEnvironmentVariableNames",
                "keys [3INVALID] from secret foo/invalid-secret-1 were skipped since they are invalid as environment \
                 variable names"
            ),
        ]
    );
    assert_eq!(
        env_of(&resolved.container.unwrap()),
        [("FOO", "__foo__"), ("BAZ", "__baz__")]
    );
}

#[test]
fn a_prefix_makes_a_name_valid_or_invalid() {
    let from = |prefix: &str| {
        let pod =
            single(json!({"envFrom": [{"prefix": prefix, "configMapRef": {"name": "invalid-configmap-1"}}]}));
        let resolved = resolved(&pod, "main", &found());
        resolved
            .container
            .unwrap()
            .env
            .map_or(0, |variables| variables.len())
    };
    assert_eq!([from("P_"), from("9"), from(".."), from("a=")], [3, 0, 0, 0]);
}

#[test]
fn the_list_of_invalid_names_fits_into_an_event() {
    let data: BTreeMap<String, String> = (0..500).map(|n| (format!("{n:03}"), String::new())).collect();
    let mut found = found();
    found.config_maps.extend([object("many", json!(data))]);
    let pod = single(json!({"envFrom": [{"configMapRef": {"name": "many"}}]}));
    let resolved = resolved(&pod, "main", &found);
    let message = told(&resolved)[0].1;
    assert!(message.starts_with("keys [000, 001, "), "{message}");
    assert!(message.contains(" more] from configmap foo/many"), "{message}");
    assert!(message.len() < 1024);
}

#[test]
fn env_overrides_env_from() {
    holds(
        json!({
            "envFrom": [{"configMapRef": {"name": "configmap-1"}}, {"secretRef": {"name": "secret-1"}}],
            "env": [{"name": "FOO", "value": "foo_value"}, {"name": "NEW", "value": "$(FOO)"}],
        }),
        &[("FOO", "foo_value"), ("BAZ", "__baz__"), ("NEW", "foo_value")],
    );
}

#[test]
fn of_two_objects_with_a_name_the_later_one_counts() {
    let mut found = found();
    found
        .config_maps
        .extend([object("later", json!({"FOO": "later"}))]);
    let pod = single(json!({"envFrom": [
        {"configMapRef": {"name": "configmap-1"}}, {"configMapRef": {"name": "later"}},
    ]}));
    let container = resolved(&pod, "main", &found).container.unwrap();
    assert_eq!(env_of(&container), [("FOO", "later")]);
}

/// An optional reference, then a mandatory one.
#[track_caller]
fn tells(container: Value, error: &str, events: &[(&str, &str)]) {
    let resolved = resolved(&single(container), "main", &found());
    assert_eq!(told(&resolved), events);
    assert_eq!(resolved.container.unwrap_err(), error);
}

#[test]
fn config_maps_that_are_not_there() {
    tells(
        json!({"envFrom": [
            {"configMapRef": {"name": "missing-configmap", "optional": true}},
            {"configMapRef": {"name": "gone", "optional": false}},
            {"configMapRef": {"name": "never-reached"}},
        ]}),
        "configmap \"gone\" not found",
        &[
            (
                "OptionalConfigMapNotFound",
                "configmap \"missing-configmap\" not found",
            ),
            ("MandatoryConfigMapNotFound", "configmap \"gone\" not found"),
        ],
    );
}

#[test]
fn secrets_that_are_not_there() {
    tells(
        json!({"envFrom": [
            {"secretRef": {"name": "missing-secret", "optional": true}}, {"secretRef": {"name": "gone"}},
        ]}),
        "secret \"gone\" not found",
        &[
            ("OptionalSecretNotFound", "secret \"missing-secret\" not found"),
            ("MandatorySecretNotFound", "secret \"gone\" not found"),
        ],
    );
}

#[test]
fn keys_of_config_maps_that_are_not_there() {
    let of = |name: &str, object: &str, key: &str, optional: bool| {
        let selector = json!({"name": object, "key": key, "optional": optional});
        json!({"name": name, "valueFrom": {"configMapKeyRef": selector}})
    };
    tells(
        json!({"env": [
            of("A", "gone", "k", true), of("B", "configmap-1", "k", true), of("C", "configmap-1", "k", false),
        ]}),
        "couldn't find key k in ConfigMap foo/configmap-1",
        &[
            (
                "OptionalConfigMapNotFound",
                "skipping optional envvar \"A\": configmap \"gone\" not found",
            ),
            (
                "OptionalConfigMapKeyNotFound",
                "skipping optional envvar \"B\": key \"k\" does not exist in configmap \"configmap-1\"",
            ),
            (
                "MandatoryConfigMapKeyNotFound",
                "key \"k\" does not exist in configmap \"configmap-1\"",
            ),
        ],
    );
    tells(
        json!({"env": [of("D", "gone", "k", false)]}),
        "configmap \"gone\" not found",
        &[("MandatoryConfigMapNotFound", "configmap \"gone\" not found")],
    );
}

#[test]
fn keys_of_secrets_that_are_not_there() {
    let of = |name: &str, object: &str, optional: bool| {
        let selector = json!({"name": object, "key": "k", "optional": optional});
        json!({"name": name, "valueFrom": {"secretKeyRef": selector}})
    };
    tells(
        json!({"env": [of("A", "gone", true), of("B", "secret-1", true), of("C", "secret-1", false)]}),
        "couldn't find key k in Secret foo/secret-1",
        &[
            (
                "OptionalSecretNotFound",
                "skipping optional envvar \"A\": secret \"gone\" not found",
            ),
            (
                "OptionalSecretKeyNotFound",
                "skipping optional envvar \"B\": key \"k\" does not exist in secret \"secret-1\"",
            ),
            (
                "MandatorySecretKeyNotFound",
                "key \"k\" does not exist in secret \"secret-1\"",
            ),
        ],
    );
    tells(
        json!({"env": [of("D", "gone", false)]}),
        "secret \"gone\" not found",
        &[("MandatorySecretNotFound", "secret \"gone\" not found")],
    );
}

#[test]
fn a_skipped_variable_keeps_what_it_had() {
    let pod = single(json!({
        "envFrom": [{"configMapRef": {"name": "configmap-1"}}],
        "env": [{"name": "FOO", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": true}}}],
    }));
    let container = resolved(&pod, "main", &found()).container.unwrap();
    assert_eq!(env_of(&container), [("FOO", "__foo__")]);
}

#[test]
fn bytes_that_are_no_text_are_refused_without_being_shown() {
    for container in [
        json!({"envFrom": [{"secretRef": {"name": "binary"}}]}),
        json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "binary", "key": "KEY"}}}]}),
    ] {
        let refused = resolved(&single(container), "main", &found())
            .container
            .unwrap_err();
        assert_eq!(
            refused,
            "key \"KEY\" of secret \"binary\" is not UTF-8 text, as an environment variable must be; mount it as a volume"
        );
    }
}

#[test]
fn a_source_that_is_not_known_is_refused() {
    let file =
        json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}});
    let refused = resolved(&single(json!({"env": [file]})), "main", &found())
        .container
        .unwrap_err();
    assert!(
        refused.contains("\"A\"") && refused.contains("fileKeyRef"),
        "{refused}"
    );
}

fn services() -> Found {
    let port = |port: u16| json!([{"port": port, "protocol": "TCP"}]);
    Found {
        services: vec![
            service("default", "kubernetes", Some("10.0.0.1"), port(443)),
            service("foo", "kubernetes", Some("10.0.0.9"), port(8443)),
            service("foo", "test", Some("10.0.0.2"), port(8082)),
            service("foo", "headless", Some("None"), port(8082)),
            service("foo", "external", None, port(8082)),
            service("foo", "blank", Some(""), port(8082)),
            service("bar", "other", Some("10.0.0.3"), port(8083)),
            service("default", "also", Some("10.0.0.4"), port(8084)),
        ],
        ..Found::default()
    }
}

#[rstest]
#[case::own_kubernetes_wins("foo", Some(true), &[("KUBERNETES_SERVICE_HOST", "10.0.0.9"), ("TEST_SERVICE_HOST", "10.0.0.2")])]
#[case::links_are_the_default("foo", None, &[("KUBERNETES_SERVICE_HOST", "10.0.0.9"), ("TEST_SERVICE_HOST", "10.0.0.2")])]
#[case::kubernetes_always("foo", Some(false), &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")])]
#[case::in_default("default", Some(true), &[("ALSO_SERVICE_HOST", "10.0.0.4"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")])]
#[case::in_default_without("default", Some(false), &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")])]
#[case::in_another("bar", Some(true), &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("OTHER_SERVICE_HOST", "10.0.0.3")])]
fn services_are_told_by_namespace_and_links(
    #[case] namespace: &str,
    #[case] links: Option<bool>,
    #[case] hosts: &[(&str, &str)],
) {
    let mut pod = pod(json!({"enableServiceLinks": links, "containers": [{"name": "main"}]}));
    pod.metadata.namespace = Some(namespace.to_owned());
    let container = resolved(&pod, "main", &services()).container.unwrap();
    let env = env_of(&container);
    let told: Vec<_> = env
        .into_iter()
        .filter(|(name, _)| name.ends_with("_SERVICE_HOST"))
        .collect();
    assert_eq!(told, hosts);
}

#[test]
fn a_service_has_dockers_names_too() {
    let found = Found {
        services: vec![service(
            "foo",
            "my-db",
            Some("fd00::5"),
            json!([{"port": 5432, "name": "sql-in"}, {"port": 53, "name": "dns", "protocol": "UDP"}]),
        )],
        ..Found::default()
    };
    let pod = pod(json!({"containers": [{"name": "main"}]}));
    let container = resolved(&pod, "main", &found).container.unwrap();
    assert_eq!(
        env_of(&container),
        [
            ("MY_DB_PORT", "tcp://[fd00::5]:5432"),
            ("MY_DB_PORT_53_UDP", "udp://[fd00::5]:53"),
            ("MY_DB_PORT_53_UDP_ADDR", "fd00::5"),
            ("MY_DB_PORT_53_UDP_PORT", "53"),
            ("MY_DB_PORT_53_UDP_PROTO", "udp"),
            ("MY_DB_PORT_5432_TCP", "tcp://[fd00::5]:5432"),
            ("MY_DB_PORT_5432_TCP_ADDR", "fd00::5"),
            ("MY_DB_PORT_5432_TCP_PORT", "5432"),
            ("MY_DB_PORT_5432_TCP_PROTO", "tcp"),
            ("MY_DB_SERVICE_HOST", "fd00::5"),
            ("MY_DB_SERVICE_PORT", "5432"),
            ("MY_DB_SERVICE_PORT_DNS", "53"),
            ("MY_DB_SERVICE_PORT_SQL_IN", "5432"),
        ]
    );
}

#[test]
fn a_services_variable_yields_to_the_containers_own_and_is_known_before() {
    let pod = pod(json!({"containers": [{"name": "main", "env": [
        {"name": "URL", "value": "http://$(TEST_SERVICE_HOST)/"},
        {"name": "TEST_SERVICE_HOST", "value": "own"},
        {"name": "LATER", "value": "$(TEST_SERVICE_HOST)"},
    ]}]}));
    let container = resolved(&pod, "main", &services()).container.unwrap();
    let env = env_of(&container);
    assert_eq!(
        env[..3],
        [
            ("URL", "http://10.0.0.2/"),
            ("TEST_SERVICE_HOST", "own"),
            ("LATER", "own")
        ]
    );
    assert_eq!(
        env.iter()
            .filter(|(name, _)| *name == "TEST_SERVICE_HOST")
            .count(),
        1
    );
}

#[test]
fn values_are_composed_of_earlier_ones() {
    holds(
        json!({"env": [
            {"name": "FOO", "value": "foo_value"},
            {"name": "BAR", "value": "$(FOO)-bar"},
            {"name": "EARLY", "value": "$(LATE) $$(FOO) $(FOO"},
            {"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "configmap-1", "key": "FOO"}}},
            {"name": "FOO", "value": "$(FOO):$(LATE)"},
        ]}),
        &[
            ("FOO", "foo_value:__foo__"),
            ("BAR", "foo_value-bar"),
            ("EARLY", "$(LATE) $(FOO) $(FOO"),
            ("LATE", "__foo__"),
        ],
    );
}

#[test]
fn a_value_from_an_object_is_not_looked_into() {
    let mut found = found();
    found
        .config_maps
        .extend([object("odd", json!({"ODD": "$(FOO) $$"}))]);
    let pod = single(json!({
        "envFrom": [{"configMapRef": {"name": "odd"}}],
        "env": [{"name": "FOO", "value": "x"}, {"name": "TWICE", "value": "$(ODD)"}],
    }));
    let container = resolved(&pod, "main", &found).container.unwrap();
    assert_eq!(
        env_of(&container),
        [("ODD", "$(FOO) $$"), ("FOO", "x"), ("TWICE", "$(FOO) $$")]
    );
}

#[test]
fn an_empty_value_is_a_value() {
    holds(
        json!({"env": [{"name": "FOO", "value": ""}, {"name": "BAR"}]}),
        &[("FOO", ""), ("BAR", "")],
    );
}

#[test]
fn command_and_arguments_are_expanded_by_the_whole_environment() {
    let pod = pod(json!({"containers": [{
        "name": "main",
        "command": ["run", "$(A)", "$(NONE)"],
        "args": ["$(KUBERNETES_SERVICE_HOST)", "$$(A)", "$(B)"],
        "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)$(A)"}],
    }]}));
    let container = resolved(&pod, "main", &services()).container.unwrap();
    assert_eq!(container.command.unwrap(), ["run", "a", "$(NONE)"]);
    assert_eq!(container.args.unwrap(), ["10.0.0.9", "$(A)", "aa"]);
    let bare = resolved(&single(json!({})), "main", &found()).container.unwrap();
    assert_eq!((bare.command, bare.args), (None, None));
}

#[test]
fn an_environment_that_grows_without_bound_is_refused() {
    let doubling: Vec<Value> = (0..64)
        .map(|n| json!({"name": format!("V{}", n + 1), "value": format!("$(V{n})$(V{n})")}))
        .collect();
    let mut env = vec![json!({"name": "V0", "value": "x".repeat(1024)})];
    env.extend(doubling);
    let refused = resolved(&single(json!({"env": env})), "main", &found())
        .container
        .unwrap_err();
    assert!(refused.contains("environment is too large"), "{refused}");

    let data: BTreeMap<String, String> = (0..5000).map(|n| (format!("K{n}"), String::new())).collect();
    let mut found = found();
    found.config_maps.extend([object("many", json!(data))]);
    let from = json!([{"prefix": "P".repeat(100_000), "configMapRef": {"name": "many"}}]);
    let refused = resolved(&single(json!({"envFrom": from})), "main", &found)
        .container
        .unwrap_err();
    assert!(refused.contains("environment is too large"), "{refused}");

    let env = json!([{"name": "A", "value": "x".repeat(100_000)}]);
    let args = vec!["$(A)"; 1000];
    let refused = resolved(&single(json!({"env": env, "args": args})), "main", &found)
        .container
        .unwrap_err();
    assert!(refused.contains("command is too long"), "{refused}");
}

#[rstest]
#[case::cpu_in_cores("limits.cpu", None, "2")]
#[case::cpu_in_millis("limits.cpu", Some("1m"), "1500")]
#[case::zero_divisor_is_one("requests.cpu", Some("0"), "1")]
#[case::memory_in_bytes("limits.memory", None, "134217728")]
#[case::memory_rounded_up("requests.memory", Some("1Mi"), "97")]
#[case::memory_in_larger("requests.memory", Some("1Gi"), "1")]
#[case::a_divisor_below_one_counts_as_one("limits.memory", Some("1m"), "134217728")]
#[case::storage("requests.ephemeral-storage", Some("1k"), "5")]
#[case::no_limit_and_none_allocatable("limits.ephemeral-storage", None, "0")]
#[case::huge_pages("limits.hugepages-2Mi", Some("1Mi"), "4")]
#[case::no_huge_pages("requests.hugepages-1Gi", None, "0")]
fn resources_are_values(#[case] resource: &str, #[case] divisor: Option<&str>, #[case] value: &str) {
    let reference = json!({"resource": resource, "divisor": divisor});
    holds(
        json!({
            "resources": {
                "limits": {"cpu": "1500m", "memory": "128Mi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "250m", "memory": "101000000", "ephemeral-storage": "4096"},
            },
            "env": [{"name": "R", "valueFrom": {"resourceFieldRef": reference}}],
        }),
        &[("R", value)],
    );
}

#[rstest]
#[case("limits.cpu", json!({}), json!({}), "4")]
#[case("limits.memory", json!({}), json!({}), "8589934592")]
#[case("limits.cpu", json!({"limits": {"cpu": "0"}}), json!({}), "4")]
#[case("requests.cpu", json!({}), json!({}), "0")]
#[case::of_the_pod("limits.cpu", json!({}), json!({"limits": {"cpu": "3"}}), "3")]
#[case::own_before_the_pods("limits.cpu", json!({"limits": {"cpu": "1"}}), json!({"limits": {"cpu": "3"}}), "1")]
fn a_limit_that_is_not_set_is_what_the_pod_or_the_node_has(
    #[case] resource: &str,
    #[case] container: Value,
    #[case] whole: Value,
    #[case] value: &str,
) {
    let env = json!([{"name": "R", "valueFrom": {"resourceFieldRef": {"resource": resource}}}]);
    let pod = pod(json!({
        "enableServiceLinks": false, "resources": whole,
        "containers": [{"name": "main", "resources": container, "env": env}],
    }));
    let container = resolved(&pod, "main", &found()).container.unwrap();
    assert_eq!(env_of(&container), [("R", value)]);
}

#[test]
fn resources_may_be_another_containers() {
    let of = |name: &str| {
        let reference = json!({"resource": "requests.cpu", "containerName": name, "divisor": "1m"});
        let env = json!([{"name": "R", "valueFrom": {"resourceFieldRef": reference}}]);
        let pod = pod(json!({
            "enableServiceLinks": false,
            "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "7m"}}}],
            "containers": [{"name": "main", "env": env}, {"name": "side", "resources": {"requests": {"cpu": "9m"}}}],
        }));
        let container = resolved(&pod, "main", &found()).container;
        container.map(|container| env_of(&container)[0].1.to_owned())
    };
    assert_eq!(of("side").unwrap(), "9");
    assert_eq!(of("init").unwrap(), "7");
    assert_eq!(of("none").unwrap_err(), "container none not found");
}

#[rstest]
#[case(
    "limits.nvidia.com/gpu",
    None,
    "unsupported container resource : limits.nvidia.com/gpu"
)]
#[case("cpu", None, "unsupported container resource : cpu")]
#[case("limits.cpu", Some("x"), "\"x\" is no quantity")]
fn resources_that_there_are_not_are_errors(
    #[case] resource: &str,
    #[case] divisor: Option<&str>,
    #[case] error: &str,
) {
    let reference = json!({"resource": resource, "divisor": divisor});
    let env = json!([{"name": "R", "valueFrom": {"resourceFieldRef": reference}}]);
    let refused = resolved(&single(json!({"env": env})), "main", &found())
        .container
        .unwrap_err();
    assert_eq!(refused, error);
}

#[test]
fn references_name_what_is_to_be_read_and_nothing_else() {
    let pod = single(json!({
        "envFrom": [
            {"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}},
            {"secretRef": {"name": "../../kube-system/secrets/c"}}, {"configMapRef": {"name": ""}},
        ],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "d", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "e?x", "key": "k"}}},
            {"name": "C", "value": "literal", "valueFrom": {"secretKeyRef": {"name": "f", "key": "k"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }));
    assert_eq!(
        references(&container_of(&pod, "main").unwrap()),
        BTreeSet::from([
            Reference::ConfigMap("a".to_owned()),
            Reference::ConfigMap("d".to_owned()),
            Reference::Secret("b".to_owned()),
            Reference::Services,
        ])
    );
}

#[test]
fn a_name_that_no_object_can_have_is_not_found() {
    tells(
        json!({"envFrom": [{"secretRef": {"name": "../../kube-system/secrets/c"}}]}),
        "secret \"../../kube-system/secrets/c\" not found",
        &[(
            "MandatorySecretNotFound",
            "secret \"../../kube-system/secrets/c\" not found",
        )],
    );
}

#[test]
fn secrets_are_not_shown() {
    let found = found();
    let pod = single(json!({"envFrom": [{"secretRef": {"name": "secret-1"}}]}));
    let resolved = resolved(&pod, "main", &found);
    let shown = format!("{found:?} {resolved:?}");
    assert!(shown.contains("secret-1") && shown.contains("main"), "{shown}");
    assert!(!shown.contains("__baz__"), "{shown}");
    // As an array of bytes.
    assert!(!shown.contains("95, 95, 98"), "{shown}");
}

#[test]
fn a_container_is_found_in_every_list() {
    let pod = pod(json!({
        "containers": [{"name": "main", "image": "m"}],
        "initContainers": [{"name": "init", "image": "i"}],
        "ephemeralContainers": [{"name": "debug", "image": "d", "stdin": true, "targetContainerName": "main"}],
    }));
    let image = |name: &str| container_of(&pod, name)?.image;
    assert_eq!(
        [image("main"), image("init"), image("debug"), image("none")],
        [Some("m"), Some("i"), Some("d"), None].map(|image| image.map(str::to_owned))
    );
    assert_eq!(container_of(&pod, "debug").unwrap().stdin, Some(true));
}
