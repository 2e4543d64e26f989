//! Which pod has which module on a base: a base holds a module of one name and version once.

use evenkeel_arklet::ModuleId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The claims on one base.
#[derive(Debug, Default)]
pub struct Claims {
    /// In the order in which they came; never none.
    owners: BTreeMap<ModuleId, Vec<Owner>>,
}

/// Who has a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `metadata.uid` of the pod.
    pub uid: Arc<str>,
    /// `NAMESPACE/NAME` of the pod, for people.
    pub pod: String,
}

/// Whether pods may have the same module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// A module is installed for the first of its pods, and removed for the last.
    #[default]
    Shared,
    /// One pod has it, others wait.
    Exclusive,
}

impl Claims {
    /// Claims modules for a pod, all of them or none, beside those that it has. Returns whether it lacked
    /// one. `Err`: the module that another pod has, and that pod, where modules are not shared.
    pub fn claim(
        &mut self,
        owner: &Owner,
        modules: &[ModuleId],
        sharing: Sharing,
    ) -> Result<bool, (ModuleId, Owner)> {
        if sharing == Sharing::Exclusive {
            // Who has it keeps it, also beside others from a time when it was shared.
            let has = |id: &ModuleId| self.owners(id).iter().any(|known| known.uid == owner.uid);
            let other = |id: &ModuleId| self.owners(id).first().filter(|_| !has(id));
            if let Some((id, other)) = modules.iter().find_map(|id| Some((id, other(id)?))) {
                return Err((id.clone(), other.clone()));
            }
        }
        let mut is_new = false;
        for id in modules {
            let owners = self.owners.entry(id.clone()).or_default();
            if owners.iter().all(|known| known.uid != owner.uid) {
                owners.push(owner.clone());
                is_new = true;
            }
        }
        Ok(is_new)
    }

    /// Gives a module back, if this pod has it.
    pub fn release(&mut self, uid: &str, module: &ModuleId) {
        if let Some(owners) = self.owners.get_mut(module) {
            owners.retain(|owner| *owner.uid != *uid);
            if owners.is_empty() {
                self.owners.remove(module);
            }
        }
    }

    /// What a pod has.
    pub fn of(&self, uid: &str) -> Vec<ModuleId> {
        let has = |owners: &[Owner]| owners.iter().any(|owner| *owner.uid == *uid);
        let owned = self.owners.iter().filter(|(_, owners)| has(owners));
        owned.map(|(id, _)| id.clone()).collect()
    }

    /// All claims, in order.
    pub fn all(&self) -> impl Iterator<Item = (&ModuleId, &[Owner])> {
        self.owners.iter().map(|(id, owners)| (id, owners.as_slice()))
    }

    /// Who has a module.
    pub fn owners(&self, module: &ModuleId) -> &[Owner] {
        self.owners.get(module).map_or(&[], Vec::as_slice)
    }

    /// Whether a pod other than this one has a module.
    pub fn is_anothers(&self, uid: &str, module: &ModuleId) -> bool {
        self.owners(module).iter().any(|owner| *owner.uid != *uid)
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
        let mut claim =
            |uid: &str, modules: &[ModuleId]| claims.claim(&owner(uid), modules, Sharing::Exclusive);
        assert_eq!(claim("a", &[key("m", "1"), key("n", "1")]), Ok(true));
        let refused = claim("b", &[key("o", "1"), key("n", "1")]);
        assert_eq!(refused, Err((key("n", "1"), owner("a"))));
        assert_eq!(claim("b", &[key("m", "2")]), Ok(true));
        assert_eq!(claims.owners(&key("o", "1")), [], "all or none");
    }

    #[test]
    fn a_claim_may_be_repeated_and_given_back_by_its_owner_alone() {
        let mut claims = Claims::default();
        let a = owner("a");
        let both = [key("m", "1"), key("m", "2")];
        assert_eq!(claims.claim(&a, &both[..1], Sharing::Exclusive), Ok(true));
        assert_eq!(claims.claim(&a, &both, Sharing::Exclusive), Ok(true));
        assert_eq!(claims.claim(&a, &both, Sharing::Exclusive), Ok(false));
        claims.release("b", &key("m", "1"));
        assert_eq!(claims.of("a").len(), 2);
        claims.release("a", &key("m", "1"));
        claims
            .claim(&owner("b"), &[key("m", "1")], Sharing::Exclusive)
            .unwrap();
        let all: Vec<_> = claims
            .all()
            .map(|(id, owners)| (id.to_string(), &*owners[0].uid))
            .collect();
        assert_eq!(all, [("m:1".to_owned(), "b"), ("m:2".to_owned(), "a")]);
    }

    #[test]
    fn pods_share_a_module_until_the_last_gives_it_back() {
        let mut claims = Claims::default();
        let m = key("m", "1");
        for uid in ["a", "b", "a"] {
            let modules = std::slice::from_ref(&m);
            claims.claim(&owner(uid), modules, Sharing::Shared).unwrap();
        }
        assert_eq!(claims.owners(&m), [owner("a"), owner("b")]);
        assert!(claims.is_anothers("a", &m) && claims.is_anothers("c", &m));
        let mut exclusive =
            |uid: &str| claims.claim(&owner(uid), std::slice::from_ref(&m), Sharing::Exclusive);
        assert_eq!(exclusive("b"), Ok(false), "it has it");
        assert_eq!(exclusive("c"), Err((m.clone(), owner("a"))));
        claims.release("a", &m);
        assert!(claims.is_anothers("a", &m) && !claims.is_anothers("b", &m));
        claims.release("b", &m);
        assert_eq!(claims.all().count(), 0);
    }
}
