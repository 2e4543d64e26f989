//! Answers of a provider that cannot be. They are faults: what is built on them would be wrong for as long as
//! the pod lives. Times in the future alone are corrected: clocks differ, and what happened did happen.

use super::call::NONSENSE;
use crate::core::pod::specs;
use crate::provider::{
    ContainerId, Doing, Exit, Fault, FaultKind, Observed, PodId, PodState, Sandbox, Started,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// How far a provider's clock may be ahead of ours.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// What is wrong with an answer.
type Checked = Result<(), String>;

/// Makes a fault of it, and a line in the log.
pub(crate) fn fault(call: &'static str, pod: &PodId, why: String) -> Fault {
    tracing::warn!(%pod, uid = %pod.uid, node = %pod.node, call, why, "the provider's answer makes no sense, it is not believed");
    let message = format!("the provider's answer to {call} cannot be: {why}");
    Fault::new(FaultKind::Later, NONSENSE, message)
}

/// Names of all containers of a pod.
pub(crate) fn names(pod: &Pod) -> BTreeSet<&str> {
    specs(pod).into_iter().map(|spec| spec.name).collect()
}

/// The answer to `status`.
pub(crate) fn state(pod: &Pod, state: &mut PodState, now: Timestamp) -> Checked {
    sandbox(&state.sandbox)?;
    let names = names(pod);
    let mut ids = BTreeSet::new();
    for (name, known) in &mut state.containers {
        if !names.contains(name.as_str()) {
            return Err(format!("the pod has no container {name:?}"));
        }
        observed(known, now).map_err(|why| format!("container {name:?}: {why}"))?;
        if !ids.insert(known.id.clone()) {
            return Err(format!("two containers have the ID {:?}", known.id.0));
        }
    }
    Ok(())
}

/// The answer to `create`.
pub(crate) fn sandbox(sandbox: &Sandbox) -> Checked {
    let fours = sandbox
        .addresses
        .iter()
        .filter(|address| address.is_ipv4())
        .count();
    if fours > 1 || sandbox.addresses.len() - fours > 1 {
        return Err("more than one address of a family".to_owned());
    }
    match sandbox.addresses.iter().find(|address| is_nobodys(**address)) {
        Some(address) => Err(format!("{address} is no address of a pod")),
        None => Ok(()),
    }
}

fn is_nobodys(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_multicast()
}

/// The answer to `start` of a container. `scheme`: of the provider's IDs; `taken`: the IDs that the pod's
/// containers have so far, by name.
pub(crate) fn started(
    started: &mut Started,
    container: &str,
    scheme: &str,
    taken: &[(Arc<str>, ContainerId)],
    now: Timestamp,
) -> Checked {
    let new = &*started.id.0;
    id(new)?;
    if new.split_once("://").is_none_or(|(theirs, _)| theirs != scheme) {
        return Err(format!(
            "{new:?} is of another runtime: this one's are {scheme}://ID"
        ));
    }
    if let Some((holder, _)) = taken.iter().find(|(_, known)| *known.0 == *new) {
        return Err(if **holder == *container {
            format!("the new container has the ID of the one before it, {new:?}")
        } else {
            format!("container {holder:?} has the ID {new:?} already")
        });
    }
    started.at = time("startedAt", started.at, now);
    Ok(())
}

/// The answer to `stop`, or a report.
pub(crate) fn exit(exit: &mut Exit, now: Timestamp) -> Checked {
    let at = time("finishedAt", exit.at, now);
    if at != exit.at {
        // A clock that is ahead is so for both.
        exit.started_at = exit.started_at.map(|began| began.min(at));
        exit.at = at;
    }
    match exit.started_at {
        Some(began) if began > exit.at => Err(format!("it ended at {}, before it began at {began}", exit.at)),
        _ => Ok(()),
    }
}

pub(crate) fn observed(observed: &mut Observed, now: Timestamp) -> Checked {
    id(&observed.id.0)?;
    match &mut observed.doing {
        Doing::Running { since } | Doing::Stalled { since, .. } => *since = time("startedAt", *since, now),
        Doing::Ended(ended) => exit(ended, now)?,
    }
    Ok(())
}

fn id(id: &str) -> Checked {
    if id
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
    {
        Ok(())
    } else {
        Err(format!("{id:?} is no container ID: it is RUNTIME://ID"))
    }
}

/// The time, or now where it is in the future: what is reported is true all the same, and is not said again.
fn time(what: &str, at: Timestamp, now: Timestamp) -> Timestamp {
    if at.duration_since(now) > AHEAD {
        tracing::warn!(what, %at, %now, "the provider's clock is ahead, its time is taken for now; set the clocks");
        return now;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "first"}], "containers": [{"name": "app"}, {"name": "log"}]}}))
        .unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn running(id: &str, since: i64) -> Observed {
        Observed {
            id: ContainerId(id.into()),
            doing: Doing::Running { since: at(since) },
        }
    }

    fn with(containers: &[(&str, Observed)]) -> PodState {
        PodState {
            sandbox: Sandbox::default(),
            containers: containers
                .iter()
                .map(|(name, observed)| ((*name).to_owned(), observed.clone()))
                .collect(),
        }
    }

    #[test]
    fn states_that_cannot_be_are_told_from_those_that_can() {
        let mut good = with(&[("first", running("a://1", 0)), ("app", running("a://2", 59))]);
        let before = good.clone();
        assert_eq!(state(&pod(), &mut good, at(0)), Ok(()));
        assert_eq!(good, before);
        for (mut bad, why) in [
            (
                with(&[("apq", running("a://1", 0))]),
                "the pod has no container \"apq\"",
            ),
            (
                with(&[("app", running("a://1", 0)), ("log", running("a://1", 0))]),
                "two containers have the ID \"a://1\"",
            ),
            (with(&[("app", running("", 0))]), "is no container ID"),
            (with(&[("app", running("://", 0))]), "is no container ID"),
        ] {
            let found = state(&pod(), &mut bad, at(0)).unwrap_err();
            assert!(found.contains(why), "{found:?} for {why:?}");
        }
    }

    #[test]
    fn times_of_a_clock_that_is_ahead_are_taken_for_now() {
        let mut ahead = with(&[("app", running("a://1", 61))]);
        assert_eq!(state(&pod(), &mut ahead, at(0)), Ok(()));
        assert_eq!(ahead, with(&[("app", running("a://1", 0))]));
        let mut ended = Exit {
            code: 1,
            reason: String::new(),
            message: String::new(),
            started_at: Some(at(70)),
            at: at(90),
        };
        assert_eq!(exit(&mut ended, at(0)), Ok(()));
        assert_eq!((ended.started_at, ended.at), (Some(at(0)), at(0)));
    }

    #[test]
    fn a_sandbox_has_at_most_one_address_of_each_family() {
        let of = |addresses: &[&str]| Sandbox {
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        for (addresses, good) in [
            (&[][..], true),
            (&["10.0.0.1"], true),
            (&["10.0.0.1", "fd00::1"], true),
            (&["10.0.0.1", "10.0.0.2"], false),
            (&["0.0.0.0"], false),
            (&["ff02::1"], false),
        ] {
            assert_eq!(sandbox(&of(addresses)).is_ok(), good, "{addresses:?}");
        }
    }

    #[test]
    fn a_container_that_started_anew_has_a_new_id_and_none_ends_before_it_began() {
        let mut new = Started {
            id: ContainerId("a://2".into()),
            image_id: String::new(),
            at: at(0),
        };
        let taken = |app: &str, log: &str| {
            let of = |name: &str, id: &str| (Arc::from(name), ContainerId(id.into()));
            [of("app", app), of("log", log)]
        };
        let mut check = |scheme, taken: &[_]| started(&mut new, "app", scheme, taken, at(0));
        assert_eq!(check("a", &taken("a://1", "a://3")), Ok(()));
        for (scheme, taken, why) in [
            ("a", taken("a://2", "a://3"), "the one before it"),
            ("a", taken("a://1", "a://2"), "container \"log\" has"),
            ("b", taken("a://1", "a://3"), "another runtime"),
        ] {
            let found = check(scheme, &taken).unwrap_err();
            assert!(found.contains(why), "{found:?} for {why:?}");
        }
        let mut ended = Exit {
            code: 0,
            reason: String::new(),
            message: String::new(),
            started_at: Some(at(5)),
            at: at(4),
        };
        assert!(exit(&mut ended, at(10)).unwrap_err().contains("before it began"));
    }
}
