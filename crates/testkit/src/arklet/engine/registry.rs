//! sofa-ark's container: which modules are registered, and the transitions of their states.

use super::biz::{Biz, BizState, Reason};
use std::collections::BTreeSet;

/// System properties that change the life of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `sofa.ark.auto.uninstall.when.failed.enable`, default true: a module whose start failed is removed;
    /// else it stays as `broken`.
    pub auto_uninstall_when_failed: bool,
    /// `sofa.ark.activate.multi.biz.version.enable`, default false: every version of a name may be active.
    pub multi_version: bool,
    /// `activate.new.module`, default false: the version installed last becomes the active one.
    pub activate_new_module: bool,
    /// `sofa.ark.remove.biz.instance.when.stop.failed.enable`, default true: a module whose stop failed is
    /// removed; else it stays as `broken`.
    pub remove_when_stop_failed: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            auto_uninstall_when_failed: true,
            multi_version: false,
            activate_new_module: false,
            remove_when_stop_failed: true,
        }
    }
}

/// Buckets of the table of one name's versions, which sofa-ark makes for 16 of them.
const VERSIONS_TABLE: u32 = 32;

/// The modules of a base without the master biz, in no order.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) flags: Flags,
    modules: Vec<Biz>,
    /// Every name ever registered: sofa-ark keeps them, and the size of its table decides the order of
    /// listings.
    names: BTreeSet<String>,
    /// Metaspace never given back.
    leaked: i64,
}

impl Registry {
    pub(crate) fn new(flags: Flags, master: &str) -> Self {
        Self {
            flags,
            names: BTreeSet::from([master.to_owned()]),
            ..Self::default()
        }
    }

    pub(crate) fn get(&self, name: &str, version: &str) -> Option<&Biz> {
        self.modules
            .iter()
            .find(|biz| biz.jar.name == name && biz.jar.version == version)
    }

    fn get_mut(&mut self, name: &str, version: &str) -> Option<&mut Biz> {
        self.modules
            .iter_mut()
            .find(|biz| biz.jar.name == name && biz.jar.version == version)
    }

    /// The module with this number, if it is still registered.
    pub(crate) fn numbered(&self, number: u64) -> Option<&Biz> {
        self.modules.iter().find(|biz| biz.number == number)
    }

    fn numbered_mut(&mut self, number: u64) -> Option<&mut Biz> {
        self.modules.iter_mut().find(|biz| biz.number == number)
    }

    /// Adds a module.
    pub(crate) fn register(&mut self, biz: Biz) {
        self.names.insert(biz.jar.name.clone());
        self.modules.push(biz);
    }

    pub(crate) fn mark_by_hand(&mut self, number: u64) {
        if let Some(biz) = self.numbered_mut(number) {
            biz.by_hand = true;
        }
    }

    /// In the order of sofa-ark: by priority, and else as its hash tables have them.
    pub(crate) fn in_order(&self) -> Vec<&Biz> {
        let table = table_of(self.names.len());
        let mut modules: Vec<_> = self.modules.iter().collect();
        modules.sort_by_key(|biz| {
            (
                biz.jar.priority,
                bucket(&biz.jar.name, table),
                &biz.jar.name,
                bucket(&biz.jar.version, VERSIONS_TABLE),
            )
        });
        modules
    }

    /// Versions of a name, in the same order.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        self.in_order()
            .into_iter()
            .filter(|biz| biz.jar.name == name)
            .map(|biz| biz.jar.version.clone())
            .collect()
    }

    /// Metaspace of the modules, those that were and leaked included.
    pub(crate) fn metaspace(&self) -> i64 {
        self.leaked + self.modules.iter().map(|biz| biz.jar.metaspace).sum::<i64>()
    }

    fn active(&self, name: &str) -> Option<u64> {
        self.modules
            .iter()
            .find(|biz| biz.jar.name == name && biz.state == BizState::Activated)
            .map(|biz| biz.number)
    }

    /// The module's `main` returned.
    pub(crate) fn started(&mut self, number: u64, time: i64) {
        let Some(jar) = self.numbered(number).map(|biz| biz.jar.clone()) else {
            return;
        };
        let sibling = self.active(&jar.name);
        let (state, message) = match sibling {
            Some(old) if self.flags.activate_new_module => {
                if let Some(old) = self.numbered_mut(old) {
                    let message = format!("switch to new version {}", jar.identity());
                    old.enter(BizState::Deactivated, Reason::Switched, &message, time);
                }
                (BizState::Activated, "")
            }
            Some(_) if !self.flags.multi_version => (BizState::Deactivated, "start but is deactivated"),
            _ => (BizState::Activated, ""),
        };
        if let Some(biz) = self.numbered_mut(number) {
            biz.enter(state, Reason::Started, message, time);
        }
    }

    /// The module's `main` threw this.
    pub(crate) fn start_failed(&mut self, number: u64, trace: &str, time: i64) {
        if let Some(biz) = self.numbered_mut(number) {
            biz.enter(BizState::Broken, Reason::InstallFailed, trace, time);
        }
        if self.flags.auto_uninstall_when_failed {
            self.remove(number);
        }
    }

    /// Stops a module and removes it; `trace` is what its stop handler threw, after which the flags say what
    /// becomes of it.
    pub(crate) fn stop(&mut self, name: &str, version: &str, trace: Option<&str>, time: i64) {
        let keep = trace.is_some() && !self.flags.remove_when_stop_failed;
        let Some(biz) = self.get_mut(name, version) else {
            return;
        };
        let number = biz.number;
        biz.enter(BizState::Deactivated, Reason::Killing, "", time);
        if let Some(trace) = trace {
            biz.enter(BizState::Broken, Reason::UninstallFailed, trace, time);
        }
        if !keep {
            self.remove(number);
        }
    }

    /// Makes a deactivated version the active one.
    pub(crate) fn switch(&mut self, name: &str, version: &str, time: i64) {
        let Some((number, jar)) = self
            .get(name, version)
            .filter(|biz| biz.state == BizState::Deactivated)
            .map(|biz| (biz.number, biz.jar.clone()))
        else {
            return;
        };
        let mut message = String::new();
        if let Some(old) = self.active(name).and_then(|old| self.numbered_mut(old)) {
            message = format!("switch from old version: {}", old.jar.identity());
            let to = format!("switch to new version {}", jar.identity());
            old.enter(BizState::Deactivated, Reason::Switched, &to, time);
        }
        if let Some(biz) = self.numbered_mut(number) {
            biz.enter(BizState::Activated, Reason::Switched, &message, time);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(index) = self.modules.iter().position(|biz| biz.number == number) {
            self.leaked += self.modules.swap_remove(index).jar.leak;
        }
    }
}

/// Where Java's hash tables put a text in a table of so many buckets, a power of two. Lists of modules come
/// in this order.
fn bucket(key: &str, table: u32) -> u32 {
    // `String.hashCode`.
    let hash = key.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    (hash ^ (hash >> 16)) & (table - 1)
}

/// Buckets of a default hash table once it holds so many keys: 16, doubled when three quarters are passed.
fn table_of(keys: usize) -> u32 {
    let mut table = 16;
    while keys > table as usize / 4 * 3 {
        table *= 2;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_order_of_javas_buckets() {
        let mut keys = ["command", "bizName", "bizVersion", "response"];
        keys.sort_by_key(|key| bucket(key, 16));
        assert_eq!(keys, ["bizName", "response", "command", "bizVersion"]);
        assert_eq!((table_of(12), table_of(13), table_of(25)), (16, 32, 64));
    }
}
