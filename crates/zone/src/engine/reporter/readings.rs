//! Readings of suspects' Leases: the renewals that rounds name.
//!
//! A reader counts a no only against exactly the last renewal that it knows itself. So a reading is of use
//! only if the node has not renewed its Lease since: if it was taken after the reporter lost contact, and
//! just before the round. Nothing depends on that for safety; a round that names an older renewal is void.

use super::View;
use crate::Millis;
use crate::engine::Output;
use crate::engine::context::Context;
use crate::engine::due::Due;
use crate::roster::MemberId;
use crate::wire::Renewal;
use std::collections::BTreeMap;

/// The Lease of a suspect is read at most this often, and a reading is used for as long: rounds about a young
/// death follow each other as closely, and each of them finds a reading or may take one.
const READ_EVERY_MS: u64 = 4_000;
/// A round waits at most this long for the answer.
pub(super) const WAIT_MS: u64 = 500;

/// What was read lately, and what is being read.
#[derive(Default)]
pub(super) struct Readings(BTreeMap<MemberId, Reading>);

struct Reading {
    asked: Millis,
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    Awaited,
    Failed,
    Read(Renewal),
}

/// Whether a round about a member may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It may, and it names this renewal.
    Ready(Option<Renewal>),
    /// It waits for an answer until this time.
    Waits(Millis),
}

impl Readings {
    /// Asks for the Lease of a member if the round about it, due at `round_at`, is soon and needs a reading.
    /// Says whether the round may begin. Where the API server can be asked neither by this agent nor for
    /// it, there is nothing to wait for.
    pub(super) fn prepare(
        &mut self,
        cx: &mut Context,
        view: View<'_>,
        (member, suspect_since): (MemberId, Option<Millis>),
        round_at: Millis,
        due: &mut Due,
    ) -> Readiness {
        let index = cx.roster().position(member);
        let peer = index.and_then(|index| view.contacts.peer(index));
        let Some(peer) = peer.filter(|_| member != cx.me()) else {
            return Readiness::Ready(None);
        };
        let (now, contact) = (cx.now(), peer.contact());
        // Its observers may have lost it before its silence means anything here.
        let heard_since = |suspected: Millis| contact.is_some_and(|at| at >= suspected);
        let is_lost = suspect_since.is_some_and(|since| !heard_since(since));
        if !is_lost && !peer.is_quiet(now, cx.period_ms()) {
            return Readiness::Ready(None);
        }
        let ask_at = Millis(round_at.0.saturating_sub(WAIT_MS));
        if now < ask_at {
            due.by(ask_at);
        } else if view.own.may_read() {
            self.ask(cx, member, due);
        }
        self.readiness(now, member, contact)
    }

    fn ask(&mut self, cx: &mut Context, member: MemberId, due: &mut Due) {
        let now = cx.now();
        let lately = |reading: &Reading| now.since(reading.asked) < READ_EVERY_MS;
        if let Some(reading) = self.0.get(&member).filter(|reading| lately(reading)) {
            return due.by(reading.asked.plus(READ_EVERY_MS));
        }
        let (asked, answer) = (now, Answer::Awaited);
        self.0.insert(member, Reading { asked, answer });
        cx.put(Output::ReadLease(member));
    }

    /// The Lease of a member was read, or could not be read. What nobody asked for is no reading. Of two
    /// answers the later one counts, and a failure takes nothing away.
    pub(super) fn take(&mut self, member: MemberId, renewal: Option<Renewal>) {
        let Some(reading) = self.0.get_mut(&member) else {
            return;
        };
        reading.answer = match (renewal, reading.answer) {
            (Some(renewal), _) => Answer::Read(renewal),
            (None, Answer::Awaited | Answer::Failed) => Answer::Failed,
            (None, read @ Answer::Read(_)) => read,
        };
    }

