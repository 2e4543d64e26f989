//! A model of the API server: objects with resourceVersions, preconditions, watches, admission, outages.
//!
//! What is left out: authentication, schemas, server-side apply, and the time that a write takes inside of
//! the server. Endpoints are no objects here: a pod's address counts as ready while the pod is Ready and not
//! being deleted, which is what the endpoint controllers make of it. The webhook's rule for slices is
//! therefore not exercised.

pub mod admission;
pub mod build;
pub mod objects;

use evenkeel_api::watch::Key;
use evenkeel_failover_rules::world::Kind;
use objects::Object;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    Kubelet,
    Agent,
    /// The stock controllers.
    Stock,
    Ours,
}

/// One change, as watches deliver it.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub at: u64,
    pub writer: Writer,
    pub kind: Kind,
    pub key: Key,
    /// As it was.
    pub before: Option<Rc<Object>>,
    /// As it is; `None`: gone.
    pub object: Option<Rc<Object>>,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another version, or another object by that name.
    Conflict,
    /// There is none.
    NotFound,
}

#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<(Kind, Key), Rc<Object>>,
    version: u64,
    made: u64,
    log: Vec<Change>,
    /// How many entries of `log` were handed to the watches.
    told: usize,
}

impl Store {
    /// An object as it is.
    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Rc<Object>> {
        self.objects.get(&(kind, key.clone()))
    }

    /// All objects of a kind.
    pub fn list(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Rc<Object>)> {
        let from = (kind, (String::new(), String::new()));
        self.objects
            .range(from..)
            .take_while(move |((of, _), _)| *of == kind)
            .map(|((_, key), object)| (key, object))
    }

    /// Names and versions of a kind.
    pub fn versions(&self, kind: Kind) -> BTreeMap<Key, String> {
        let version = |object: &Object| object.meta().resource_version.clone().unwrap_or_default();
        self.list(kind)
            .map(|(key, object)| (key.clone(), version(object)))
            .collect()
    }

    /// Makes an object; a name that is taken is a conflict.
    pub fn create(&mut self, now: u64, writer: Writer, mut object: Object) -> Result<(), Refused> {
        let key = object.key();
        if self.objects.contains_key(&(object.kind(), key)) {
            return Err(Refused::Conflict);
        }
        self.made += 1;
        let uid = format!("made-{}", self.made);
        let meta = object.meta_mut();
        meta.uid.get_or_insert(uid);
        meta.creation_timestamp.get_or_insert_with(|| objects::time(now));
        meta.generation = Some(1);
        self.put(now, writer, None, object);
        Ok(())
    }

    /// Changes an object. `version`: the resourceVersion that it must still have. A change that changes
    /// nothing is no write.
    pub fn change(
        &mut self,
        now: u64,
        writer: Writer,
        kind: Kind,
        key: &Key,
        version: Option<&str>,
        change: impl FnOnce(&mut Object),
    ) -> Result<Rc<Object>, Refused> {
        let before = self.get(kind, key).cloned().ok_or(Refused::NotFound)?;
        if version.is_some_and(|version| before.meta().resource_version.as_deref() != Some(version)) {
            return Err(Refused::Conflict);
        }
        let mut object = (*before).clone();
        change(&mut object);
        if object == *before {
            return Ok(before);
        }
        Ok(self.put(now, writer, Some(before), object))
    }

    /// Takes an object away.
    pub fn remove(&mut self, now: u64, writer: Writer, kind: Kind, key: &Key) {
        if let Some(before) = self.objects.remove(&(kind, key.clone())) {
            self.version += 1;
            self.log.push(Change {
                version: self.version,
                at: now,
                writer,
                kind,
                key: key.clone(),
                before: Some(before),
                object: None,
            });
        }
    }

    fn put(
        &mut self,
        now: u64,
        writer: Writer,
        before: Option<Rc<Object>>,
        mut object: Object,
    ) -> Rc<Object> {
        self.version += 1;
        object.meta_mut().resource_version = Some(self.version.to_string());
        let (kind, key) = (object.kind(), object.key());
        let object = Rc::new(object);
        self.objects.insert((kind, key.clone()), Rc::clone(&object));
        self.log.push(Change {
            version: self.version,
            at: now,
            writer,
            kind,
            key,
            before,
            object: Some(Rc::clone(&object)),
        });
        object
    }

    /// An object as it was at an instant.
    pub fn as_of(&self, kind: Kind, key: &Key, at: u64) -> Option<Rc<Object>> {
        let later = self.log.partition_point(|change| change.at <= at);
        let mut changes = self.log.get(later..).unwrap_or_default().iter();
        match changes.find(|change| change.kind == kind && change.key == *key) {
            Some(change) => change.before.clone(),
            None => self.get(kind, key).cloned(),
        }
    }

    /// Forgets changes that were delivered, all but those of the last while: nobody will ask for them.
    pub fn forget(&mut self, before: u64) {
        let old = self
            .log
            .partition_point(|change| change.at < before)
            .min(self.told);
        self.log.drain(..old);
        self.told -= old;
    }

    /// All objects of these kinds.
    pub fn backup(&self, kinds: &[Kind]) -> Vec<Rc<Object>> {
        let all = kinds.iter().flat_map(|kind| self.list(*kind));
        all.map(|(_, object)| Rc::clone(object)).collect()
    }

    /// Objects of these kinds are again as they were, and those that were not there are gone. Versions go on,
    /// as after a restore that has them go on.
    pub fn restore(&mut self, now: u64, kinds: &[Kind], backup: &[Rc<Object>]) {
        let present: Vec<_> = kinds
            .iter()
            .flat_map(|kind| self.list(*kind).map(|(key, _)| (*kind, key.clone())))
            .collect();
        let is_there = |kind, key: &Key| {
            backup
                .iter()
                .any(|object| (object.kind(), &object.key()) == (kind, key))
        };
        for (kind, key) in present.iter().filter(|(kind, key)| !is_there(*kind, key)) {
            self.remove(now, Writer::Stock, *kind, key);
        }
        for object in backup {
            let before = self.get(object.kind(), &object.key()).cloned();
            self.put(now, Writer::Stock, before, Object::clone(object));
        }
    }

    /// Changes that no watch has got yet.
    pub fn news(&mut self) -> Vec<Change> {
        let news = self.log.get(self.told..).unwrap_or_default().to_vec();
        self.told = self.log.len();
        news
    }

    /// Changes of a kind after a version.
    pub fn since(&self, kind: Kind, version: u64) -> Vec<Change> {
        let from = self.log.partition_point(|change| change.version <= version);
        let later = self.log.get(from..).unwrap_or_default().iter();
        later.filter(|change| change.kind == kind).cloned().collect()
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.version
    }
}
