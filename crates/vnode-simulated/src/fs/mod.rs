//! Files of simulated containers, in memory, made when somebody looks.
//!
//! Each container has a tree of its own, gone with it; scratch volumes are the pod's; what ConfigMaps,
//! Secrets and the downward API hold is asked for whenever it is read, and stored nowhere.

mod held;
mod path;
mod tree;
mod view;

pub(crate) use held::Pool;
pub(crate) use path::absolute;
pub(crate) use tree::{Meta, Quota, Tree, Trouble};
pub(crate) use view::View;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all files of a pod may take.
const MOST: u64 = 64 << 20;

/// Files of a pod.
#[derive(Debug)]
pub(crate) struct PodFiles(Mutex<Trees>);

#[derive(Debug)]
struct Trees {
    /// By container: of which of its lives, and what it holds.
    roots: BTreeMap<String, (u64, Tree)>,
    scratch: BTreeMap<String, Tree>,
    quota: Quota,
}

impl PodFiles {
    /// None yet; of what all pods may take, they take their part.
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self(Mutex::new(Trees {
            roots: BTreeMap::new(),
            scratch: BTreeMap::new(),
            quota: Quota::new(MOST, pool),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Trees> {
        // Trees are whole between operations: what panics elsewhere does not harm them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
