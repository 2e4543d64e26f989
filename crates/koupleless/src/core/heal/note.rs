//! What is reported to people of a healing.

use evenkeel_api::names::koupleless::healing;

/// A step of a healing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub scene: Scene,
    /// What happened, in words.
    pub message: String,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scene {
    /// The base is overloaded.
    Overload,
    /// Healing waits for something that the message names.
    Held,
    /// The taint is set.
    Begun,
    /// The pods have left.
    Drained,
    /// The modules are uninstalled.
    Uninstalled,
    /// The base's pod is being evicted.
    Replacing,
    /// The taint is gone.
    Ended,
    /// Healing ended and has not helped.
    GaveUp,
}

impl Scene {
    /// Reason of the Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Overload => healing::OVERLOAD,
            Self::Held => healing::HELD,
            Self::Begun => healing::BEGUN,
            Self::Drained => healing::DRAINED,
            Self::Uninstalled => healing::UNINSTALLED,
            Self::Replacing => healing::REPLACING,
            Self::Ended => healing::ENDED,
            Self::GaveUp => healing::GAVE_UP,
        }
    }

    /// Whether the Event is a warning.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::Overload | Self::Held | Self::GaveUp)
    }
}
