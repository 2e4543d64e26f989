//! What a test asks of a candidate. Times are milliseconds after the start.

use super::*;
use world::Candidate;

impl Candidate {
    fn find<T>(&self, pick: impl Fn(&Action) -> Option<T>) -> Vec<(u64, T)> {
        let pick = |(at, action): &(Duration, Action)| Some((since(*at), pick(action)?));
        self.log.iter().filter_map(pick).collect()
    }

    /// Its requests, and when.
    pub(super) fn requests(&self) -> Vec<(u64, &'static str)> {
        self.find(|action| match action {
            Action::Get => Some("get"),
            Action::Create(_) => Some("create"),
            Action::Update { .. } => Some("update"),
            _ => None,
        })
    }

    pub(super) fn calls(&self) -> Vec<&'static str> {
        self.requests().into_iter().map(|(_, call)| call).collect()
    }

    /// `became leader` and `stopped leading`, and when.
    pub(super) fn announced(&self) -> Vec<(u64, Announcement)> {
        self.find(|action| match action {
            Action::Announce(what) => Some(*what),
            _ => None,
        })
    }

    pub(super) fn losses(&self) -> Vec<(u64, Loss)> {
        self.find(|action| match action {
            Action::Lost(loss) => Some(loss.clone()),
            _ => None,
        })
    }

    pub(super) fn states(&self) -> Vec<(u64, State)> {
        self.find(|action| match action {
            Action::Publish(state) => Some(state.clone()),
            _ => None,
        })
    }

    /// The holders reported, and when.
    pub(super) fn leaders(&self) -> Vec<(u64, String)> {
        self.find(|action| match action {
            Action::NewLeader(holder) => Some(holder.clone()),
            _ => None,
        })
    }

    pub(super) fn count(&self, action: &Action) -> usize {
        self.log.iter().filter(|(_, found)| found == action).count()
    }

    /// When the gate was open: from, and the first millisecond at which it was not any more.
    pub(super) fn open(&self) -> Vec<(Duration, Duration)> {
        let mut spans: Vec<(Duration, Duration)> = vec![];
        let mut open = false;
        for (at, action) in &self.log {
            match action {
                Action::OpenGate { valid_until, .. } => {
                    match spans.last_mut() {
                        Some(last) if open && *at <= last.1 => last.1 = *valid_until,
                        _ => spans.push((*at, *valid_until)),
                    }
                    open = true;
                }
                Action::CloseGate => {
                    open = false;
                    if let Some(last) = spans.last_mut() {
                        last.1 = last.1.min(*at);
                    }
                }
                _ => {}
            }
        }
        spans
    }

    /// The same in milliseconds after the start.
    pub(super) fn open_ms(&self) -> Vec<(u64, u64)> {
        let spans = self.open().into_iter();
        spans.map(|(from, to)| (since(from), since(to))).collect()
    }

    pub(super) fn leads(&self) -> bool {
        self.machine.state().leads()
    }

    /// Why it has ended, and when.
    pub(super) fn stopped(&self) -> Option<(u64, StopReason)> {
        let states = self.states().into_iter();
        let mut stops = states.filter_map(|(at, state)| match state {
            State::Stopped { reason } => Some((at, reason)),
            _ => None,
        });
        stops.next()
    }

    /// Forgets what was logged so far.
    pub(super) fn forget(&mut self) {
        self.log.clear();
    }
}
