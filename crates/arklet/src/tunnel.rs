//! What both clients can do, and how it fails.

use crate::biz::ModuleList;
use crate::command::{Command, Install, InvalidRequest, ModuleId, Request};
use crate::envelope::{Code, DecodeError, Envelope};
use crate::health::Health;
use crate::outcome::{BatchOutcome, Outcome};
use crate::read;
use futures::future::BoxFuture;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A call under way: it ends with what the base has answered, or with why there is no outcome.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, TunnelError>>;

/// A way to call bases. Every call has a deadline of its own; dropping a call's future gives up the waiting,
/// not what the base does.
///
/// Callers hold at most one install, uninstall or switch per base and module at a time: an operation that
/// meets another one of the same module is refused by arklet, which then forgets that the first is under way.
pub trait Tunnel: Send + Sync + 'static {
    /// Reads the health of a base. A base over HTTP that is busy with installing may be slow to answer and is
    /// not dead for that.
    fn health<'a>(&'a self, base: &'a Base) -> Answer<'a, Health>;

    /// Lists the modules, without the base's own biz.
    fn modules<'a>(&'a self, base: &'a Base) -> Answer<'a, ModuleList>;

    /// Installs a module; returns when its `main` has returned, or it failed.
    fn install<'a>(&'a self, base: &'a Base, install: &'a Install) -> Answer<'a, Outcome>;

    /// Removes a module.
    fn uninstall<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome>;

    /// Makes a deactivated version the one that serves. Over HTTP alone.
    fn switch<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome>;

    /// Installs several modules by their manifests' priority; over MQTT this is the baseline. One batch at a
    /// time per base.
    fn batch<'a>(&'a self, base: &'a Base, installs: &'a [Install]) -> Answer<'a, BatchOutcome>;
}

/// A base and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// Its identity, as in its heartbeats.
    pub identity: String,
    /// Its environment, part of MQTT topics, where it stands in lower case; not needed over HTTP.
    pub environment: String,
    /// Where arklet listens; needed over HTTP alone.
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

/// Why a call has no outcome.
#[derive(Debug)]
pub struct TunnelError {
    /// The base that was called, with its address or environment.
    pub base: String,
    /// The command that it was to carry out.
    pub command: Command,
    /// What happened instead.
    pub kind: ErrorKind,
}

/// What happened to a call without an outcome. [`ErrorKind::may_have_run`] says whether the base may have
/// acted nevertheless.
#[derive(Debug)]
pub enum ErrorKind {
    /// The request was not sent: arklet would refuse it, however often it is repeated.
    Invalid(InvalidRequest),
    /// The base is not reached this way, or the way does not know the command. Do not repeat.
    Unsupported {
        /// The protocol, and what it lacks.
        over: &'static str,
    },
    /// No connection to the base. Nothing was sent: repeat, with back-off.
    Connect(io::Error),
    /// The broker was not reached before the deadline. Nothing was sent: repeat, with back-off.
    NoBroker,
    /// Too many calls wait, or one for the same module and command does. Nothing was sent: repeat later.
    Busy {
        /// Which limit was reached.
        reason: &'static str,
    },
    /// No answer before the deadline. Ask for the modules before repeating an operation.
    Silent {
        /// The topic under which it was expected; a base that answers under another one is not heard. `None`
        /// over HTTP.
        topic: Option<String>,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke before an answer was complete. Ask for the modules before repeating an operation.
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// An HTTP status that arklet does not use for answers. Something else listens there, or arklet refused
    /// the size.
    Status {
        /// The status code of HTTP.
        status: u16,
        /// The start of the body.
        text: String,
    },
    /// More than the limit was answered. Repeating will not help.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer cannot be read. Partial answers to `health` pass; repeat queries.
    Unreadable {
        /// The start of the answer.
        excerpt: String,
        /// The part of it that is wrong.
        source: DecodeError,
    },
    /// A query was refused. Repeat with back-off.
    Refused {
        /// The code of the answer.
        code: Code,
        /// The reason that arklet gives.
        message: String,
    },
    /// Another base has answered: it has the address now. It may have done whatever was requested. Do not
    /// repeat before the base is known to be there again.
    Another {
        /// The identity of the base that has answered.
        says: String,
    },
    /// The base does not know an asynchronous operation that it had accepted: it was restarted, and all
    /// modules are gone but those that it starts with. Ask for the modules.
    RecordLost {
        /// The request ID of the operation.
        request_id: String,
    },
    /// An asynchronous operation has not ended before the deadline; the base goes on. Ask for the modules
    /// before repeating it.
    Unfinished {
        /// The request ID of the operation.
        request_id: String,
        /// How long its end was waited for.
        after: Duration,
        /// How the last query for its state failed, if it did.
        source: Option<Box<TunnelError>>,
    },
}

impl fmt::Display for TunnelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, command, kind } = self;
        write!(f, "base {base}: ")?;
        match kind {
            ErrorKind::Invalid(_) => write!(f, "{command} was not sent"),
            ErrorKind::Unsupported { over } => write!(f, "{command} is not possible over {over}"),
            ErrorKind::Connect(_) => write!(f, "cannot connect for {command}"),
            ErrorKind::NoBroker => write!(f, "no connection to the MQTT broker for {command}"),
            ErrorKind::Busy { reason } => write!(f, "{command} not sent, {reason}"),
            ErrorKind::Silent { topic, after } => {
                write!(f, "no answer to {command}")?;
                if let Some(topic) = topic {
                    write!(f, " under {topic}")?;
                }
                write!(f, " within {after:?}")
            }
            ErrorKind::Broken(_) => write!(f, "the connection broke before {command} was answered"),
            ErrorKind::Status { status, text } => {
                write!(f, "{command} was answered with HTTP status {status}: {text}")
            }
            ErrorKind::TooLong { limit } => {
                write!(f, "the answer to {command} is longer than {limit} bytes")
            }
            ErrorKind::Unreadable { excerpt, .. } => {
                write!(f, "cannot read the answer to {command} ({excerpt:?})")
            }
            ErrorKind::Refused { code, message } => write!(f, "{command} was refused ({code}): {message}"),
            ErrorKind::Another { says } => write!(f, "{command} was answered by another base, {says}"),
            ErrorKind::RecordLost { request_id } => write!(
                f,
                "{command} was lost, the base has restarted since (request {request_id})"
            ),
            ErrorKind::Unfinished {
                request_id, after, ..
            } => write!(
                f,
                "{command} has not ended within {after:?} (request {request_id})"
            ),
        }
    }
}

