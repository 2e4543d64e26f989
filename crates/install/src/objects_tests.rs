use super::*;
use rstest::rstest;
use std::collections::BTreeSet;

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn everything() -> Options {
    Options {
        namespace: "pier".to_owned(),
        image: "mirror:5000/a/evenkeel:7".to_owned(),
        agent_image: "mirror:5000/a/evenkeel-agent:7".to_owned(),
        mode: "act".to_owned(),
        profile: "edge".to_owned(),
        zone_default: Some("shore".to_owned()),
        controller_nodes: vec![("tier".to_owned(), "cloud".to_owned())],
    }
}

fn args(object: &Value) -> Vec<&str> {
    let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    args.unwrap().iter().map(|arg| arg.as_str().unwrap()).collect()
}

#[rstest]
#[case("evenkeel", "evenkeel-agent")]
#[case("evenkeel:1.2", "evenkeel-agent:1.2")]
#[case("mirror:5000/evenkeel", "mirror:5000/evenkeel-agent")]
#[case("mirror:5000/a/evenkeel:1.2", "mirror:5000/a/evenkeel-agent:1.2")]
#[case("mirror/evenkeel:1.2@sha256:0123", "mirror/evenkeel-agent:1.2")]
fn the_agents_image_is_beside_the_other(#[case] image: &str, #[case] agent: &str) {
    assert_eq!(agent_image(image), agent);
}

#[test]
fn what_an_installation_was_told_is_read_back() {
    for options in [
        Options::default(),
        everything(),
        Options {
            profile: "edge".to_owned(),
            ..Options::default()
        },
    ] {
        let objects = objects(&options);
        let usual = Options {
            namespace: options.namespace.clone(),
            ..Options::default()
        };
        let read = options_of(
            find(&objects, "Deployment", CONTROLLER),
            find(&objects, "DaemonSet", AGENT),
            &usual,
        );
        assert_eq!(read, (options, vec![]));
    }
}

/// Of an installation with these settings, by what is there, the flags that have to be given.
#[rstest]
#[case(Options::default(), [true, false], &[])]
#[case(everything(), [true, false], &["--agent-image"])]
#[case(everything(), [false, true], &["--mode", "--profile", "--image", "--controller-nodes"])]
#[case(everything(), [false, false],
    &["--mode", "--profile", "--image", "--agent-image", "--controller-nodes", "--zone-default"])]
fn what_no_workload_says_is_named(
    #[case] options: Options,
    #[case] there: [bool; 2],
    #[case] expected: &[&str],
) {
    let objects = objects(&options);
    let mut workloads = [
        find(&objects, "Deployment", CONTROLLER).clone(),
        find(&objects, "DaemonSet", AGENT).clone(),
    ];
    for (workload, _) in workloads.iter_mut().zip(there).filter(|(_, there)| !there) {
        *workload = Value::Null;
    }
    let (read, unread) = options_of(&workloads[0], &workloads[1], &Options::default());
    assert_eq!(unread, expected);
    if there != [false, false] {
        assert_eq!(read.zone_default, options.zone_default, "either says it");
    }
}

#[test]
fn a_deployment_that_somebody_wrote_anew_says_nothing() {
    let objects = objects(&everything());
    let mut deployment = find(&objects, "Deployment", CONTROLLER).clone();
    deployment["spec"]["template"]["spec"]["containers"][0] = json!({"image": "theirs"});
    let (read, unread) = options_of(
        &deployment,
        find(&objects, "DaemonSet", AGENT),
        &Options::default(),
    );
    assert_eq!(unread, ["--mode", "--profile", "--image"]);
    assert_eq!(read.zone_default, everything().zone_default);
}

#[test]
fn a_new_version_brings_the_images_of_its_build_and_keeps_those_from_elsewhere() {
    let usual = Options::default();
    let built = Options {
        image: "localhost/evenkeel:0.0.1".to_owned(),
        agent_image: "localhost/evenkeel-agent:0.0.1".to_owned(),
        ..everything()
    };
    let now = built.with_images_of(&usual);
    assert_eq!((&now.image, &now.agent_image), (&usual.image, &usual.agent_image));
    assert_eq!(everything().with_images_of(&usual), everything());
}

#[test]
fn a_first_installation_changes_nothing_on_the_cluster() {
    let objects = objects(&Options::default());
    let args = args(find(&objects, "Deployment", CONTROLLER));
    assert!(
        args.contains(&"--mode=observe") && args.contains(&"--profile=builtin"),
        "{args:?}"
    );
}

