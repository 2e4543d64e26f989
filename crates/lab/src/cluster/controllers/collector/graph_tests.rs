//! What is collected, what is let go, and what stays.

use super::*;
use rstest::rstest;

fn key(kind: &str) -> Key {
    (String::new(), kind.to_owned())
}

fn owner(kind: &str, name: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        block_owner_deletion: Some(blocks),
        ..OwnerReference::default()
    }
}

fn node(name: &str, owners: &[OwnerReference]) -> Node {
    Node {
        key: key("ConfigMap"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        owners: owners.to_vec(),
        ..Node::default()
    }
}

fn leaving(mut node: Node, finalizers: &[&str]) -> Node {
    node.leaving = true;
    node.finalizers = finalizers.iter().map(|name| (*name).to_owned()).collect();
    node
}

/// What is done about these objects, as text.
fn done(nodes: &[Node]) -> Vec<String> {
    let graph = Graph {
        nodes: nodes
            .iter()
            .map(|node| (node.uid.clone(), node.clone()))
            .collect(),
        listed: ["ConfigMap", "Node"].map(key).into(),
        namespaced: [key("ConfigMap")].into(),
    };
    steps(&graph)
        .iter()
        .map(|step| match step {
            Step::Delete { node, policy, .. } => format!("delete {} {policy}", node.name),
            Step::Patch { node, change } => {
                let metadata = &change["metadata"];
                let names = |member: &str| {
                    let all = metadata[member].as_array()?;
                    let name = |one: &Value| one["name"].as_str().or(one.as_str()).map(str::to_owned);
                    Some(format!(
                        "{member}={}",
                        all.iter().filter_map(name).collect::<Vec<_>>().join(",")
                    ))
                };
                let change = names("ownerReferences").or_else(|| names("finalizers")).unwrap();
                format!("patch {} {change}", node.name)
            }
        })
        .collect()
}

#[rstest]
#[case::owner_is_there(vec![node("a", &[]), node("b", &[owner("ConfigMap", "a", false)])], &[])]
#[case::owner_is_gone(vec![node("b", &[owner("ConfigMap", "a", false)])], &["delete b Background"])]
#[case::one_of_two_is_gone(
    vec![node("a", &[]), node("b", &[owner("ConfigMap", "a", false), owner("ConfigMap", "x", false)])],
    &["patch b ownerReferences=a"],
)]
#[case::owner_of_a_kind_that_nobody_knows(vec![node("b", &[owner("Tomcat", "a", false)])], &[])]
#[case::owner_of_the_cluster_is_gone(vec![node("b", &[owner("Node", "n", false)])], &["delete b Background"])]
#[case::owner_of_another_name(
    vec![node("a", &[]), node("b", &[OwnerReference { name: "z".to_owned(), ..owner("ConfigMap", "a", false) }])],
    &["delete b Background"],
)]
#[case::owner_in_another_namespace(
    vec![Node { namespace: "other".to_owned(), ..node("a", &[]) }, node("b", &[owner("ConfigMap", "a", false)])],
    &["delete b Background"],
)]
#[case::dependent_of_the_cluster(
    vec![Node { namespace: String::new(), key: key("Node"), ..node("n", &[owner("ConfigMap", "a", false)]) }],
    &[],
)]
#[case::dependent_that_goes_already(vec![leaving(node("b", &[owner("ConfigMap", "a", false)]), &["x"])], &[])]
#[case::foreground(
    vec![leaving(node("a", &[]), &["foregroundDeletion"]), node("b", &[owner("ConfigMap", "a", true)])],
    &["delete b Background"],
)]
#[case::foreground_goes_down(
    vec![
        leaving(node("a", &[]), &["foregroundDeletion"]),
        node("b", &[owner("ConfigMap", "a", true)]),
        node("c", &[owner("ConfigMap", "b", true)]),
    ],
    &["delete b Foreground"],
)]
#[case::foreground_waits(
    vec![leaving(node("a", &[]), &["foregroundDeletion"]), leaving(node("b", &[owner("ConfigMap", "a", true)]), &["x"])],
    &[],
)]
#[case::foreground_waits_for_nobody_that_does_not_block(
    vec![leaving(node("a", &[]), &["foregroundDeletion"]), leaving(node("b", &[owner("ConfigMap", "a", false)]), &["x"])],
    &["patch a finalizers="],
)]
#[case::foreground_keeps_other_finalizers(
    vec![leaving(node("a", &[]), &["x", "foregroundDeletion"])],
    &["patch a finalizers=x"],
)]
#[case::a_second_owner_keeps_a_dependent(
    vec![
        leaving(node("a", &[]), &["foregroundDeletion"]),
        node("b", &[owner("ConfigMap", "a", true), owner("ConfigMap", "o", false)]),
        node("o", &[]),
    ],
    &["patch b ownerReferences=o"],
)]
#[case::a_circle(
    vec![
        leaving(node("a", &[owner("ConfigMap", "b", true)]), &["foregroundDeletion"]),
        node("b", &[owner("ConfigMap", "a", true)]),
    ],
    &["patch b ownerReferences=a"],
)]
#[case::orphans_are_let_go(
    vec![leaving(node("a", &[]), &["orphan"]), node("b", &[owner("ConfigMap", "a", true)])],
    &["patch b ownerReferences="],
)]
#[case::nobody_is_left_to_let_go(vec![leaving(node("a", &[]), &["orphan"])], &["patch a finalizers="])]
fn garbage_is_collected_by_its_owners(#[case] nodes: Vec<Node>, #[case] wanted: &[&str]) {
    assert_eq!(done(&nodes), wanted);
}
