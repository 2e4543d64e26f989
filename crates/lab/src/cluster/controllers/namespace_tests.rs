//! What a namespace says while it cannot go.

use super::*;

fn left(resources: &[(&str, usize)], finalizers: &[(&str, usize)]) -> Left {
    let owned = |all: &[(&str, usize)]| {
        all.iter()
            .map(|(name, number)| ((*name).to_owned(), *number))
            .collect()
    };
    Left {
        resources: owned(resources),
        finalizers: owned(finalizers),
        faults: Vec::new(),
    }
}

#[test]
fn the_conditions_of_a_namespace_name_what_remains_and_keep_their_times() {
    let now = |text: &str| text.parse().unwrap();
    let held = left(&[("pods.", 2), ("deployments.apps", 1)], &[("example.com/x", 1)]);
    let first = held.conditions(&[], now("2026-01-01T00:00:00Z"));
    let texts: Vec<_> = first
        .iter()
        .map(|one| {
            (
                one["type"].as_str().unwrap(),
                one["status"].as_str().unwrap(),
                one["message"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        texts[3..],
        [
            (
                "NamespaceContentRemaining",
                "True",
                "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
            ),
            (
                "NamespaceFinalizersRemaining",
                "True",
                "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances",
            ),
        ]
    );
    let old: Vec<NamespaceCondition> = serde_json::from_value(json!(first)).unwrap();
    let later = left(&[("pods.", 2)], &[]).conditions(&old, now("2026-01-01T00:00:09Z"));
    assert_eq!(later[3]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    assert_eq!(later[4]["status"], "False");
    assert_eq!(later[4]["lastTransitionTime"], "2026-01-01T00:00:09Z");
}

#[test]
fn a_namespace_that_holds_nothing_any_more_says_so_and_keeps_conditions_of_others() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let foreign = json!({"type": "Foreign", "status": "True", "reason": "Mine", "message": ""});
    let old: Vec<NamespaceCondition> = vec![serde_json::from_value(foreign).unwrap()];
    let all = Left::default().conditions(&old, now);
    let reasons: Vec<_> = all.iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(
        reasons,
        [
            "Mine",
            "ResourcesDiscovered",
            "ParsedGroupVersions",
            "ContentDeleted",
            "ContentRemoved",
            "ContentHasNoFinalizers",
        ]
    );
    assert!(all[1..].iter().all(|one| one["status"] == "False"));
}

#[test]
fn what_nothing_holds_and_is_there_all_the_same_is_a_failure() {
    let pods = ApiResource::erase::<Pod>(&());
    let object = |finalizers: &[&str]| ObjectMeta {
        finalizers: Some(finalizers.iter().map(|name| (*name).to_owned()).collect()),
        ..ObjectMeta::default()
    };
    let mut left = Left::default();
    left.miss(&pods, &[object(&["example.com/x"])], "web");
    assert!(left.faults.is_empty());
    left.miss(&pods, &[object(&[])], "web");
    let condition = &left.conditions(&[], "2026-01-01T00:00:00Z".parse().unwrap())[2];
    assert_eq!(condition["reason"], "ContentDeletionFailed");
    assert_eq!(
        condition["message"],
        "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: web for gvr: \
         /v1, Resource=pods"
    );
}
