//! How far we can see: watches that are proven live, and what holds while they are not.
//!
//! *Our blindness is not their silence* (hazard 55). Silence counts only on a watch that is proven live.
//! While a watch is not, whatever would harm a node is held; evidence of life is acted on at once, whichever
//! watch shows it.

use evenkeel_zone::Millis;

/// A watch is proven live for this long by an event, a bookmark or an audit.
pub const PROVEN_MS: u64 = 5_000;
/// What was valid when sight was lost stays valid for this long after it returned: three attempts of an agent
/// that backs off for 5 s, and the 4.5 s between two reports.
pub const KEPT_MS: u64 = 20_000;
/// A hold ends this long after the last moment of full sight; then nothing is done for or against a node.
pub const HOLD_MS: u64 = 60_000;

/// Proof that one watch delivers: the unbroken stretch during which it was proven live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchProof {
    stretch: Option<(Millis, Millis)>,
}

impl WatchProof {
    /// Everything that happened before `at` has arrived. After a gap the stretch starts over.
    pub fn progress(&mut self, at: Millis) {
        self.stretch = Some(match self.stretch {
            Some((since, last)) if at.since(last) < PROVEN_MS => (since, last.max(at)),
            _ => (at, at),
        });
    }

    /// The watch is known to have missed something: it has to prove itself anew.
    pub fn broken(&mut self) {
        self.stretch = None;
    }

    /// When the watch was last proven live.
    pub fn last(&self) -> Option<Millis> {
        self.stretch.map(|(_, last)| last)
    }

    /// Since when the watch has been proven live without a gap; `None` if it is not proven live at `now`.
    pub fn live_since(&self, now: Millis) -> Option<Millis> {
        self.stretch
            .filter(|(_, last)| now.since(*last) < PROVEN_MS)
            .map(|(since, _)| since)
    }
}

/// The watches that a decision rests on, and the last time that one of them failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The watch of node Leases.
    pub leases: WatchProof,
    /// The watch of the zones' reports.
    pub reports: WatchProof,
    /// The last moment of full sight, or the start of this process.
    last_full: Millis,
    /// The last gap: when sight was lost, and when it was full again.
    gap: (Millis, Option<Millis>),
}

impl Sight {
    /// At the start nothing is seen: a gap that lasts until both watches are proven live.
    pub fn new(now: Millis) -> Self {
        Self {
            leases: WatchProof::default(),
            reports: WatchProof::default(),
            last_full: now,
            gap: (now, None),
        }
    }

    /// Notes whether sight is full at `now`. Call it before each round of decisions, and at least every
    /// second.
    pub fn look(&mut self, now: Millis) {
        let full = self.leases.live_since(now).is_some() && self.reports.live_since(now).is_some();
        // After a suspend of the machine, what had waited may be taken in before anybody looks.
        if self.gap.1.is_some() && now.since(self.last_full) >= PROVEN_MS {
            self.gap = (self.last_full, None);
        }
        match (full, self.gap) {
            (true, (_, None)) => self.gap.1 = Some(now),
            // Sight that returned for a moment only has brought no new evidence: the gap goes on. After a
            // restart of the API server an audit may prove a watch live just before the watch is told to list
            // anew.
            (false, (lost, Some(returned)))
                if now.since(returned) < KEPT_MS && now.since(lost) < HOLD_MS + KEPT_MS =>
            {
                self.gap.1 = None;
            }
            (false, (_, Some(_))) => self.gap = (self.last_full, None),
            (true, (_, Some(_))) | (false, (_, None)) => {}
        }
        if full {
            self.last_full = now;
        }
    }

    /// What can be seen at `now`, as of the last [`Sight::look`].
    pub fn at(&self, now: Millis) -> View {
        if self.gap.1.is_some() {
            View::Full
        } else if now.since(self.last_full) < HOLD_MS {
            View::Held
        } else {
            View::Lost
        }
    }

    /// Whether evidence that was valid until `until` counts at `now`, though its time may be over: it was
    /// valid when sight was lost, and sight is not back for long enough that newer evidence must have come.
    pub fn keeps(&self, until: Millis, now: Millis) -> bool {
        let (lost, returned) = self.gap;
        until > lost && returned.is_none_or(|returned| now.since(returned) < KEPT_MS)
    }

