//! The objects: in memory, one sequence of resourceVersions, with the history that watches need.
//!
//! Writers never wait for watchers: a watcher holds a position and reads what is behind it; one that falls
//! out of the history is told so. Values are stored and handed out as they are, so a reader clones no object.

mod event;
#[cfg(test)]
mod tests;

pub(crate) use event::{Change, Event};

use crate::request::Reader;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// The name of a table: the group and the plural name of the resource that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    /// Group under which the objects are stored.
    pub(crate) group: String,
    pub(crate) resource: String,
}

impl Table {
    /// The table of a group's resource.
    pub(crate) fn new(group: &str, resource: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// A create found an object.
    #[error("an object of that name exists")]
    Exists,
    /// An update or delete found none.
    #[error("no object of that name exists")]
    Missing,
    /// Somebody else wrote since the caller read. Read again and retry.
    #[error("the object was changed in the meantime")]
    Changed,
}

/// Why a past state is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HistoryError {
    /// The history does not reach back so far.
    #[error("too old resource version")]
    TooOld {
        /// The oldest resourceVersion that would have worked.
        oldest: u64,
    },
    /// No such resourceVersion has been given out yet.
    #[error("too large resource version")]
    TooLarge {
        /// The newest resourceVersion.
        current: u64,
    },
}

/// The objects of a list, and the state that they are of.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Objects with their keys, in key order.
    pub(crate) items: Vec<(String, Arc<Value>)>,
    /// resourceVersion of the state that was listed.
    pub(crate) resource_version: u64,
}

/// The store. Shared by reference.
pub(crate) struct Store {
    state: RwLock<State>,
    history: usize,
}

struct State {
    resource_version: u64,
    /// Watches and past states before this are not known.
    compacted: u64,
    tables: HashMap<Table, Rows>,
}

struct Rows {
    objects: BTreeMap<String, Arc<Value>>,
    events: VecDeque<Arc<Event>>,
    /// resourceVersion of the newest event that has left `events`.
    forgotten: u64,
    generation: u64,
    changed: watch::Sender<u64>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            forgotten: 0,
            generation: 0,
            changed: watch::Sender::new(0),
        }
    }
}

/// Key of an object: `namespace/name`, or the name alone in cluster scope. Keys sort as etcd's do.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// An object's resourceVersion; 0 without one.
pub(crate) fn resource_version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn set_resource_version(object: &mut Value, resource_version: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), json!(resource_version.to_string()));
    }
}

impl Store {
    /// An empty store that keeps `history` events per resource (at least one).
    pub(crate) fn new(history: usize) -> Self {
        Self {
            state: RwLock::new(State {
                resource_version: 1,
                compacted: 0,
                tables: HashMap::new(),
            }),
            history: history.max(1),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // A writer that panicked cannot have left half a change behind: each change is one insertion and one
        // event.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resourceVersion of the newest write.
    pub(crate) fn resource_version(&self) -> u64 {
        self.read().resource_version
    }

    /// Forgets all history: older resourceVersions are too old from now on. A reader of [`Store::events`]
    /// that has read everything may read on.
    pub(crate) fn compact(&self) {
        let mut state = self.write();
        state.compacted = state.resource_version;
        for rows in state.tables.values_mut() {
            if let Some(last) = rows.events.back() {
                rows.forgotten = last.resource_version;
            }
            rows.events.clear();
        }
    }

    /// Whether the history of a table can be told from a resourceVersion on: asked once, before the first
    /// [`Store::events`].
    pub(crate) fn reaches_back(&self, table: &Table, after: u64) -> Result<(), HistoryError> {
        self.read().check(table, after)
    }

    /// An object by its key.
    pub(crate) fn get(&self, table: &Table, key: &str) -> Option<Arc<Value>> {
        self.read().tables.get(table)?.objects.get(key).cloned()
    }

    /// Stores a new object and sets its resourceVersion.
    pub(crate) fn create(
        &self,
        table: &Table,
        key: &str,
        mut object: Value,
    ) -> Result<Arc<Value>, StoreError> {
        let mut state = self.write();
        if state.rows(table).objects.contains_key(key) {
            return Err(StoreError::Exists);
        }
        let resource_version = state.next();
        set_resource_version(&mut object, resource_version);
        let object = Arc::new(object);
        let rows = state.rows(table);
        rows.objects.insert(key.to_owned(), object.clone());
        let event = Event::new(resource_version, key, Change::Added, object.clone(), None);
        rows.push(event, self.history);
        Ok(object)
    }

    /// Replaces an object that still has the resourceVersion `expected`. A replacement that changes nothing
    /// is not a write: the stored object is returned as it was.
    pub(crate) fn update(
        &self,
        table: &Table,
        key: &str,
        expected: u64,
        mut object: Value,
    ) -> Result<Arc<Value>, StoreError> {
        let mut state = self.write();
        let old = state.expect(table, key, expected)?;
        set_resource_version(&mut object, expected);
        if object == *old {
            return Ok(old);
        }
        let resource_version = state.next();
        set_resource_version(&mut object, resource_version);
        let object = Arc::new(object);
        let rows = state.rows(table);
        rows.objects.insert(key.to_owned(), object.clone());
        let event = Event::new(resource_version, key, Change::Modified, object.clone(), Some(old));
        rows.push(event, self.history);
        Ok(object)
    }

    /// Removes an object that still has the resourceVersion `expected`. Returns its last state with the
    /// resourceVersion of the deletion, which is what watchers see.
    pub(crate) fn delete(&self, table: &Table, key: &str, expected: u64) -> Result<Arc<Value>, StoreError> {
        let mut state = self.write();
        let old = state.expect(table, key, expected)?;
        let resource_version = state.next();
        let mut last = (*old).clone();
        set_resource_version(&mut last, resource_version);
        let last = Arc::new(last);
        let rows = state.rows(table);
        rows.objects.remove(key);
        let event = Event::new(resource_version, key, Change::Deleted, last.clone(), Some(old));
        rows.push(event, self.history);
        Ok(last)
    }

    /// The objects of a namespace, or all, as they are now.
    pub(crate) fn list(&self, table: &Table, namespace: Option<&str>) -> Listed {
        let state = self.read();
        Listed {
            items: state
                .tables
                .get(table)
                .map(|rows| rows.range(namespace))
                .unwrap_or_default(),
            resource_version: state.resource_version,
        }
    }

    /// The objects as they were at a resourceVersion.
    pub(crate) fn list_at(
        &self,
        table: &Table,
        namespace: Option<&str>,
        at: u64,
    ) -> Result<Listed, HistoryError> {
        let state = self.read();
        state.check(table, at)?;
        let mut objects: BTreeMap<String, Arc<Value>> = BTreeMap::new();
        if let Some(rows) = state.tables.get(table) {
            objects = rows.range(namespace).into_iter().collect();
            let in_namespace = |key: &str| match namespace {
                Some(namespace) => key
                    .strip_prefix(namespace)
                    .is_some_and(|rest| rest.starts_with('/')),
                None => true,
            };
            for event in rows
                .events
                .iter()
                .rev()
                .take_while(|event| event.resource_version > at)
            {
                if !in_namespace(&event.key) {
                    continue;
                }
                match &event.old {
                    Some(old) => objects.insert(event.key.clone(), old.clone()),
                    None => objects.remove(&event.key),
                };
            }
        }
        Ok(Listed {
            items: objects.into_iter().collect(),
            resource_version: at,
        })
    }

    /// Events of a table after a resourceVersion, at most `limit`, and the resourceVersion up to which they
    /// are complete. For whoever begins in the past, [`Store::reaches_back`] comes first.
    pub(crate) fn events(
        &self,
        table: &Table,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), HistoryError> {
        let state = self.read();
        state.check_table(table, after)?;
        let Some(rows) = state.tables.get(table) else {
            return Ok((Vec::new(), state.resource_version));
        };
        let start = rows
            .events
            .partition_point(|event| event.resource_version <= after);
        let events: Vec<Arc<Event>> = rows.events.iter().skip(start).take(limit).cloned().collect();
        let complete = match events.last() {
            Some(last) if events.len() == limit => last.resource_version,
            _ => state.resource_version,
        };
        Ok((events, complete))
    }

    /// Fires after each write to a table.
    pub(crate) fn subscribe(&self, table: &Table) -> watch::Receiver<u64> {
        self.write().rows(table).changed.subscribe()
    }
}

impl State {
    fn rows(&mut self, table: &Table) -> &mut Rows {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.clone(), Rows::default());
        }
        self.tables
            .get_mut(table)
            .expect("inserted above if it was missing")
    }

