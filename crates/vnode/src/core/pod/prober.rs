//! What is reported to the prober.

use super::{Action, ProbeOrder};
use evenkeel_probe::core::PodStatus;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroU64;

/// What the prober knows of the pod; digests.
#[derive(Debug, Default)]
pub(super) enum Probing {
    /// Nothing: the pod has no probes, does not run yet, or is over.
    #[default]
    Unknown,
    Watched {
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
    pub(super) fn update(&mut self, ending: bool, status: impl FnOnce() -> PodStatus, out: &mut Vec<Action>) {
        if !ending && matches!(self, Self::Unknown) {
            *self = Self::Watched {
                status: None,
                terminating: false,
            };
            out.push(Action::Probe(ProbeOrder::Watch));
        }
        let Self::Watched {
            status: known,
            terminating,
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
