//! Calls that wait for replies.

use super::topic::Kind;
use crate::biz::ModuleList;
use crate::command::{Command, ModuleId};
use crate::envelope::{DecodeError, Envelope};
use crate::tunnel::{Base, ErrorKind, TunnelError};
use std::collections::HashMap;

/// The replies that a base can give.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expect {
    Health,
    Modules,
    /// By the command's name, as the reply has it.
    Operation {
        command: String,
        id: ModuleId,
    },
    Batch,
}

impl Expect {
    /// The kind of message that the released arklet sends it as.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Health => Kind::Health,
            Self::Modules => Kind::SimpleBiz,
            Self::Operation { .. } => Kind::BizOperation,
            Self::Batch => Kind::BatchInstallBizResponse,
        }
    }

    /// The answer to a query serves all calls that wait for it. Replies to operations on one module cannot be
    /// told apart, so only one call may wait for them.
    fn is_shared(&self) -> bool {
        matches!(self, Self::Health | Self::Modules)
    }
}

/// Which reply of which base.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) environment: String,
    pub(super) identity: String,
    pub(super) expect: Expect,
}

/// What is handed to whoever waits.
#[derive(Debug)]
pub(super) enum Reply {
    Envelope(Result<Envelope, DecodeError>),
    Modules(ModuleList),
    /// The command did not get to the broker, as far as can be told.
    Lost(Box<dyn std::error::Error + Send + Sync>),
}

impl Reply {
    /// A copy for another call that shares the reply.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Envelope(Ok(envelope)) => Some(Self::Envelope(Ok(envelope.clone()))),
            Self::Modules(list) => Some(Self::Modules(list.clone())),
            Self::Envelope(Err(_)) | Self::Lost(_) => None,
        }
    }

    pub(super) fn envelope(self, base: &Base, command: Command) -> Result<Envelope, TunnelError> {
        match self {
            Self::Envelope(envelope) => envelope.map_err(|source| unreadable(base, command, source)),
            Self::Modules(_) | Self::Lost(_) => {
                Err(unreadable(base, command, DecodeError::Missing("response")))
            }
        }
    }

    pub(super) fn modules(self, base: &Base, command: Command) -> Result<ModuleList, TunnelError> {
        match self {
            Self::Modules(list) => Ok(list),
            Self::Envelope(_) | Self::Lost(_) => Err(unreadable(base, command, DecodeError::Missing("data"))),
        }
    }
}

fn unreadable(base: &Base, command: Command, source: DecodeError) -> TunnelError {
    let excerpt = String::new();
    base.error(command, ErrorKind::Unreadable { excerpt, source })
}

/// All calls that wait for replies.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    next: u64,
    by_key: HashMap<Key, Vec<(u64, T)>>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            next: 0,
            by_key: HashMap::new(),
        }
    }
}

impl<T> Waiting<T> {
    /// Adds a call. Returns the number by which it is removed, or `None` if another one waits whose reply
    /// could not be distinguished from this one's.
    pub(super) fn add(&mut self, key: Key, one: T) -> Option<u64> {
        let shared = key.expect.is_shared();
        let waiting = self.by_key.entry(key).or_default();
        if !waiting.is_empty() && !shared {
            return None;
        }
        self.next += 1;
        waiting.push((self.next, one));
        Some(self.next)
    }

    /// Removes and returns all calls that wait for a reply, which has come.
    pub(super) fn take(&mut self, key: &Key) -> Vec<T> {
        let waiting = self.by_key.remove(key).unwrap_or_default();
        waiting.into_iter().map(|(_, one)| one).collect()
    }

    /// Removes a call that does not wait any more.
    pub(super) fn remove(&mut self, key: &Key, number: u64) {
        if let Some(waiting) = self.by_key.get_mut(key) {
            waiting.retain(|(other, _)| *other != number);
            if waiting.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identity: &str, expect: Expect) -> Key {
        Key {
            environment: "dev".to_owned(),
            identity: identity.to_owned(),
            expect,
        }
    }

    fn install(name: &str) -> Expect {
        Expect::Operation {
            command: "installBiz".to_owned(),
            id: ModuleId::new(name, "1"),
        }
    }

    #[test]
    fn a_reply_goes_to_those_who_wait_for_it() {
        let mut waiting = Waiting::default();
        assert!(waiting.add(key("a", Expect::Health), 1).is_some());
        assert!(waiting.add(key("a", Expect::Health), 2).is_some());
        assert!(waiting.add(key("b", Expect::Health), 3).is_some());
        assert!(waiting.add(key("a", install("x")), 4).is_some());
        assert_eq!(waiting.add(key("a", install("x")), 5), None);
        assert!(waiting.add(key("a", install("y")), 6).is_some());
        assert_eq!(waiting.take(&key("a", Expect::Health)), [1, 2]);
        assert_eq!(waiting.take(&key("a", Expect::Health)), [0; 0]);
        assert_eq!(waiting.take(&key("a", install("x"))), [4]);
    }

    #[test]
    fn whoever_leaves_makes_room_and_nothing_stays_behind() {
        let mut waiting = Waiting::default();
        let first = waiting.add(key("a", Expect::Batch), 1).unwrap();
        waiting.remove(&key("a", Expect::Batch), first);
        assert!(waiting.by_key.is_empty());
        let second = waiting.add(key("a", Expect::Batch), 2).unwrap();
        // The number of the first is no longer anybody's.
        waiting.remove(&key("a", Expect::Batch), first);
        assert_ne!(first, second);
        assert_eq!(waiting.take(&key("a", Expect::Batch)), [2]);
    }
}
