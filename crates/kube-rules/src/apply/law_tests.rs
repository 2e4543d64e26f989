//! The laws of ownership, stated without field sets: a table of keys, their values and owners.

use super::tests::Object;
use proptest::collection::btree_map;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Values of keys: those of `data`, and finalizers, which are there or not.
type Content = BTreeMap<&'static str, u8>;

const DATA: [&str; 3] = ["a", "b", "c"];
const FINALIZERS: [&str; 2] = ["x.io/a", "x.io/b"];

/// Somebody writes.
#[derive(Clone, Debug)]
enum Op {
    Apply(u8, Content, bool),
    Update(u8, Content),
}

#[derive(Default)]
struct Table {
    content: Content,
    owners: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Table {
    /// Whether the configuration is taken.
    fn apply(&mut self, manager: &str, config: &Content, force: bool) -> bool {
        let others = |key: &str| {
            let owners = self.owners.get(key);
            owners.is_some_and(|owners| owners.iter().any(|owner| owner != manager))
        };
        let conflicts = config
            .iter()
            .any(|(key, value)| self.content.get(key).is_some_and(|present| present != value) && others(key));
        if conflicts && !force {
            return false;
        }
        let dropped: Vec<&str> = self
            .owners
            .keys()
            .filter(|key| !config.contains_key(*key))
            .copied()
            .collect();
        for key in dropped {
            let owners = self.owners.entry(key).or_default();
            if owners.remove(manager) && owners.is_empty() {
                self.content.remove(key);
                self.owners.remove(key);
            }
        }
        for (key, value) in config {
            let owners = self.owners.entry(key).or_default();
            if self
                .content
                .insert(key, *value)
                .is_some_and(|before| before != *value)
            {
                owners.clear();
            }
            owners.insert(manager.to_owned());
        }
        true
    }

    fn update(&mut self, manager: &str, content: &Content) {
        self.owners.retain(|key, _| content.contains_key(key));
        for (key, value) in content {
            if self.content.get(key) != Some(value) {
                self.owners.insert(key, BTreeSet::from([manager.to_owned()]));
            }
        }
        self.content.clone_from(content);
    }
}

fn config(content: &Content) -> Value {
    let data: BTreeMap<&str, String> = DATA
        .iter()
        .filter_map(|key| Some((*key, content.get(key)?.to_string())))
        .collect();
    let finalizers: Vec<&str> = FINALIZERS
        .into_iter()
        .filter(|key| content.contains_key(key))
        .collect();
    let mut config = json!({});
    if !data.is_empty() {
        config["data"] = json!(data);
    }
    if !finalizers.is_empty() {
        config["metadata"] = json!({"finalizers": finalizers});
    }
    config
}

/// The owners of each key, as the object notes them.
fn owners(object: &Object) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut owners: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, fields) in object.owners() {
        let steps = DATA
            .map(|key| (key, format!("/f:data/f:{key}")))
            .into_iter()
            .chain(FINALIZERS.map(|key| {
                (
                    key,
                    format!("/f:metadata/f:finalizers/v:\"{}\"", key.replace('/', "~1")),
                )
            }));
        for (key, pointer) in steps {
            if fields.pointer(&pointer).is_some() {
                owners.entry(key).or_default().insert(name.clone());
            }
        }
    }
    owners
}

fn content(object: &Object) -> Content {
    let data = object.part("/data");
    let finalizers = object.part("/metadata/finalizers");
    let of_data = DATA
        .iter()
        .filter_map(|key| Some((*key, data[key].as_str()?.parse().unwrap())));
    let finalizers = FINALIZERS
        .iter()
        .filter(|key| finalizers.as_array().is_some_and(|all| all.contains(&json!(key))));
    of_data.chain(finalizers.map(|key| (*key, 1))).collect()
}

fn contents() -> impl Strategy<Value = Content> {
    let data = btree_map(prop::sample::select(DATA.to_vec()), 1_u8..3, 0..4);
    let finalizers = btree_map(prop::sample::select(FINALIZERS.to_vec()), Just(1_u8), 0..3);
    (data, finalizers).prop_map(|(data, finalizers)| data.into_iter().chain(finalizers).collect())
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op =
        (0_u8..3, contents(), any::<bool>(), any::<bool>()).prop_map(|(manager, content, applies, force)| {
            if applies {
                Op::Apply(manager, content, force)
            } else {
                Op::Update(manager, content)
            }
        });
    prop::collection::vec(op, 1..12)
}

proptest! {
    /// Values, owners and conflicts are those of the table, whoever writes in whatever order; the same apply
    /// a second time changes nothing, and one that is refused changes nothing either.
    #[test]
    fn owners_are_those_of_the_table(ops in ops()) {
        // Map and list are never empty, and somebody owns something in any case: an empty list that somebody
        // owns is gone, and whoever applies an item to it then has a conflict about the list.
        let base = |content: &Content| {
            let mut config = config(content);
            config["data"]["base"] = json!("1");
            let finalizers = config["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            config["metadata"]["finalizers"] = finalizers.into_iter().chain([json!("x.io/base")]).collect();
            config
        };
        let mut object = Object::new("", "v1", "ConfigMap");
        let mut table = Table::default();
        object.update("base", base(&Content::new()));
        for op in ops {
            match op {
                Op::Apply(manager, wanted, force) => {
                    let before = object.value.clone();
                    let manager = format!("m{manager}");
                    let taken = object.apply_as(&manager, config(&wanted), force).is_ok();
                    prop_assert_eq!(taken, table.apply(&format!("{manager}!"), &wanted, force));
                    let after = object.value.clone();
                    if taken {
                        object.apply(&manager, config(&wanted)).unwrap();
                        prop_assert_eq!(&object.value, &after);
                    } else {
                        prop_assert_eq!(&before, &after);
                    }
                }
                Op::Update(manager, wanted) => {
                    object.update(&format!("m{manager}"), base(&wanted));
                    table.update(&format!("m{manager}"), &wanted);
                }
            }
            prop_assert_eq!(content(&object), table.content.clone());
            prop_assert_eq!(owners(&object), table.owners.clone());
        }
    }
}