    /// Whether sight was full again less than [`KEPT_MS`] ago, or is not yet.
    pub fn is_recovering(&self, now: Millis) -> bool {
        self.gap.1.is_none_or(|returned| now.since(returned) < KEPT_MS)
    }
}

/// What can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Every watch is proven live.
    Full,
    /// Some watch is not. What would harm a node is held.
    Held,
    /// That has lasted for longer than [`HOLD_MS`]: nothing is done for or against a node, and stock
    /// Kubernetes acts.
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1000)
    }

    /// Both watches proven live every second from `from` to `to`.
    fn see(sight: &mut Sight, from: u64, to: u64) {
        for at in from..=to {
            sight.leases.progress(second(at));
            sight.reports.progress(second(at));
            sight.look(second(at));
        }
    }

    #[test]
    fn a_gap_of_proof_starts_the_stretch_over() {
        let mut watch = WatchProof::default();
        watch.progress(second(0));
        watch.progress(second(4));
        assert_eq!(watch.live_since(second(8)), Some(second(0)));
        assert_eq!(watch.live_since(second(9)), None);
        watch.progress(second(9));
        assert_eq!(watch.live_since(second(9)), Some(second(9)));
        watch.broken();
        assert_eq!(watch.live_since(second(9)), None);
    }

    #[test]
    fn sight_is_full_only_with_both_watches() {
        let mut sight = Sight::new(second(0));
        sight.leases.progress(second(1));
        sight.look(second(1));
        assert_eq!(sight.at(second(1)), View::Held);
        sight.reports.progress(second(1));
        sight.look(second(1));
        assert_eq!(sight.at(second(1)), View::Full);
    }

    #[test]
    fn a_hold_ends_a_minute_after_the_last_full_sight() {
        let mut sight = Sight::new(second(0));
        see(&mut sight, 1, 10);
        for at in 11..=69 {
            sight.leases.progress(second(at));
            sight.look(second(at));
            let expected = if at < 15 { View::Full } else { View::Held };
            assert_eq!(sight.at(second(at)), expected, "second {at}");
        }
        // The reports were last proven at second 10, which proves them live until second 14.
        sight.look(second(74));
        assert_eq!(sight.at(second(74)), View::Lost);
    }

    #[test]
    fn sight_that_returns_for_a_moment_does_not_end_a_gap() {
        let mut sight = Sight::new(second(0));
        see(&mut sight, 1, 100);
        for at in 101..=130 {
            sight.look(second(at));
        }
        see(&mut sight, 131, 131);
        sight.reports.broken();
        sight.look(second(132));
        assert!(sight.keeps(second(105), second(133)));
        see(&mut sight, 134, 153);
        assert!(sight.keeps(second(105), second(153)));
        assert!(!sight.keeps(second(105), second(154)));
    }

    /// The machine was suspended for ten minutes, and what waited is taken in before anybody looks.
    #[test]
    fn a_stall_is_a_gap_though_sight_is_full_at_the_next_look() {
        let mut sight = Sight::new(second(0));
        see(&mut sight, 1, 100);
        see(&mut sight, 700, 700);
        assert_eq!(sight.at(second(700)), View::Full);
        assert!(sight.keeps(second(105), second(719)));
        assert!(!sight.keeps(second(105), second(720)));
    }

    #[test]
    fn sight_that_flickers_keeps_no_evidence_for_ever() {
        let mut sight = Sight::new(second(0));
        see(&mut sight, 1, 100);
        for at in 101..=400 {
            if at % 10 == 0 {
                see(&mut sight, at, at);
                sight.reports.broken();
            }
            sight.look(second(at));
        }
        assert!(!sight.keeps(second(105), second(400)));
    }

    #[test]
    fn what_was_valid_when_sight_was_lost_stays_valid_for_20_s_after_it_returned() {
        let mut sight = Sight::new(second(0));
        see(&mut sight, 1, 100);
        for at in 101..=130 {
            sight.look(second(at));
        }
        // Lost at second 104, when the last proof ran out.
        assert!(sight.keeps(second(105), second(130)));
        assert!(!sight.keeps(second(104), second(130)), "it was over before");
        see(&mut sight, 131, 150);
        assert!(sight.keeps(second(105), second(150)));
        assert!(!sight.keeps(second(105), second(151)));
    }
}
