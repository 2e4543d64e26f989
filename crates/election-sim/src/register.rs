//! The lock object as an API server stores it.

use evenkeel_election::core::{Observation, Record};

/// One lock object: linearizable, with a version that only grows and a UID per life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Register {
    object: Option<Observation>,
    /// The last version and the last UID that were assigned.
    version: u64,
    uid: u64,
    /// Whether [`Observation::raw`] is filled, which costs time.
    with_text: bool,
}

/// The write was not made (409).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refused;

/// There is no such object (404).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Missing;

impl Register {
    /// An empty register, whose observations have the text that client-go compares.
    pub(crate) fn with_text() -> Self {
        Self {
            with_text: true,
            ..Self::default()
        }
    }

    /// The object as it is now.
    pub(crate) fn get(&self) -> Result<Observation, Missing> {
        self.object.clone().ok_or(Missing)
    }

    /// Creates the object.
    pub(crate) fn create(&mut self, record: Record) -> Result<Observation, Refused> {
        if self.object.is_some() {
            return Err(Refused);
        }
        self.uid += 1;
        Ok(self.put(record))
    }

    /// Replaces the record if its version is still `version`.
    pub(crate) fn update(&mut self, record: Record, version: &str) -> Result<Observation, Refused> {
        match &self.object {
            Some(object) if object.version == version => Ok(self.put(record)),
            _ => Err(Refused),
        }
    }

    /// Replaces the record whatever its version. No API server does this; it shows what the check of versions
    /// is for.
    pub(crate) fn overwrite(&mut self, record: Record) -> Result<Observation, Refused> {
        match self.object {
            Some(_) => Ok(self.put(record)),
            None => Err(Refused),
        }
    }

    /// Deletes the object, as an administrator would.
    pub(crate) fn delete(&mut self) -> Result<(), Missing> {
        self.version += 1;
        self.object.take().map(drop).ok_or(Missing)
    }

    fn put(&mut self, record: Record) -> Observation {
        self.version += 1;
        let observation = Observation {
            raw: if self.with_text {
                record.raw()
            } else {
                String::new()
            },
            record,
            uid: self.uid.to_string(),
            version: self.version.to_string(),
        };
        self.object = Some(observation.clone());
        observation
    }

    /// The object, for bringing it into canonical form.
    pub(crate) fn object_mut(&mut self) -> Option<&mut Observation> {
        self.object.as_mut()
    }

    /// Sets the counters of versions and UIDs.
    pub(crate) fn count_from(&mut self, version: u64, uid: u64) {
        self.version = version;
        self.uid = uid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_over_an_old_version_is_refused() {
        let mut register = Register::with_text();
        assert_eq!(register.get(), Err(Missing));
        assert_eq!(register.update(Record::default(), "0"), Err(Refused));
        let first = register.create(Record::default()).unwrap();
        assert_eq!(register.create(Record::default()), Err(Refused));
        let second = register.update(Record::default(), &first.version).unwrap();
        assert_eq!((&second.uid, &second.raw), (&first.uid, &first.raw));
        assert_eq!(register.update(Record::default(), &first.version), Err(Refused));
        assert_eq!(register.get(), Ok(second.clone()));
        register.delete().unwrap();
        assert_eq!(register.delete(), Err(Missing));
        let third = register.create(Record::default()).unwrap();
        assert_ne!(third.uid, second.uid);
        assert_ne!(third.version, second.version);
    }
}
