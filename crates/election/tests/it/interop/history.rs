//! What a recorded history must be like, whoever wrote it. Pure.

use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// Fields of a Lease's spec that every elector writes every time, in the order of the alphabet.
pub(crate) const FIELDS: [&str; 5] = [
    "acquireTime",
    "holderIdentity",
    "leaseDurationSeconds",
    "leaseTransitions",
    "renewTime",
];

/// The Lease as it was stored at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// When the recorder received it, in boot time: not before it was stored.
    pub(crate) received: Duration,
    /// `renewTime` in boot time: not after it was stored, as the attempt to write it begins with it.
    pub(crate) written: Duration,
    pub(crate) holder: String,
    pub(crate) seconds: u64,
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) transitions: i64,
    /// Names of the fields of the spec, sorted.
    pub(crate) fields: Vec<String>,
}

/// A time in which a candidate's gate was open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) identity: String,
    /// Of the fencing token.
    pub(crate) transitions: i64,
    /// Boot time of the first act.
    pub(crate) from: Duration,
    /// Boot time of the last one.
    pub(crate) until: Duration,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            identity,
            transitions,
            from,
            until,
        } = self;
        write!(f, "{identity} in term {transitions}, {from:.3?} to {until:.3?}")
    }
}

/// A rule that does not hold. Revisions are named by their resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("revision {version}: the spec has the fields {fields:?}")]
    Fields { version: String, fields: Vec<String> },
    #[error("revision {version}: leaseDurationSeconds is {found}, and not {expected}")]
    LeaseDuration {
        version: String,
        expected: u64,
        found: u64,
    },
    #[error("revision {version}: leaseTransitions is {found}, and not {expected}")]
    Transitions {
        version: String,
        expected: i64,
        found: i64,
    },
    #[error("revision {version}: acquireTime is not that of the term's first revision")]
    AcquireTime { version: String },
    #[error("revision {version}: `{by}` took the lease {early:?} before the record of `{holder}` expired")]
    Early {
        version: String,
        holder: String,
        by: String,
        early: Duration,
    },
    #[error("{act}: it acted without holding the lease")]
    WithoutLease { act: Act },
    #[error("{act}: it acted although `{holder}` had written revision {version} already")]
    Outlived {
        act: Act,
        holder: String,
        version: String,
    },
    #[error("two acted at once: {one}; {other}")]
    Overlap { one: Act, other: Act },
}

/// All rules that a history breaks. `seconds` is the lease duration of all candidates. `acts` are of
/// candidates with a gate; others are judged by what they write alone.
pub(crate) fn check(revisions: &[Revision], acts: &[Act], seconds: u64) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, revision) in revisions.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .map(|before| &revisions[before])
            .filter(|before| before.uid == revision.uid);
        check_shape(revision, seconds, &mut found);
        check_step(
            before,
            revision,
            seen_from(&revisions[..index], revision),
            &mut found,
        );
    }
    for (index, act) in acts.iter().enumerate() {
        check_act(revisions, act, &mut found);
        for other in &acts[..index] {
            if act.from <= other.until && other.from <= act.until {
                found.push(Violation::Overlap {
                    one: other.clone(),
                    other: act.clone(),
                });
            }
        }
    }
    found
}

/// Who held the lease, with the transitions, one entry a term.
pub(crate) fn terms(revisions: &[Revision]) -> Vec<(String, i64)> {
    let mut terms: Vec<(String, i64)> = revisions
        .iter()
        .filter(|revision| !revision.holder.is_empty())
        .map(|revision| (revision.holder.clone(), revision.transitions))
        .collect();
    terms.dedup();
    terms
}

fn check_shape(revision: &Revision, seconds: u64, found: &mut Vec<Violation>) {
    if revision.fields != FIELDS {
        found.push(Violation::Fields {
            version: revision.version.clone(),
            fields: revision.fields.clone(),
        });
    }
    // A released record says 1: the API refuses 0.
    let expected = if revision.holder.is_empty() { 1 } else { seconds };
    if revision.seconds != expected {
        found.push(Violation::LeaseDuration {
            version: revision.version.clone(),
            expected,
            found: revision.seconds,
        });
    }
}

/// The time of the record from which on who took the Lease with `taken` may have counted. client-go compares
/// records by whole seconds and does not see a renewal within the second of the one before. Its leaders write
/// such ones: they renew at once what they have acquired.
fn seen_from(before: &[Revision], taken: &Revision) -> Option<Timestamp> {
    let last = before.last()?;
    let second = |revision: &Revision| revision.renewed.map(Timestamp::as_second);
    let looks_the_same = |revision: &&Revision| {
        let same_term = revision.uid == last.uid && revision.acquired == last.acquired;
        taken.holder.starts_with("clientgo-") && same_term && second(revision) == second(last)
    };
    let first = before.iter().rev().take_while(looks_the_same).last();
    first.unwrap_or(last).renewed
}

fn check_step(
    before: Option<&Revision>,
    revision: &Revision,
    seen_from: Option<Timestamp>,
    found: &mut Vec<Violation>,
) {
    let version = || revision.version.clone();
    let same_term = before.is_some_and(|before| goes_on(before, revision));
    let expected = match before {
        None => 0,
        Some(before) if same_term || revision.holder.is_empty() => before.transitions,
        Some(before) => before.transitions + 1,
    };
    if revision.transitions != expected {
        found.push(Violation::Transitions {
            version: version(),
            expected,
            found: revision.transitions,
        });
    }
    let acquired = match before {
        Some(before) if same_term => before.acquired,
        _ => revision.renewed,
    };
    if revision.acquired != acquired {
        found.push(Violation::AcquireTime { version: version() });
    }
    if let Some(before) = before
        && !same_term
        && !before.holder.is_empty()
        && !revision.holder.is_empty()
    {
        // An attempt that may take over begins when the record has been seen unchanged for its duration; it
        // was seen when it was stored or later, and stored after the attempt to write it had begun.
        let apart = match (seen_from, revision.renewed) {
            (Some(before), Some(renewed)) => Duration::try_from(renewed.duration_since(before)).ok(),
            _ => None,
        };
        let early = Duration::from_secs(before.seconds).saturating_sub(apart.unwrap_or_default());
        if !early.is_zero() {
            found.push(Violation::Early {
                version: version(),
                holder: before.holder.clone(),
                by: revision.holder.clone(),
                early,
            });
        }
    }
}

/// Whether a revision belongs to the term of the one before. A holder may also begin a term anew, as somebody
/// else would: a process of ours does, that finds a record of its own name which it did not write.
fn goes_on(before: &Revision, revision: &Revision) -> bool {
    let anew = revision.acquired == revision.renewed && revision.transitions == before.transitions + 1;
    before.holder == revision.holder && !anew
}

fn check_act(revisions: &[Revision], act: &Act, found: &mut Vec<Violation>) {
    let of_term =
        |revision: &Revision| revision.holder == act.identity && revision.transitions == act.transitions;
    let first = revisions.iter().position(of_term);
    let last = revisions.iter().rposition(of_term);
    let (Some(first), Some(last)) = (first, last) else {
        return found.push(Violation::WithoutLease { act: act.clone() });
    };
    if act.from < revisions[first].written {
        found.push(Violation::WithoutLease { act: act.clone() });
    }
    if let Some(next) = revisions.get(last + 1)
        && next.received < act.until
    {
        found.push(Violation::Outlived {
            act: act.clone(),
            holder: next.holder.clone(),
            version: next.version.clone(),
        });
    }
}
