//! The register that candidates share.

use super::script::Op;
use crate::core::{Observation, Record};
use crate::lock::LockError;
use crate::lock::lease::micros;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// One entry in a register's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The time of the write.
    pub at: Duration,
    /// Name of the handle that wrote.
    pub by: String,
    /// The content of the register since then; `None` after a deletion.
    pub observation: Option<Observation>,
}

/// A request to the register.
pub(super) enum Request {
    Get,
    Create(Record),
    Update(Record, String),
}

impl Request {
    pub(super) fn op(&self) -> Op {
        match self {
            Self::Get => Op::Get,
            Self::Create(_) => Op::Create,
            Self::Update(..) => Op::Update,
        }
    }
}

/// The object, with versions and UIDs like those of an API server.
#[derive(Clone, Default)]
pub(super) struct Register {
    state: Arc<Mutex<State>>,
    current: watch::Sender<Option<Observation>>,
}

#[derive(Default)]
struct State {
    /// How many objects were created so far.
    made: u64,
    history: Vec<Write>,
}

impl Register {
    pub(super) fn current(&self) -> Option<Observation> {
        self.current.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Observation>> {
        self.current.subscribe()
    }

    pub(super) fn history(&self) -> Vec<Write> {
        self.state().history.clone()
    }

    pub(super) fn serve(
        &self,
        now: Duration,
        by: &str,
        request: Request,
    ) -> Result<Option<Observation>, LockError> {
        let mut state = self.state();
        let current = self.current();
        let record = match (request, &current) {
            (Request::Get, _) => return Ok(current),
            (Request::Create(record), None) => record,
            (Request::Update(record, version), Some(current)) if current.version == version => record,
            (Request::Create(_) | Request::Update(..), _) => return Err(LockError::Conflict),
        };
        Ok(Some(self.store(&mut state, now, by, record)))
    }

    pub(super) fn put(&self, now: Duration, by: &str, record: Record) -> Observation {
        self.store(&mut self.state(), now, by, record)
    }

    pub(super) fn delete(&self, now: Duration, by: &str) -> bool {
        let mut state = self.state();
        let existed = self.current.borrow().is_some();
        if existed {
            self.log(&mut state, now, by, None);
        }
        existed
    }

    fn store(&self, state: &mut State, now: Duration, by: &str, record: Record) -> Observation {
        let uid = self.current().map(|current| current.uid);
        let uid = uid.unwrap_or_else(|| {
            state.made += 1;
            format!("uid-{}", state.made)
        });
        // An API server stores whole microseconds.
        let record = Record {
            acquire_time: record.acquire_time.map(micros),
            renew_time: record.renew_time.map(micros),
            ..record
        };
        let observation = Observation {
            raw: record.raw(),
            record,
            uid,
            version: (state.history.len() + 1).to_string(),
        };
        self.log(state, now, by, Some(observation.clone()));
        observation
    }

    /// Called with the state locked, so that the history and the watches see writes in the same order.
    fn log(&self, state: &mut State, at: Duration, by: &str, observation: Option<Observation>) {
        state.history.push(Write {
            at,
            by: by.to_owned(),
            observation: observation.clone(),
        });
        self.current.send_replace(observation);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
