//! When something has to be looked at again.

use super::context::NEVER;
use crate::Millis;

/// The earliest of the times at which what was decided now may have to be decided otherwise, because time has
/// passed and nothing else has happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due(Millis);

impl Due {
    pub(super) fn never() -> Self {
        Self(NEVER)
    }

    pub(super) fn by(&mut self, at: Millis) {
        self.0 = self.0.min(at);
    }

    pub(super) fn at(self) -> Millis {
        self.0
    }
}