    /// Whether a round may begin about a member that this agent last heard at `contact`: what was read before
    /// that is of no use.
    fn readiness(&self, now: Millis, member: MemberId, contact: Option<Millis>) -> Readiness {
        let young = |reading: &&Reading| now.since(reading.asked) < READ_EVERY_MS;
        let Some(reading) = self.0.get(&member).filter(young) else {
            return Readiness::Ready(None);
        };
        let after_loss = contact.is_none_or(|at| reading.asked >= at);
        let waits_until = reading.asked.plus(WAIT_MS);
        match reading.answer {
            Answer::Awaited if after_loss && now < waits_until => Readiness::Waits(waits_until),
            Answer::Read(renewal) if after_loss => Readiness::Ready(Some(renewal)),
            Answer::Awaited | Answer::Failed | Answer::Read(_) => Readiness::Ready(None),
        }
    }

    /// Forgets what is too old to be of use.
    pub(super) fn expire(&mut self, now: Millis) {
        self.0
            .retain(|_, reading| now.since(reading.asked) < READ_EVERY_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NOW: u64 = 100_000;
    const OLD: Renewal = Renewal(7);
    const NEW: Renewal = Renewal(8);

    /// What a round at `NOW` makes of a Lease that was asked for at `asked`, and of these answers.
    fn readiness(asked: u64, answers: &[Option<Renewal>], contact: Option<u64>) -> Readiness {
        let mut readings = Readings::default();
        let (member, asked, answer) = (MemberId::of("uid-2"), Millis(asked), Answer::Awaited);
        readings.0.insert(member, Reading { asked, answer });
        for renewal in answers {
            readings.take(member, *renewal);
        }
        readings.readiness(Millis(NOW), member, contact.map(Millis))
    }

    #[rstest]
    #[case::asked_just_now(NOW, &[], Readiness::Waits(Millis(NOW + 500)))]
    #[case::asked_almost_half_a_second_ago(NOW - 499, &[], Readiness::Waits(Millis(NOW + 1)))]
    #[case::asked_half_a_second_ago(NOW - 500, &[], Readiness::Ready(None))]
    #[case::answered(NOW, &[Some(NEW)], Readiness::Ready(Some(NEW)))]
    #[case::failed(NOW, &[None], Readiness::Ready(None))]
    #[case::there_is_no_lease(NOW, &[Some(Renewal::NO_LEASE)], Readiness::Ready(Some(Renewal::NO_LEASE)))]
    #[case::answered_late_and_young(NOW - 3_999, &[Some(NEW)], Readiness::Ready(Some(NEW)))]
    #[case::answered_and_old(NOW - 4_000, &[Some(NEW)], Readiness::Ready(None))]
    #[case::answered_twice(NOW, &[Some(OLD), Some(NEW)], Readiness::Ready(Some(NEW)))]
    #[case::answered_then_failed(NOW, &[Some(NEW), None], Readiness::Ready(Some(NEW)))]
    #[case::failed_then_answered(NOW, &[None, Some(NEW)], Readiness::Ready(Some(NEW)))]
    fn a_round_waits_half_a_second_and_names_what_was_read_in_the_last_four(
        #[case] asked: u64,
        #[case] answers: &[Option<Renewal>],
        #[case] expected: Readiness,
    ) {
        assert_eq!(readiness(asked, answers, None), expected);
    }

    /// The node may have renewed its Lease between the reading and its death.
    #[rstest]
    #[case::before_it_was_asked(NOW - 101, Readiness::Ready(Some(NEW)))]
    #[case::after_it_was_asked(NOW - 99, Readiness::Ready(None))]
    fn what_was_read_before_the_member_was_last_heard_is_of_no_use(
        #[case] contact: u64,
        #[case] expected: Readiness,
    ) {
        assert_eq!(readiness(NOW - 100, &[Some(NEW)], Some(contact)), expected);
    }

    #[test]
    fn a_round_does_not_wait_for_what_would_be_of_no_use() {
        assert_eq!(readiness(NOW - 100, &[], Some(NOW - 99)), Readiness::Ready(None));
    }

    #[test]
    fn what_nobody_asked_for_is_no_reading() {
        let mut readings = Readings::default();
        let member = MemberId::of("uid-2");
        readings.take(member, Some(NEW));
        assert_eq!(
            readings.readiness(Millis(NOW), member, None),
            Readiness::Ready(None)
        );
    }
}
