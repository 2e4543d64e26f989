//! What there is of a pod at its provider.

use crate::core::reported::Sandbox;

/// What there is of the pod at the provider.
#[derive(Debug)]
pub(super) enum Presence {
    /// Perhaps something: it must be asked.
    Unknown,
    /// Nothing that runs.
    Absent {
        /// The provider may have something all the same, which is deleted with the pod.
        remains: bool,
        /// Why the pod cannot be created at present.
        hindrance: Option<Box<Hindrance>>,
    },
    /// A sandbox, perhaps with containers.
    Up {
        sandbox: Sandbox,
        /// A rule wants all containers to run again: first all must end.
        restarting_all: bool,
    },
    /// Nothing any more; the last status still shows what there was.
    Removed {
        sandbox: Sandbox,
        hindrance: Option<Box<Hindrance>>,
    },
}

/// Why a pod cannot be created.
#[derive(Debug)]
pub(super) struct Hindrance {
    /// What its containers wait for; none: what they always wait for at first.
    pub(super) reason: Option<String>,
    pub(super) message: String,
}

impl Presence {
    /// A sandbox in which nothing runs yet, or what an earlier process has started.
    pub(super) fn up(sandbox: Sandbox) -> Self {
        Self::Up {
            sandbox,
            restarting_all: false,
        }
    }

    pub(super) fn absent(remains: bool) -> Self {
        Self::Absent {
            remains,
            hindrance: None,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Whether the provider may have something of the pod.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Unknown | Self::Up { .. } => true,
            Self::Absent { remains, .. } => *remains,
            Self::Removed { .. } => false,
        }
    }

    /// The pod's sandbox, or the one that it had.
    pub(super) fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Self::Up { sandbox, .. } | Self::Removed { sandbox, .. } => Some(sandbox),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// Why the pod cannot be created, or could not until it was removed.
    pub(super) fn hindrance(&self) -> Option<&Hindrance> {
        match self {
            Self::Absent { hindrance, .. } | Self::Removed { hindrance, .. } => hindrance.as_deref(),
            Self::Unknown | Self::Up { .. } => None,
        }
    }

    /// A pod that was not created is hindered by this, and by nothing else.
    pub(super) fn hinder(&mut self, by: Option<Hindrance>) {
        if let Self::Absent { hindrance, .. } = self {
            *hindrance = by.map(Box::new);
        }
    }

    pub(super) fn is_restarting_all(&self) -> bool {
        matches!(
            self,
            Self::Up {
                restarting_all: true,
                ..
            }
        )
    }

    /// All containers of a pod that is up are to run again, or are about to.
    pub(super) fn restart_all(&mut self, under_way: bool) {
        if let Self::Up { restarting_all, .. } = self {
            *restarting_all = under_way;
        }
    }

    /// The provider has nothing of the pod any more.
    pub(super) fn remove(&mut self) {
        let (sandbox, hindrance) = match std::mem::replace(self, Self::Unknown) {
            Self::Up { sandbox, .. } => (sandbox, None),
            Self::Removed { sandbox, hindrance } => (sandbox, hindrance),
            Self::Absent { hindrance, .. } => (Sandbox::default(), hindrance),
            Self::Unknown => (Sandbox::default(), None),
        };
        *self = Self::Removed { sandbox, hindrance };
    }
}
