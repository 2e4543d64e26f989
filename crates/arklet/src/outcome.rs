//! What became of an operation, from the answers that HTTP and MQTT give.

use crate::biz::{Module, ModuleList};
use crate::cause;
use crate::command::{Install, ModuleId};
use crate::envelope::{Code, Envelope};
use crate::ops::{Progress, Record};
use crate::read;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// What became of an install, an uninstall or a switch.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was done.
    Done {
        /// What was installed, as far as the base reports. **May be deactivated**: a second version of a name
        /// does not serve unless it is switched to. Empty after an uninstall or a switch.
        modules: Vec<Module>,
    },
    /// Something was installed, but not what was asked for: the manifest of the jar says otherwise. Remove
    /// the stray.
    Mismatch {
        /// What was asked for.
        asked: ModuleId,
        /// What is there instead, as far as it can be told.
        found: Vec<ModuleId>,
    },
    /// A module of that identity is there already, in whatever state: inspect it before anything else.
    Repeat {
        /// What the base says.
        message: String,
    },
    /// No module of that identity is there. After an uninstall: as wished.
    NotFound {
        /// What the base says.
        message: String,
    },
    /// Another operation on this identity is under way (for batches: another batch). Nothing was done; repeat
    /// later.
    Conflict {
        /// What the base says.
        message: String,
    },
    /// The module's state does not allow it: it is starting, say. Nothing was done; repeat later.
    IllegalState {
        /// What the base says.
        message: String,
    },
    /// It failed. By default nothing is left of the module; bases that keep failed ones show it as broken.
    Failed(Failure),
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the answer said so.
    pub code: Code,
    /// What the base says, without stack trace.
    pub message: String,
    /// The innermost cause if one is known, else the message; one line for people.
    pub cause: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { modules } => {
                f.write_str("done")?;
                for module in modules {
                    write!(f, ", {} is {}", module.id, module.state)?;
                }
                Ok(())
            }
            Self::Mismatch { asked, found } => {
                write!(f, "asked for {asked}, but the manifest of the jar says otherwise")?;
                for (nth, id) in found.iter().enumerate() {
                    write!(f, "{}{id}", if nth == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            Self::Repeat { message }
            | Self::NotFound { message }
            | Self::Conflict { message }
            | Self::IllegalState { message } => f.write_str(message),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl Outcome {
    /// What an answer says about an operation on one module. `asked`: what was to be installed, if that is
    /// known.
    pub fn of(envelope: &Envelope, asked: Option<&ModuleId>) -> Self {
        let data = envelope.data.as_ref();
        match data.and_then(Answer::read) {
            Some(answer) => answer.outcome(envelope, asked),
            None if envelope.is_success() => Self::Done { modules: Vec::new() },
            None => refused(envelope, None),
        }
    }

    /// Whether a module is gone after an uninstall.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::NotFound { .. })
    }
}

/// sofa-ark's answer inside arklet's.
struct Answer<'a> {
    code: String,
    message: String,
    data: &'a Value,
}

impl<'a> Answer<'a> {
    fn read(data: &'a Value) -> Option<Self> {
        Some(Self {
            code: read::non_blank(data, "code")?.to_ascii_uppercase(),
            message: read::text(data, "message").unwrap_or_default(),
            data,
        })
    }

    fn outcome(&self, envelope: &Envelope, asked: Option<&ModuleId>) -> Outcome {
        let message = || cause::shorten(&self.message).unwrap_or_else(|| self.code.clone());
        match self.code.as_str() {
            "SUCCESS" if envelope.is_success() => installed(self.modules(), asked),
            "REPEAT_BIZ" => Outcome::Repeat { message: message() },
            "NOT_FOUND_BIZ" => Outcome::NotFound { message: message() },
            "ILLEGAL_STATE_BIZ" => Outcome::IllegalState { message: message() },
            _ => refused(envelope, Some(&self.message)),
        }
    }

    fn modules(&self) -> Vec<Module> {
        let list = self.data.get("bizInfos").map(ModuleList::read);
        list.and_then(Result::ok).unwrap_or_default().modules
    }
}

fn installed(modules: Vec<Module>, asked: Option<&ModuleId>) -> Outcome {
    match (asked, modules.first()) {
        (Some(asked), Some(first)) if first.id != *asked => Outcome::Mismatch {
            asked: asked.clone(),
            found: modules.into_iter().map(|module| module.id).collect(),
        },
        _ => Outcome::Done { modules },
    }
}

/// What an answer without success means. `inner`: what sofa-ark said, if it was asked at all.
fn refused(envelope: &Envelope, inner: Option<&str>) -> Outcome {
    let outer = envelope.message.as_deref().map(without_prefix);
    let message = outer
        .filter(|text| !text.trim().is_empty())
        .or(inner.filter(|text| !cause::is_trace(text)))
        .map_or_else(|| envelope.code.to_string(), str::to_owned);
    // Over MQTT the trace stands where HTTP has sofa-ark's message.
    let trace = envelope.stack_trace.as_deref();
    let trace = trace.or(inner.filter(|text| cause::is_trace(text)));
    let said = inner.filter(|text| !cause::is_trace(text));
    let cause = trace
        .and_then(cause::of_trace)
        .or_else(|| said.and_then(cause::shorten))
        .or_else(|| cause::shorten(&message))
        .unwrap_or_else(|| envelope.code.to_string());
    let texts = [Some(message.as_str()), said, Some(cause.as_str())];
    let says = |text: &str| texts.iter().flatten().any(|said| said.contains(text));
    if says(CONFLICT) {
        return Outcome::Conflict { message: cause };
    }
    if says(STATE) {
        return Outcome::IllegalState { message: cause };
    }
    Outcome::Failed(Failure {
        code: envelope.code.clone(),
        message,
        cause,
    })
}

/// arklet's words for an operation that met another one.
const CONFLICT: &str = "conflict, exist unfinished command";
/// sofa-ark's words, thrown at whoever removes a module that is starting.
const STATE: &str = "BizState must be";
/// arklet's words for any answer of sofa-ark but success; the only ones that an asynchronous install leaves
/// of it.
const NO_SUCCESS: &str = "install biz not success!";

fn without_prefix(message: &str) -> &str {
    message.strip_prefix("Internal Error: ").unwrap_or(message)
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOutcome {
    /// Of the batch as a whole: [`Outcome::Done`] with all that was installed, a conflict with another batch,
    /// or a failure, in which case parts of it may have been installed nevertheless.
    pub overall: Outcome,
    /// By URL. Empty if nothing was tried; two modules of one URL share an entry.
    pub by_url: BTreeMap<String, Outcome>,
}

impl BatchOutcome {
    /// What an answer says about the batch of these modules.
    pub fn of(envelope: &Envelope, installs: &[Install]) -> Self {
        let data = envelope.data.as_ref();
        let entries = data
            .and_then(|data| data.get("bizUrlToResponse"))
            .and_then(Value::as_object);
        let mut by_url = BTreeMap::new();
        let mut modules = Vec::new();
        for (url, entry) in entries.into_iter().flatten() {
            let mut same = installs.iter().filter(|install| install.url == *url);
            let asked = match (same.next(), same.next()) {
                (Some(install), None) => install.id.as_ref(),
                _ => None,
            };
            let outcome = match Answer::read(entry) {
                Some(answer) => {
                    let code = Code::parse(&answer.code);
                    modules.extend(answer.modules());
                    let inner = Envelope {
                        base_identity: None,
                        code,
                        data: None,
                        message: Some(answer.message.clone()),
                        stack_trace: None,
                    };
                    answer.outcome(&inner, asked)
                }
                None => refused(&unreadable(), None),
            };
            by_url.insert(url.clone(), outcome);
        }
        let inner = data
            .and_then(|data| read::text(data, "message"))
            .filter(|_| !envelope.is_success());
        let overall = if envelope.is_success() {
            Outcome::Done { modules }
        } else {
            refused(envelope, inner.as_deref())
        };
        Self { overall, by_url }
    }
}

fn unreadable() -> Envelope {
    Envelope {
        base_identity: None,
        code: Code::Other("UNREADABLE".to_owned()),
        data: None,
        message: Some("the base's answer about this module cannot be read".to_owned()),
        stack_trace: None,
    }
}

/// What to do next about an asynchronous install.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask again later.
    Wait,
    /// The record does not say enough: list the modules and call again with the list.
    List,
    /// It is over.
    End(Outcome),
}

/// The record of an asynchronous install that has been accepted, or what became of it at once.
pub fn accepted(envelope: &Envelope, asked: Option<&ModuleId>) -> Result<Record, Outcome> {
    let data = envelope.data.as_ref().filter(|_| envelope.is_success());
    match data.map(Record::read) {
        Some(Ok(record)) => Ok(record),
        _ => Err(Outcome::of(envelope, asked)),
    }
}

/// What the record of an asynchronous install means. `list`: the modules as of after its end.
///
/// A record does not say what was installed. What was created between its begin and its end was: both times,
/// and those of the modules, are of the base's own clock.
pub fn step(record: &Record, asked: Option<&ModuleId>, list: Option<&ModuleList>) -> Step {
    let message = record.message.as_deref().unwrap_or_default();
    match (record.progress(), list) {
        (Progress::Running, _) => Step::Wait,
        (Progress::Succeeded, None) => Step::List,
        (Progress::Succeeded, Some(list)) => Step::End(confirmed(record, asked, list)),
        (Progress::Failed, _) if message.contains(CONFLICT) => Step::End(Outcome::Conflict {
            message: message.to_owned(),
        }),
        // sofa-ark's reason was dropped; all but one of them throw.
        (Progress::Failed, None) if message == NO_SUCCESS && record.cause.is_none() && asked.is_some() => {
            Step::List
        }
        (Progress::Failed, Some(list)) if asked.is_some_and(|id| list.get(id).is_some()) => {
            Step::End(Outcome::Repeat {
                message: message.to_owned(),
            })
        }
        (Progress::Failed, _) => {
            let cause = record.cause.clone().or_else(|| cause::shorten(message));
            Step::End(Outcome::Failed(Failure {
                code: Code::Failed,
                message: message.to_owned(),
                cause: cause.unwrap_or_else(|| "the base gives no reason".to_owned()),
            }))
        }
    }
}

fn confirmed(record: &Record, asked: Option<&ModuleId>, list: &ModuleList) -> Outcome {
    let within = |module: &Module| match (record.started_ms, module.created_ms(), record.ended_ms) {
        (Some(begin), Some(created), Some(end)) => (begin..=end).contains(&created),
        _ => false,
    };
    let new: Vec<&Module> = list.modules.iter().filter(|module| within(module)).collect();
    let owned = |modules: &[&Module]| modules.iter().map(|module| (*module).clone()).collect();
    let Some(asked) = asked else {
        return Outcome::Done { modules: owned(&new) };
    };
    match list.get(asked) {
        // An older module of that identity says nothing about what the jar held.
        Some(module) if within(module) || new.is_empty() => Outcome::Done {
            modules: vec![module.clone()],
        },
        None if new.is_empty() && !list.unreadable.is_empty() => Outcome::Done { modules: Vec::new() },
        _ => Outcome::Mismatch {
            asked: asked.clone(),
            found: new.iter().map(|module| module.id.clone()).collect(),
        },
    }
}

#[cfg(test)]
mod tests;
