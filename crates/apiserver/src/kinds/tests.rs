use super::*;
use serde_json::json;

impl Snapshot {
    /// Whether a group is served in that version.
    fn has_version(&self, group: &str, version: &str) -> bool {
        self.by_path.contains_key(&group_version(group, version))
    }
}

fn widgets() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1alpha1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}},
                {"name": "v0", "served": false, "storage": false},
            ],
        },
    })
}

#[test]
fn built_in_resources_are_found_by_path_and_by_kind() {
    let snapshot = Registry::new().snapshot();
    let pods = snapshot.by_gvr("", "v1", "pods").expect("pods");
    assert_eq!(pods.kind, "Pod");
    assert_eq!(pods.verbs, ALL_VERBS);
    assert_eq!(pods.subresource("eviction").expect("eviction").group, "policy");
    let leases = snapshot
        .by_gvk(&Gvk {
            group: "coordination.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: "Lease".to_owned(),
        })
        .expect("leases");
    assert_eq!(leases.qualified(), "leases.coordination.k8s.io");
    assert!(snapshot.by_gvr("apps", "v1", "pods").is_none());
}

#[test]
fn a_beta_version_does_not_become_the_preferred_one() {
    let snapshot = Registry::new().snapshot();
    let group = snapshot
        .groups()
        .iter()
        .find(|group| group.name == "coordination.k8s.io")
        .expect("the group");
    let versions: Vec<&str> = group.versions.iter().map(|one| one.version.as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
    let candidates = snapshot
        .by_gvr("coordination.k8s.io", "v1beta1", "leasecandidates")
        .expect("leasecandidates");
    assert_eq!(
        (candidates.kind.as_str(), candidates.namespaced),
        ("LeaseCandidate", true)
    );
}

#[test]
fn both_event_resources_store_the_same_objects() {
    let snapshot = Registry::new().snapshot();
    let events = snapshot.by_gvr("events.k8s.io", "v1", "events").expect("events");
    assert_eq!(
        (events.stored_group.as_str(), events.stored_version.as_str()),
        ("", "v1")
    );
}

#[test]
fn every_list_of_discovery_is_sorted() {
    for group in Registry::new().snapshot().groups() {
        for version in &group.versions {
            assert!(
                version
                    .resources
                    .is_sorted_by_key(|resource| resource.gvr.resource.clone())
            );
            for resource in &version.resources {
                assert!(resource.verbs.is_sorted(), "{}", resource.gvr.resource);
                assert!(
                    resource.subresources.is_sorted_by_key(|sub| sub.name.clone()),
                    "{}",
                    resource.gvr.resource
                );
            }
        }
    }
}

#[test]
fn a_definition_is_served_until_it_is_gone() {
    let registry = Registry::new();
    registry.define(&widgets());
    let snapshot = registry.snapshot();
    let group = snapshot.groups().last().expect("a group");
    let versions: Vec<&str> = group
        .versions
        .iter()
        .map(|version| version.version.as_str())
        .collect();
    assert_eq!(
        (group.name.as_str(), versions),
        ("example.com", vec!["v1", "v1alpha1"])
    );
    let old = snapshot
        .by_gvr("example.com", "v1alpha1", "widgets")
        .expect("served");
    assert_eq!(
        (
            old.stored_version.as_str(),
            old.list_kind.as_str(),
            old.singular.as_str()
        ),
        ("v1", "WidgetList", "widget")
    );
    assert!(old.subresource("status").is_none());
    registry.undefine("widgets.example.com");
    assert!(!registry.snapshot().has_version("example.com", "v1"));
    assert!(
        snapshot.has_version("example.com", "v1"),
        "a snapshot does not change"
    );
}
