//! What is to be probed: the manifest read, checked and cut down to what was asked for.

use super::super::args::RunArgs;
use super::super::error::CliError;
use super::super::program;
use super::super::workload::{self, Checked};
use super::Validate;
use crate::core::{Handler, HttpGet, Kind, Pod, Role};
use crate::handler::{exec, port};
use crate::manifest::{self, Documents, Workload};
use evenkeel_api::names::annotations::PROBES;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// A pod, ready to be probed.
pub(super) struct Setup {
    pub(super) pod: Arc<Pod>,
    pub(super) workload: Workload,
    pub(super) strict: bool,
    pub(super) address: Option<IpAddr>,
    /// `terminationGracePeriodSeconds`.
    pub(super) grace: Duration,
    /// What to know about this run.
    pub(super) notes: Vec<String>,
}

/// `terminationGracePeriodSeconds` where the manifest has none, as in Kubernetes.
const GRACE: Duration = Duration::from_secs(30);

pub(super) fn setup(args: &RunArgs, documents: Documents, validate: Validate<'_>) -> Result<Setup, CliError> {
    let Checked { workload, skipped } = workload::only(documents, validate)?;
    let mut notes = skipped;
    let pod = pod(args, &workload)?;
    let used = used(args, &workload, &pod)?;
    let known = manifest::status_of(&workload.pod).address;
    let host_network = workload.pod["spec"]["hostNetwork"] == true;
    let address = args
        .address
        .or(known)
        .or_else(|| (args.cri.is_none() || host_network).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    if used.network && address.is_none() {
        return Err(CliError::usage(format!(
            "{}: {} has no status.podIP; give the pod's address with --address IP",
            workload.origin,
            workload.title()
        )));
    }
    if used.network && args.address.is_none() && known.is_none() {
        notes.push(
            "the pod is taken to be at 127.0.0.1: neither --address nor status.podIP is given".to_owned(),
        );
    }
    notes.extend(assumptions(args, &workload, &pod, &used));
    // An API server makes 1 of less than nothing.
    let grace = workload.pod["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .map_or(GRACE, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
        });
    Ok(Setup {
        pod: Arc::new(pod),
        strict: args.strict,
        address,
        grace,
        notes,
        workload,
    })
}

/// The pod of the manifest, cut down to the container that was asked for.
fn pod(args: &RunArgs, workload: &Workload) -> Result<Pod, CliError> {
    let problems = |error: manifest::ConvertError| workload::problems(workload, &error);
    let mut pod = if args.strict {
        workload.to_strict_pod(&manifest::read_file).map_err(problems)?
    } else {
        workload.to_pod().map_err(problems)?
    };
    if let Some(name) = &args.container {
        if pod.container(name).is_none() {
            let names: Vec<&str> = pod.containers.iter().map(|container| &*container.name).collect();
            return Err(CliError::usage(format!(
                "--container: {} has no container {name:?}, it has {}",
                workload.origin,
                names.join(", ")
            )));
        }
        pod.containers.retain(|container| *container.name == **name);
    }
    Ok(pod)
}

/// What the probes of a pod use.
struct Used {
    /// They connect to the pod.
    network: bool,
    /// They run commands on this machine.
    local_commands: bool,
}

/// Checks the probes, of which there must be one at least. All that is wrong is reported at once.
fn used(args: &RunArgs, workload: &Workload, pod: &Pod) -> Result<Used, CliError> {
    let origin = &workload.origin;
    let mut used = Used {
        network: false,
        local_commands: false,
    };
    let mut wrong = Vec::new();
    let probes = pod.containers.iter().flat_map(|container| {
        Kind::ALL
            .into_iter()
            .filter_map(move |kind| Some((container, kind, container.probe(kind)?)))
    });
    let mut any = false;
    for (container, kind, probe) in probes {
        any = true;
        if let Handler::HttpGet(HttpGet { port, .. }) | Handler::TcpSocket { port, .. } = &probe.handler
            && let Err(reason) = port::resolve(port, container)
        {
            wrong.push(format!(
                "{origin}: {}: {} of container {:?} would always error: {reason}; name a port of the container, or \
                 give its number",
                workload.title(),
                kind.field(),
                container.name
            ));
        }
        let Handler::Exec { command } = &probe.handler else {
            used.network = true;
            continue;
        };
        if args.cri.is_some() {
            continue;
        }
        used.local_commands = true;
        // What cannot be expanded is reported by the probe's first result.
        if let Ok(command) = exec::expand(command, &container.env)
            && let Some(program) = command.first()
            && let Err(reason) = program::find(program)
        {
            wrong.push(format!(
                "{origin}: {} of container {:?}: {reason}, or --cri SOCKET to run it in its container",
                kind.field(),
                container.name
            ));
        }
    }
    if !any {
        return Err(CliError::usage(format!(
            "{origin}: {} has no probes{}; there is nothing to run",
            workload.title(),
            args.container
                .as_ref()
                .map_or_else(String::new, |name| format!(" in container {name:?}"))
        )));
    }
    if wrong.is_empty() {
        Ok(used)
    } else {
        Err(CliError::all(wrong))
    }
}

/// What a run takes to be true, or leaves out.
fn assumptions(args: &RunArgs, workload: &Workload, pod: &Pod, used: &Used) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |holds: bool, text: &str| {
        if holds {
            notes.push(text.to_owned());
        }
    };
    let assumed = args.cri.is_none();
    note(
        assumed,
        "the containers are taken to run; nothing is killed, restarts are only counted",
    );
    note(
        used.local_commands,
        "commands of exec probes run on this machine (--cri SOCKET runs them in their container)",
    );
    let mut containers = pod.containers.iter();
    note(
        assumed && containers.any(|container| container.role == Role::Init),
        "init containers are taken to have ended well",
    );
    let gates = workload.pod["spec"]["readinessGates"].as_array();
    note(
        gates.is_some_and(|gates| !gates.is_empty()),
        "readinessGates are not looked at: Ready here means that all containers are",
    );
    note(
        !args.strict && !workload.pod["metadata"]["annotations"][PROBES].is_null(),
        &format!("the annotation {PROBES} counts with --strict alone"),
    );
    notes
}