#[test]
fn controller_and_agents_put_a_node_into_the_same_zone() {
    for (zone, profile, expected) in [
        (None, "builtin", None),
        (None, "edge", Some("--zone-default=default")),
        (Some("shore"), "builtin", Some("--zone-default=shore")),
        (Some("shore"), "edge", Some("--zone-default=shore")),
    ] {
        let objects = objects(&Options {
            profile: profile.to_owned(),
            zone_default: zone.map(str::to_owned),
            ..Options::default()
        });
        for object in [
            find(&objects, "Deployment", CONTROLLER),
            find(&objects, "DaemonSet", AGENT),
        ] {
            let zone = args(object)
                .into_iter()
                .find(|arg| arg.starts_with("--zone-default"));
            assert_eq!(zone, expected);
        }
    }
}

/// 0440 is octal to kubelets, decimal to others, and a float to some.
#[test]
fn numbers_are_what_they_look_like() {
    fn floats(value: &Value) -> bool {
        match value {
            Value::Number(number) => number.is_f64(),
            Value::Array(items) => items.iter().any(floats),
            Value::Object(fields) => fields.values().any(floats),
            _ => false,
        }
    }
    let objects = objects(&Options::default());
    for object in objects
        .iter()
        .filter(|object| object["kind"] != "CustomResourceDefinition")
    {
        assert!(!floats(object), "{object}");
    }
    let mode =
        find(&objects, "Deployment", CONTROLLER).pointer("/spec/template/spec/volumes/0/secret/defaultMode");
    assert_eq!(mode, Some(&json!(0o440)));
}

#[test]
fn images_and_zones_may_be_called_like_the_namespace() {
    let objects = objects(&Options {
        image: "mirror/evenkeel-system/evenkeel:7".to_owned(),
        zone_default: Some("evenkeel-system".to_owned()),
        ..everything()
    });
    let deployment = find(&objects, "Deployment", CONTROLLER);
    let image = deployment.pointer("/spec/template/spec/containers/0/image");
    assert_eq!(image, Some(&json!("mirror/evenkeel-system/evenkeel:7")));
    assert!(args(deployment).contains(&"--zone-default=evenkeel-system"));
}

#[test]
fn nothing_names_the_usual_namespace_in_another_one() {
    let text = serde_json::to_string(&objects(&everything())).unwrap();
    assert!(!text.contains(names::NAMESPACE));
    assert!(text.contains("system:serviceaccount:pier:evenkeel-agent"));
}

#[test]
fn every_object_is_there_once_and_marked() {
    let objects = objects(&Options::default());
    let names: BTreeSet<_> = objects
        .iter()
        .map(|object| {
            let labels = &object["metadata"]["labels"];
            assert_eq!(
                (&labels[PART_OF.0], &labels[INSTALLATION]),
                (&json!(PART_OF.1), &json!(names::NAMESPACE))
            );
            let text = |pointer| object.pointer(pointer).map(Value::to_string).unwrap_or_default();
            (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
        })
        .collect();
    assert_eq!(names.len(), objects.len());
    let page = include_str!("../../../docs/install.md");
    assert!(page.contains(&format!("Evenkeel is removed: {} objects", objects.len())));
    let namespace = find(&objects, "Namespace", names::NAMESPACE);
    assert_eq!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
        "privileged"
    );
}

/// A namespace has to exist before what is in it, and rights before who needs them.
#[test]
fn they_are_in_the_order_in_which_they_can_be_applied() {
    let objects = objects(&Options::default());
    let place = |kind: &str| objects.iter().position(|object| object["kind"] == kind).unwrap();
    let last = |kind: &str| objects.iter().rposition(|object| object["kind"] == kind).unwrap();
    assert!(last("CustomResourceDefinition") < place("Namespace"));
    assert!(place("Namespace") < place("ServiceAccount"));
    assert!(last("RoleBinding") < place("DaemonSet"));
    assert!(last("ValidatingAdmissionPolicyBinding") < place("DaemonSet"));
}

#[test]
fn agents_and_controllers_have_no_more_rights_on_their_machines_than_they_need() {
    let objects = objects(&Options::default());
    for (kind, name, user) in [("DaemonSet", AGENT, 0), ("Deployment", CONTROLLER, 65_532)] {
        let pod = &find(&objects, kind, name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["allowPrivilegeEscalation"], false);
        let of = |field: &str| match &security[field] {
            Value::Null => pod["securityContext"][field].clone(),
            own => own.clone(),
        };
        assert_eq!(of("runAsUser"), user);
        assert_eq!(of("seccompProfile"), json!({"type": "RuntimeDefault"}));
        assert_eq!(security["privileged"], Value::Null);
        // With SELinux only such a container writes its key and state on the node.
        let selinux = json!({"type": "spc_t"});
        assert_eq!(of("seLinuxOptions") == selinux, kind == "DaemonSet");
        assert_eq!(pod["hostNetwork"] == true, kind == "DaemonSet");
    }
}