impl std::error::Error for TunnelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Invalid(source) => Some(source),
            ErrorKind::Connect(source) => Some(source),
            ErrorKind::Broken(source) => Some(&**source),
            ErrorKind::Unreadable { source, .. } => Some(source),
            ErrorKind::Unfinished { source, .. } => Some(&**source.as_ref()?),
            ErrorKind::Unsupported { .. }
            | ErrorKind::NoBroker
            | ErrorKind::Busy { .. }
            | ErrorKind::Silent { .. }
            | ErrorKind::Status { .. }
            | ErrorKind::TooLong { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::Another { .. }
            | ErrorKind::RecordLost { .. } => None,
        }
    }
}

impl ErrorKind {
    /// Whether that base may have acted, or act still. If not, repeating an operation cannot meet its own
    /// first attempt.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Invalid(_)
            | Self::Unsupported { .. }
            | Self::Connect(_)
            | Self::NoBroker
            | Self::Busy { .. }
            | Self::Another { .. }
            | Self::Refused { .. } => false,
            // Refused for its size, before it was read.
            Self::Status { status, .. } => *status != 413,
            Self::Silent { .. }
            | Self::Broken(_)
            | Self::TooLong { .. }
            | Self::Unreadable { .. }
            | Self::RecordLost { .. }
            | Self::Unfinished { .. } => true,
        }
    }
}

impl TunnelError {
    /// See [`ErrorKind::may_have_run`].
    pub fn may_have_run(&self) -> bool {
        self.kind.may_have_run()
    }
}

impl Base {
    /// Why a call of this base has no outcome.
    pub(crate) fn error(&self, command: Command, kind: ErrorKind) -> TunnelError {
        TunnelError {
            base: self.to_string(),
            command,
            kind,
        }
    }

    /// The check of a request, which is not sent if it fails.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), TunnelError> {
        let invalid = |source| self.error(request.command(), ErrorKind::Invalid(source));
        request.check().map_err(invalid)
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
        let refused = ErrorKind::Refused {
            code: envelope.code.clone(),
            message: envelope.message.clone().unwrap_or_default(),
        };
        return Err(base.error(command, refused));
    }
    let data = envelope.data.as_ref();
    let result = data.ok_or(DecodeError::Missing("data")).and_then(read);
    result.map_err(|source| {
        let excerpt = data.map_or_else(String::new, |data| read::excerpt(&data.to_string(), 200));
        base.error(command, ErrorKind::Unreadable { excerpt, source })
    })
}