    fn next(&mut self) -> u64 {
        self.resource_version += 1;
        self.resource_version
    }

    fn expect(&self, table: &Table, key: &str, expected: u64) -> Result<Arc<Value>, StoreError> {
        let old = self
            .tables
            .get(table)
            .and_then(|rows| rows.objects.get(key))
            .ok_or(StoreError::Missing)?;
        if resource_version(old) == expected {
            Ok(old.clone())
        } else {
            Err(StoreError::Changed)
        }
    }

    fn check(&self, table: &Table, at: u64) -> Result<(), HistoryError> {
        self.check_table(table, at)?;
        if at < self.compacted {
            return Err(HistoryError::TooOld {
                oldest: self.compacted,
            });
        }
        Ok(())
    }

    /// Whether no event of the table after a resourceVersion has been forgotten.
    fn check_table(&self, table: &Table, at: u64) -> Result<(), HistoryError> {
        if at > self.resource_version {
            return Err(HistoryError::TooLarge {
                current: self.resource_version,
            });
        }
        let forgotten = self.tables.get(table).map_or(0, |rows| rows.forgotten);
        if at < forgotten {
            return Err(HistoryError::TooOld {
                oldest: forgotten.max(self.compacted),
            });
        }
        Ok(())
    }
}

impl Rows {
    fn push(&mut self, event: Event, history: usize) {
        let resource_version = event.resource_version;
        self.events.push_back(Arc::new(event));
        while self.events.len() > history {
            if let Some(event) = self.events.pop_front() {
                self.forgotten = event.resource_version;
            }
        }
        self.generation += 1;
        self.changed.send_replace(resource_version);
    }

    fn range(&self, namespace: Option<&str>) -> Vec<(String, Arc<Value>)> {
        let clone = |(key, object): (&String, &Arc<Value>)| (key.clone(), object.clone());
        match namespace {
            None => self.objects.iter().map(clone).collect(),
            Some(namespace) => {
                // '0' follows '/': the range holds every key that begins with `namespace/`.
                let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
                self.objects
                    .range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
                    .map(clone)
                    .collect()
            }
        }
    }
}

impl Reader for Store {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.get(&Table::new(group, resource), &key(namespace, name))
    }

    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.list(&Table::new(group, resource), namespace)
            .items
            .into_iter()
            .map(|(_, object)| object)
            .collect()
    }

    fn generation(&self, group: &str, resource: &str) -> u64 {
        self.read()
            .tables
            .get(&Table::new(group, resource))
            .map_or(0, |rows| rows.generation)
    }
}
