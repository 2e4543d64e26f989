//! What time it is for simulated containers.

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// A source of the time of day.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's time of day.
    pub fn wall() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// The runtime's, counted from a time of day: paused and advanced as the runtime's is.
    pub fn runtime(from: Timestamp) -> Self {
        let began = tokio::time::Instant::now();
        Self(Arc::new(move || {
            from.saturating_add(began.elapsed()).unwrap_or(Timestamp::MAX)
        }))
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::wall()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
