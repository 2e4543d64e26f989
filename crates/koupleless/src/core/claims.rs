//! Which pod has which module on a base: a base holds a module of one name and version once.

use crate::arklet::ModuleId;
use std::collections::HashMap;
use std::sync::Arc;

/// The claims on one base.
#[derive(Debug, Default)]
pub struct Claims {
    owners: HashMap<ModuleId, Owner>,
}

/// Who has a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `metadata.uid` of the pod.
    pub uid: Arc<str>,
    /// `NAMESPACE/NAME` of the pod, for people.
    pub pod: String,
}

impl Claims {
    /// Claims modules for a pod, all of them or none, beside what it has; tells whether it had not all of them. `Err`: which
    /// of them somebody else has, and who.
    pub fn claim(&mut self, owner: &Owner, modules: &[ModuleId]) -> Result<bool, (ModuleId, Owner)> {
        let taken = |id: &&ModuleId| self.owners.get(*id).is_some_and(|other| other.uid != owner.uid);
        if let Some(id) = modules.iter().find(taken) {
            return Err((id.clone(), self.owners[id].clone()));
        }
        let before = self.owners.len();
        self.owners
            .extend(modules.iter().map(|id| (id.clone(), owner.clone())));
        Ok(self.owners.len() > before)
    }

    /// Gives a module back, if this pod has it.
    pub fn release(&mut self, uid: &str, module: &ModuleId) {
        if self.owners.get(module).is_some_and(|owner| *owner.uid == *uid) {
            self.owners.remove(module);
        }
    }

    /// What a pod has.
    pub fn of(&self, uid: &str) -> Vec<ModuleId> {
        let owned = self.owners.iter().filter(|(_, owner)| *owner.uid == *uid);
        owned.map(|(id, _)| id.clone()).collect()
    }

    /// All claims, in order.
    pub fn all(&self) -> Vec<(&ModuleId, &Owner)> {
        let mut all: Vec<_> = self.owners.iter().collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Who has a module.
    pub fn owner(&self, module: &ModuleId) -> Option<&Owner> {
        self.owners.get(module)
    }

    /// How many are claimed.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, version: &str) -> ModuleId {
        ModuleId::new(name, version)
    }

    fn owner(uid: &str) -> Owner {
        Owner {
            uid: uid.into(),
            pod: format!("default/{uid}"),
        }
    }

    #[test]
    fn one_pod_has_a_module_and_the_next_is_told_who() {
        let mut claims = Claims::default();
        claims
            .claim(&owner("a"), &[key("m", "1"), key("n", "1")])
            .unwrap();
        let refused = claims.claim(&owner("b"), &[key("o", "1"), key("n", "1")]);
        assert_eq!(refused, Err((key("n", "1"), owner("a"))));
        assert_eq!(claims.owner(&key("o", "1")), None, "all or none");
        claims.claim(&owner("b"), &[key("m", "2")]).unwrap();
    }

    #[test]
    fn a_claim_may_be_repeated_and_given_back_by_its_owner_alone() {
        let mut claims = Claims::default();
        claims.claim(&owner("a"), &[key("m", "1")]).unwrap();
        claims
            .claim(&owner("a"), &[key("m", "1"), key("m", "2")])
            .unwrap();
        claims.release("b", &key("m", "1"));
        assert_eq!(claims.of("a").len(), 2);
        claims.release("a", &key("m", "1"));
        claims.claim(&owner("b"), &[key("m", "1")]).unwrap();
        assert_eq!((claims.len(), claims.is_empty()), (2, false));
        let all: Vec<_> = claims
            .all()
            .into_iter()
            .map(|(id, owner)| (id.to_string(), &*owner.uid))
            .collect();
        assert_eq!(all, [("m:1".to_owned(), "b"), ("m:2".to_owned(), "a")]);
    }
}
