//! One view of a pod's containers of all kinds.

use evenkeel_probe::core::{self as probe, RestartPolicy, RestartRule};
use k8s_openapi::api::core::v1::{Pod, Probe, ResourceRequirements};
use std::sync::Arc;
use std::time::Duration;

/// A container's part in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Under `initContainers`, runs to its end.
    Init,
    /// Under `initContainers` with `restartPolicy: Always`.
    Sidecar,
    /// Under `containers`.
    Regular,
    /// Under `ephemeralContainers`: started once.
    Ephemeral,
}

impl Role {
    /// The part as the prober has it.
    pub(crate) fn probed(self) -> probe::Role {
        match self {
            Self::Init => probe::Role::Init,
            Self::Sidecar => probe::Role::Sidecar,
            Self::Regular | Self::Ephemeral => probe::Role::Regular,
        }
    }
}

/// What the machine needs of a container's specification.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Its name, which no other container of the pod has.
    pub name: &'a str,
    /// Its part in the pod.
    pub role: Role,
    pub(super) image: &'a str,
    pub(super) policy: Option<RestartPolicy>,
    pub(super) startup: Option<&'a Probe>,
    pub(super) readiness: Option<&'a Probe>,
    pub(super) liveness: Option<&'a Probe>,
    pub(super) resources: Option<&'a ResourceRequirements>,
}

impl Spec<'_> {
    /// Whether the prober has anything to do with it.
    pub(crate) fn has_probes(&self) -> bool {
        matches!(self.role, Role::Sidecar | Role::Regular)
            && (self.startup.is_some() || self.readiness.is_some() || self.liveness.is_some())
    }
}

/// Init containers, regular ones, ephemeral ones, each in their order.
pub fn specs(pod: &Pod) -> Vec<Spec<'_>> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| (container, true));
    let regular = spec.containers.iter().map(|container| (container, false));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| Spec {
        name: &container.name,
        role: Role::Ephemeral,
        image: container.image.as_deref().unwrap_or_default(),
        policy: Some(RestartPolicy::Never),
        startup: None,
        readiness: None,
        liveness: None,
        resources: container.resources.as_ref(),
    });
    let all = init.chain(regular).map(|(container, init)| {
        let policy = container.restart_policy.as_deref().and_then(policy);
        Spec {
            name: &container.name,
            role: match (init, policy) {
                (false, _) => Role::Regular,
                (true, Some(RestartPolicy::Always)) => Role::Sidecar,
                (true, _) => Role::Init,
            },
            image: container.image.as_deref().unwrap_or_default(),
            policy,
            startup: container.startup_probe.as_ref(),
            readiness: container.readiness_probe.as_ref(),
            liveness: container.liveness_probe.as_ref(),
            resources: container.resources.as_ref(),
        }
    });
    all.chain(ephemeral).collect()
}

fn policy(name: &str) -> Option<RestartPolicy> {
    match name {
        "Always" => Some(RestartPolicy::Always),
        "OnFailure" => Some(RestartPolicy::OnFailure),
        "Never" => Some(RestartPolicy::Never),
        _ => None,
    }
}

/// The pod as the rules for restarts see it. Probes are left out, but for their grace periods.
pub(super) fn view(pod: &Pod, specs: &[Spec<'_>], rules: &[(Arc<str>, Vec<RestartRule>)]) -> probe::Pod {
    let own = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let containers = specs.iter().map(|spec| Arc::new(container(spec, rules)));
    probe::Pod {
        uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
        namespace: namespace(pod).into(),
        name: name(pod).into(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        restart_policy: own.and_then(policy).unwrap_or_default(),
        containers: containers.collect(),
    }
}

fn container(spec: &Spec<'_>, rules: &[(Arc<str>, Vec<RestartRule>)]) -> probe::Container {
    let own = rules.iter().find(|(name, _)| &**name == spec.name);
    let grace = |probe: Option<&Probe>| {
        let seconds = probe?.termination_grace_period_seconds?;
        // Where it leads does not matter to who kills.
        let mut probe = probe::Probe::new(probe::Handler::Exec { command: Vec::new() });
        probe.termination_grace_period = Some(seconds_of(seconds));
        Some(Arc::new(probe))
    };
    probe::Container {
        name: spec.name.into(),
        role: spec.role.probed(),
        restart_policy: spec.policy,
        restart_rules: own.map(|(_, rules)| rules.clone()).unwrap_or_default(),
        startup: grace(spec.startup),
        liveness: grace(spec.liveness),
        ..probe::Container::default()
    }
}

/// Seconds as Kubernetes writes them; none are less than none.
pub(super) fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// `metadata.namespace`.
pub(super) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// `metadata.name`.
pub(super) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// As a kubelet names a pod in messages: `NAME_NAMESPACE(UID)`.
pub(super) fn title(pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    format!("{}_{}({uid})", name(pod), namespace(pod))
}

/// `metadata.generation`, where the API server counts it.
pub(super) fn generation(pod: &Pod) -> Option<i64> {
    pod.metadata.generation.filter(|generation| *generation > 0)
}
