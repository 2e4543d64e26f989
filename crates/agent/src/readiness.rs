//! What `/readyz` asks of an agent. A roll-out of the DaemonSet waits for it.

use evenkeel_net::admin::Admin;
use tokio::sync::watch;

/// Where an agent stands in its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its roster names it.
    admitted: bool,
    /// Another voter has answered it in this life.
    has_reached: bool,
    /// That is not so, though a former life has met others since the machine booted. Not in a cell of two,
    /// where one that is dead would keep the other from being replaced.
    is_deaf: bool,
}

impl Place {
    /// Takes what is seen now: how many of the watched voters are within reach. Returns whether that is news.
    pub(crate) fn look(&mut self, admitted: bool, had_met: bool, (within, watched): (usize, usize)) -> bool {
        let has_reached = self.has_reached || within > 0;
        let now = Self {
            admitted,
            has_reached,
            is_deaf: admitted && had_met && watched > 1 && !has_reached,
        };
        std::mem::replace(self, now) != now
    }
}

/// Adds the checks. An agent that has nothing to do is ready.
pub(crate) fn ask(admin: &Admin, place: watch::Receiver<Place>, kept_out: watch::Receiver<Option<String>>) {
    let (admitted, at_rest) = (place.clone(), kept_out.clone());
    admin.ready("roster", move || {
        if admitted.borrow().admitted || at_rest.borrow().is_some() {
            return Ok(());
        }
        Err("this node is in no roster that the agent knows".to_owned())
    });
    // A roll-out that closes the agents' port must not go through the whole fleet. Where agents have never
    // heard each other it is no roll-out that is at fault: `evenkeel doctor` names that.
    admin.ready("peers", move || {
        if !place.borrow().is_deaf || kept_out.borrow().is_some() {
            return Ok(());
        }
        let told = "no other member of the cell answers any more since this agent started";
        Err(format!("{told}: see that its UDP port is open"))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::never_heard_anybody(true, false, &[(0, 4)], false)]
    #[case::in_no_roster(false, true, &[(0, 0)], false)]
    #[case::heard_others_once(true, true, &[(0, 4)], true)]
    #[case::in_a_cell_of_two(true, true, &[(0, 1)], false)]
    #[case::was_answered(true, true, &[(0, 4), (1, 4), (0, 4)], false)]
    fn who_heard_others_and_hears_nobody_since_is_deaf(
        #[case] admitted: bool,
        #[case] had_met: bool,
        #[case] reach: &[(usize, usize)],
        #[case] is_deaf: bool,
    ) {
        let mut place = Place::default();
        for seen in reach {
            place.look(admitted, had_met, *seen);
        }
        assert_eq!(place.is_deaf, is_deaf);
        assert!(
            !place.look(admitted, had_met, reach[reach.len() - 1]),
            "it is no news"
        );
    }
}
