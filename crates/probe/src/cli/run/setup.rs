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
    let origin = workload.origin.clone();
    let told = |error: manifest::ConvertError| workload::problems(&workload, &error);
    let mut pod = if args.strict {
        workload.to_strict_pod(&manifest::read_file).map_err(told)?
    } else {
        workload.to_pod().map_err(told)?
    };
    if let Some(name) = &args.container {
        if pod.container(name).is_none() {
            let names: Vec<&str> = pod.containers.iter().map(|container| &*container.name).collect();
            return Err(CliError::usage(format!(
                "--container: {origin} has no container {name:?}, it has {}",
                names.join(", ")
            )));
        }
        pod.containers.retain(|container| *container.name == **name);
    }
    let probes = || {
        pod.containers.iter().flat_map(|container| {
            Kind::ALL
                .into_iter()
                .filter_map(move |kind| Some((container, kind, container.probe(kind)?)))
        })
    };
    if probes().next().is_none() {
        return Err(CliError::usage(format!(
            "{origin}: {} has no probes{}; there is nothing to run",
            workload.title(),
            args.container
                .as_ref()
                .map_or_else(String::new, |name| format!(" in container {name:?}"))
        )));
    }
    let mut wrong = Vec::new();
    let (mut runs_here, mut asks) = (false, false);
    for (container, kind, probe) in probes() {
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
            asks = true;
            continue;
        };
        runs_here |= args.cri.is_none();
        if args.cri.is_none()
            // What cannot be expanded is told by the probe's first result.
            && let Ok(command) = exec::expand(command, &container.env)
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
    if !wrong.is_empty() {
        return Err(CliError::all(wrong));
    }

    let known = manifest::status_of(&workload.pod).address;
    let host_network = workload.pod["spec"]["hostNetwork"] == true;
    let address = args
        .address
        .or(known)
        .or_else(|| (args.cri.is_none() || host_network).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    if asks && address.is_none() {
        return Err(CliError::usage(format!(
            "{origin}: {} has no status.podIP; give the pod's address with --address IP",
            workload.title()
        )));
    }
    if asks && args.address.is_none() && known.is_none() {
        notes.push(
            "the pod is taken to be at 127.0.0.1: neither --address nor status.podIP is given".to_owned(),
        );
    }
    if args.cri.is_none() {
        notes
            .push("the containers are taken to run; nothing is killed, restarts are only counted".to_owned());
    }
    if runs_here {
        notes.push(
            "commands of exec probes run on this machine (--cri SOCKET runs them in their container)"
                .to_owned(),
        );
    }
    if args.cri.is_none()
        && pod
            .containers
            .iter()
            .any(|container| container.role == Role::Init)
    {
        notes.push("init containers are taken to have ended well".to_owned());
    }
    let spec = &workload.pod["spec"];
    if spec["readinessGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        notes.push("readinessGates are not looked at: Ready here means that all containers are".to_owned());
    }
    if !args.strict && !workload.pod["metadata"]["annotations"][PROBES].is_null() {
        notes.push(format!("the annotation {PROBES} counts with --strict alone"));
    }
    // An API server makes 1 of less than nothing.
    let grace = spec["terminationGracePeriodSeconds"]
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
