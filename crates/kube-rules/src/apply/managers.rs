//! Who owns which fields: `metadata.managedFields`, decoded.

use super::set::FieldSet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Entries of updates that an object keeps; older ones are merged into one of [`ANCIENT`].
const MOST_UPDATES: usize = 10;
pub(super) const ANCIENT: &str = "ancient-changes";

/// How a manager came to own fields. Sorted as upstream sorts entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// What makes an entry one of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// The `apiVersion` of updates. What is applied has one entry, whatever its version.
    pub(super) version: String,
    pub(super) subresource: String,
}

/// What one entry owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) version: String,
    /// RFC 3339, empty where the entry has none.
    pub(super) time: String,
}

pub(super) type Managers = BTreeMap<Id, Owned>;

/// Reads `metadata.managedFields`.
pub(super) fn decode(entries: &Value) -> Result<Managers, String> {
    let mut managers = Managers::new();
    for (at, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let version = text("apiVersion");
        if version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match entry["fieldsType"].as_str().unwrap_or_default() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {other:?} in managed fields entry {at}"
                ));
            }
        }
        let fields = match &entry["fieldsV1"] {
            Value::Null => FieldSet::default(),
            fields => FieldSet::parse(fields)?,
        };
        let id = Id {
            manager: text("manager"),
            operation,
            version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => version.clone(),
            },
            subresource: text("subresource"),
        };
        let time = text("time");
        managers.insert(
            id,
            Owned {
                fields,
                version,
                time,
            },
        );
    }
    Ok(managers)
}

/// Writes `metadata.managedFields`; without managers there is none.
pub(super) fn encode(object: &mut Value, managers: &Managers) {
    let mut sorted: Vec<(&Id, &Owned)> = managers.iter().collect();
    sorted.sort_by(|(id, owned), (other, others)| {
        let key = |id: &Id| (id.manager.clone(), id.version.clone(), id.subresource.clone());
        (id.operation, &owned.time, key(id)).cmp(&(other.operation, &others.time, key(other)))
    });
    let entries = sorted.into_iter().map(|(id, owned)| {
        let mut entry = Map::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(name.to_owned(), json!(value));
            }
        };
        put("manager", &id.manager);
        put(
            "operation",
            match id.operation {
                Operation::Apply => "Apply",
                Operation::Update => "Update",
            },
        );
        put("apiVersion", &owned.version);
        put("time", &owned.time);
        put("fieldsType", "FieldsV1");
        put("subresource", &id.subresource);
        entry.insert("fieldsV1".to_owned(), owned.fields.to_json());
        Value::Object(entry)
    });
    let entries: Vec<Value> = entries.collect();
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Merges the oldest updates of each version where there are more than an object keeps.
pub(super) fn cap(managers: &mut Managers) {
    let updates = managers
        .iter()
        .filter(|(id, _)| id.operation == Operation::Update);
    let mut oldest: Vec<(String, Id)> = updates
        .map(|(id, owned)| (owned.time.clone(), id.clone()))
        .collect();
    oldest.sort();
    let mut left = oldest.len();
    let mut first: BTreeMap<String, Id> = BTreeMap::new();
    for (_, id) in oldest {
        if left <= MOST_UPDATES {
            return;
        }
        let Some(owned) = managers.get(&id).cloned() else {
            continue;
        };
        let Some(before) = first.get(&owned.version) else {
            first.insert(owned.version, id);
            continue;
        };
        let bucket = Id {
            manager: ANCIENT.to_owned(),
            operation: Operation::Update,
            version: owned.version.clone(),
            subresource: String::new(),
        };
        if !managers.contains_key(&bucket)
            && let Some(moved) = managers.remove(before)
        {
            managers.insert(bucket.clone(), moved);
        }
        managers.remove(&id);
        if let Some(all) = managers.get_mut(&bucket) {
            all.fields = all.fields.union(&owned.fields);
            all.time = owned.time;
        }
        left -= 1;
    }
}
