//! What is reported to the prober.

use super::{Action, ProbeOrder};
use evenkeel_api::names::annotations::PROBES;
use evenkeel_probe::core::PodStatus;
use k8s_openapi::api::core::v1::Pod;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

/// What the prober knows of the pod; digests.
#[derive(Debug, Default)]
pub(super) enum Probing {
    /// Nothing: the pod has no probes, does not run yet, or is over.
    #[default]
    Unknown,
    Watched {
        annotation: u64,
        status: Option<NonZeroU64>,
        terminating: bool,
    },
}

impl Probing {
    /// The pod is over.
    pub(super) fn forget(&mut self, out: &mut Vec<Action>) {
        if matches!(self, Self::Watched { .. }) {
            *self = Self::Unknown;
            out.push(Action::Probe(ProbeOrder::Forget));
        }
    }

    /// Reports what has changed of a pod that runs and has probes. Of one that ends before it was ever
    /// watched there is nothing to report.
    pub(super) fn update(
        &mut self,
        pod: &Pod,
        ending: bool,
        status: impl FnOnce() -> PodStatus,
        out: &mut Vec<Action>,
    ) {
        if !ending {
            self.watch(annotation(pod), out);
        }
        let Self::Watched {
            status: known,
            terminating,
            ..
        } = self
        else {
            return;
        };
        let status = status();
        let digest = Some(digest(&status));
        if *known != digest {
            *known = digest;
            out.push(Action::Probe(ProbeOrder::Status(status)));
        }
        if ending && !std::mem::replace(terminating, true) {
            out.push(Action::Probe(ProbeOrder::Terminating));
        }
    }

    fn watch(&mut self, new: u64, out: &mut Vec<Action>) {
        match self {
            Self::Watched { annotation, .. } if *annotation == new => return,
            Self::Watched { annotation, .. } => *annotation = new,
            Self::Unknown => {
                *self = Self::Watched {
                    annotation: new,
                    status: None,
                    terminating: false,
                };
            }
        }
        out.push(Action::Probe(ProbeOrder::Watch));
    }
}

/// Digest of what decides how the pod is probed and can change while it runs.
fn annotation(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(PROBES)).hash(&mut hasher);
    hasher.finish()
}

fn digest(status: &PodStatus) -> NonZeroU64 {
    struct Sink(DefaultHasher);
    impl Write for Sink {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    // A hasher takes all.
    let _ = write!(sink, "{status:?}");
    NonZeroU64::new(sink.0.finish()).unwrap_or(NonZeroU64::MIN)
}
