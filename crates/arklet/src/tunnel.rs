//! What both clients can do, and how it fails.

use crate::biz::ModuleList;
use crate::command::{Command, Install, InvalidRequest, ModuleId};
use crate::envelope::{Code, DecodeError, Envelope};
use crate::health::Health;
use crate::outcome::{BatchOutcome, Outcome};
use crate::read;
use futures::future::BoxFuture;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A way to ask bases. Every call has a deadline of its own; dropping a call's future gives up the waiting, not what the base does.
///
/// Callers hold at most one install, uninstall or switch per base and module at a time: an operation that meets another one of the same
/// module is refused by arklet, which then forgets that the first is under way.
pub trait Tunnel: Send + Sync + 'static {
    /// How the base is. A base over HTTP that is busy with installing may be slow to answer and is not dead for that.
    fn health<'a>(&'a self, base: &'a Base) -> BoxFuture<'a, Result<Health, TunnelError>>;

    /// What is installed, without the base's own biz.
    fn modules<'a>(&'a self, base: &'a Base) -> BoxFuture<'a, Result<ModuleList, TunnelError>>;

    /// Installs a module; returns when its `main` has returned, or it failed.
    fn install<'a>(
        &'a self,
        base: &'a Base,
        install: &'a Install,
    ) -> BoxFuture<'a, Result<Outcome, TunnelError>>;

    /// Removes a module.
    fn uninstall<'a>(
        &'a self,
        base: &'a Base,
        module: &'a ModuleId,
    ) -> BoxFuture<'a, Result<Outcome, TunnelError>>;

    /// Makes a deactivated version the one that serves. Over HTTP alone.
    fn switch<'a>(
        &'a self,
        base: &'a Base,
        module: &'a ModuleId,
    ) -> BoxFuture<'a, Result<Outcome, TunnelError>>;

    /// Installs several modules by their manifests' priority; over MQTT this is the baseline. One batch at a time per base.
    fn batch<'a>(
        &'a self,
        base: &'a Base,
        installs: &'a [Install],
    ) -> BoxFuture<'a, Result<BatchOutcome, TunnelError>>;
}

/// How a base is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// Its identity, as in its heartbeats.
    pub identity: String,
    /// Its environment, part of MQTT topics, where it stands in lower case; of no account over HTTP.
    pub environment: String,
    /// Where arklet listens; needed over HTTP, of no account over MQTT.
    pub address: Option<SocketAddr>,
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.identity),
            None => write!(f, "{} in {}", self.identity, self.environment),
        }
    }
}

/// Why a call has no outcome. [`TunnelError::may_have_run`] says whether the base may have acted nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// Will not work however often it is tried.
    #[error("base {base}: {command} was not sent")]
    Invalid {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// What is wrong.
        #[source]
        source: InvalidRequest,
    },
    /// The base is not reached this way, or the way does not know the command. Do not repeat.
    #[error("base {base}: {command} is not possible over {over}")]
    Unsupported {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Which way.
        over: &'static str,
    },
    /// No connection to the base. Nothing was sent: repeat, with back-off.
    #[error("base {base}: cannot connect for {command}")]
    Connect {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The broker was not reached before the deadline. Nothing was sent: repeat, with back-off.
    #[error("base {base}: no connection to the MQTT broker for {command}")]
    NoBroker {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
    },
    /// Too many calls wait, or one for the same module and command does. Nothing was sent: repeat later.
    #[error("base {base}: {command} not sent, {reason}")]
    Busy {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// What is too much.
        reason: &'static str,
    },
    /// No answer before the deadline. Ask for the modules before repeating an operation.
    #[error("base {base}: no answer to {command}{} within {after:?}", under(topic.as_deref()))]
    Silent {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Under which topic it was expected; a base that answers under another one is not heard. `None` over HTTP.
        topic: Option<String>,
        /// The deadline.
        after: Duration,
    },
    /// The connection broke before an answer was complete. Ask for the modules before repeating an operation.
    #[error("base {base}: the connection broke before {command} was answered")]
    Broken {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// How.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An HTTP status that arklet does not use for answers. Something else listens there, or arklet refused the size.
    #[error("base {base}: {command} was answered with HTTP status {status}: {text}")]
    Status {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// HTTP's.
        status: u16,
        /// The start of the body.
        text: String,
    },
    /// More than the limit was answered. Repeating will not help.
    #[error("base {base}: the answer to {command} is longer than {limit} bytes")]
    TooLong {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// The limit.
        limit: usize,
    },
    /// The answer cannot be read. Partial answers to `health` pass; repeat queries.
    #[error("base {base}: cannot read the answer to {command} ({excerpt:?})")]
    Unreadable {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Its start.
        excerpt: String,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
    /// A question was refused. Repeat with back-off.
    #[error("base {base}: {command} was refused ({code}): {message}")]
    Refused {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// How.
        code: Code,
        /// Why.
        message: String,
    },
    /// Another base has answered: it has the address now. Whatever was asked for, it may have done. Do not repeat before the base is known
    /// to be there again.
    #[error("base {base}: {command} was answered by another base, {says}")]
    Another {
        /// Which base was asked.
        base: String,
        /// Which command.
        command: Command,
        /// Who has answered.
        says: String,
    },
    /// The base does not know an asynchronous operation that it had accepted: it was restarted, and all modules are gone but those that it
    /// starts with. Ask for the modules.
    #[error("base {base}: {command} was lost, the base has restarted since (request {request_id})")]
    RecordLost {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Of the operation.
        request_id: String,
    },
    /// An asynchronous operation has not ended before the deadline; the base goes on. Ask for the modules before repeating it.
    #[error("base {base}: {command} has not ended within {after:?} (request {request_id})")]
    Unfinished {
        /// Which base.
        base: String,
        /// Which command.
        command: Command,
        /// Of the operation.
        request_id: String,
        /// The deadline.
        after: Duration,
        /// What the last question met, if that was no answer.
        #[source]
        source: Option<Box<TunnelError>>,
    },
}

fn under(topic: Option<&str>) -> String {
    topic.map(|topic| format!(" under {topic}")).unwrap_or_default()
}

impl TunnelError {
    /// Whether that base may have acted, or act still. If not, repeating an operation cannot meet its own first attempt.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::Unsupported { .. }
            | Self::Connect { .. }
            | Self::NoBroker { .. }
            | Self::Busy { .. }
            | Self::Another { .. }
            | Self::Refused { .. } => false,
            // Refused for its size, before it was read.
            Self::Status { status, .. } => *status != 413,
            Self::Silent { .. }
            | Self::Broken { .. }
            | Self::TooLong { .. }
            | Self::Unreadable { .. }
            | Self::RecordLost { .. }
            | Self::Unfinished { .. } => true,
        }
    }
}

/// Reads the data of an answer, which must be a success.
pub(crate) fn answered<T>(
    base: &Base,
    command: Command,
    envelope: &Envelope,
    read: impl FnOnce(&serde_json::Value) -> Result<T, DecodeError>,
) -> Result<T, TunnelError> {
    if !envelope.is_success() {
        return Err(TunnelError::Refused {
            base: base.to_string(),
            command,
            code: envelope.code.clone(),
            message: envelope.message.clone().unwrap_or_default(),
        });
    }
    let data = envelope.data.as_ref();
    data.ok_or(DecodeError::Missing("data"))
        .and_then(read)
        .map_err(|source| TunnelError::Unreadable {
            base: base.to_string(),
            command,
            excerpt: data.map_or_else(String::new, |data| read::excerpt(&data.to_string(), 200)),
            source,
        })
}
