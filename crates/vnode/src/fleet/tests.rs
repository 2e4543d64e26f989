//! Fleets, where a test must reach inside.

#[path = "../../tests/it/fleet/bench.rs"]
#[allow(dead_code, reason = "some of it is for the tests of whole fleets alone")]
mod bench;
#[path = "../../tests/it/fleet/fake.rs"]
#[allow(dead_code, reason = "some of it is for the tests of whole fleets alone")]
pub(crate) mod fake;

mod defects;
mod lists;
mod streams;

use super::directory::Handle;
use bench::Bench;
use std::sync::Arc;

impl Bench {
    /// The actor that serves a node.
    fn handle(&self, node: &str) -> Arc<Handle> {
        self.fleet
            .inner
            .common
            .directory
            .node(node)
            .expect("the node is served")
    }
}
