//! The three forms of an installation: what the command prints, the kustomize base, and the Helm chart.

use crate::support::evenkeel;
use evenkeel_testkit::interop::build_helm;
use evenkeel_testkit::{kubectl, skipped};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name)
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Objects by kind, namespace and name; Helm sorts them by kind, and none may be there twice.
fn objects(text: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    let mut objects = BTreeMap::new();
    for mut object in documents.into_iter().filter(|document| !document.is_null()) {
        let name = format!(
            "{} {} {}",
            object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
        );
        // What is null is not there, and 0 is 0.0.
        normalise(&mut object);
        assert!(objects.insert(name, object).is_none(), "an object is there twice");
    }
    objects
}

fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(normalise);
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Number(number) => *value = number.as_f64().into(),
        _ => {}
    }
}

fn assert_alike(found: &str, wanted: &str, what: &str) {
    let (found, wanted) = (objects(found), objects(wanted));
    assert!(wanted.len() > 30, "{}", wanted.len());
    let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted), "{what}");
    for (name, object) in &wanted {
        assert_eq!(&found[name], object, "{what}: {name}");
    }
}

fn dry_run(flags: &[&str]) -> String {
    output(evenkeel().args(["install", "--dry-run"]).args(flags))
}

#[test]
fn the_kustomize_base_is_what_the_command_prints() {
    let Some(kubectl) = kubectl() else {
        return skipped(
            "the_kustomize_base_is_what_the_command_prints",
            "there is no kubectl",
        );
    };
    let built = output(Command::new(kubectl).arg("kustomize").arg(deploy("kustomize")));
    assert_alike(&built, &dry_run(&[]), "kubectl kustomize");
}

#[test]
fn the_chart_is_what_the_command_prints_with_each_setting() {
    let Some(go) = evenkeel_testkit::go() else {
        return skipped(
            "the_chart_is_what_the_command_prints_with_each_setting",
            "there is no Go",
        );
    };
    let helm = build_helm(&go, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|why| panic!("{why}"));
    let template = |values: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(["template", "evenkeel"]).arg(deploy("chart"));
        for value in values {
            command.args(["--set", value]);
        }
        output(&mut command)
    };
    assert_alike(&template(&[]), &dry_run(&[]), "helm template");
    let values = [
        "namespace=pier",
        "image=mirror:5000/evenkeel:7",
        "agentImage=mirror:5000/evenkeel-agent:7",
        "mode=act",
        "profile=edge",
        "zoneDefault=shore",
        "controllerNodes.tier=cloud",
    ];
    let flags = [
        "--namespace",
        "pier",
        "--image",
        "mirror:5000/evenkeel:7",
        "--mode",
        "act",
        "--profile",
        "edge",
        "--zone-default",
        "shore",
        "--controller-nodes",
        "tier=cloud",
    ];
    assert_alike(&template(&values), &dry_run(&flags), "helm template with values");
}
