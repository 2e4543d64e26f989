//! The record of one failure of one node: what people read, and what survives a restart of the controller.

use super::action::NodeRef;
use evenkeel_api::crd::{DecisionRecord, IncidentRow, LatchRecord, NodeIncidentSpec, NodeIncidentStatus};
use evenkeel_api::names::events;
use evenkeel_judge::memory::DeadLatch;
use evenkeel_judge::state::Slow;
use evenkeel_judge::{Latch, Memory, NodeState, Reason, Recorded};
use evenkeel_zone::Millis;
use evenkeel_zone::wire::Renewal;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Rows kept; the oldest are dropped.
pub const ROWS: usize = 64;

/// A NodeIncident as it shall stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// Name of the object.
    pub name: String,
    pub spec: NodeIncidentSpec,
    /// History and timers.
    pub status: NodeIncidentStatus,
}

impl Incident {
    /// Opens an incident. Its name holds the second in which it was opened.
    pub fn open(node: &NodeRef, zone: &str, state: NodeState, now: Millis) -> Self {
        // An object name holds 253 characters; a node name may need nearly all of them.
        let stem: String = node.name.chars().take(230).collect();
        Self {
            name: format!("{}-{}", stem.trim_end_matches(['.', '-']), now.0 / 1000),
            spec: NodeIncidentSpec {
                node_name: node.name.clone(),
                node_uid: node.uid.clone(),
                zone: zone.to_owned(),
            },
            status: NodeIncidentStatus {
                state: state.name().to_owned(),
                state_since: Some(time(now)),
                ..Default::default()
            },
        }
    }

    /// The node entered a state.
    pub fn enter(&mut self, state: NodeState, reason: Reason, event: &str, now: Millis) {
        self.enter_untold(state, now);
        self.told(state, reason, event, now);
    }

    /// The node entered a state that may be over before it is worth a row.
    pub fn enter_untold(&mut self, state: NodeState, now: Millis) {
        state.name().clone_into(&mut self.status.state);
        self.status.state_since = Some(time(now));
    }

    /// The row of a state, unless the last one says the very same (after a restart).
    pub fn told(&mut self, state: NodeState, reason: Reason, event: &str, now: Millis) {
        let message = format!("{}: {reason}", state.name());
        let mut rows = self.status.timeline.iter().rev();
        let last = rows.find(|row| is_of_a_state(&row.event));
        if last.is_none_or(|last| last.event != event || last.message != message) {
            self.push(event, message, now);
        }
    }

    /// Records the present decision, unless only its wording has changed.
    pub fn decide(&mut self, decision: DecisionRecord, latch: LatchRecord) {
        let before = &self.status.decision;
        let same = before.state == decision.state
            && before.reason == decision.reason
            && before.observed_only == decision.observed_only
            && before.by == decision.by;
        if !same {
            self.status.decision = decision;
        }
        self.status.latch = latch;
    }

    /// Adds a row, unless the very same stands there already (after a restart).
    pub fn row(&mut self, event: &str, message: String, now: Millis) {
        let known = self
            .status
            .timeline
            .iter()
            .rev()
            .take(8)
            .any(|row| row.event == event && row.message == message);
        if known {
            return;
        }
        self.push(event, message, now);
    }

    fn push(&mut self, event: &str, message: String, now: Millis) {
        self.status.timeline.push(IncidentRow {
            time: Some(time(now)),
            event: event.to_owned(),
            message,
        });
        let surplus = self.status.timeline.len().saturating_sub(ROWS);
        self.status.timeline.drain(..surplus);
    }

    /// A row that counts: it takes the place of the last one of its event.
    pub fn recount(&mut self, event: &str, message: String, now: Millis) {
        match self.status.timeline.iter_mut().rfind(|row| row.event == event) {
            Some(row) => row.message = message,
            None => self.row(event, message, now),
        }
    }

    /// Whether the last state that was told is a death, or the isolation that followed one.
    pub fn last_state_row_is_of_a_death(&self) -> bool {
        let mut rows = self.status.timeline.iter().rev();
        let last = rows.find(|row| row.event != events::ISOLATED && is_of_a_state(&row.event));
        last.is_some_and(|last| last.event == events::DEAD)
    }

    /// Whether a row of this event stands in the timeline.
    pub fn has(&self, event: &str) -> bool {
        self.status.timeline.iter().any(|row| row.event == event)
    }

    /// Ends the incident.
    pub fn close(&mut self, now: Millis) {
        self.status.closed_at.get_or_insert(time(now));
    }

    /// Whether it ended.
    pub fn is_closed(&self) -> bool {
        self.status.closed_at.is_some()
    }
}

/// Whether a row of this event says which state the node entered.
fn is_of_a_state(event: &str) -> bool {
    [
        events::DISCONNECTED,
        events::DEAD,
        events::DARK,
        events::KUBELET_DOWN,
        events::UNKNOWN,
        events::ISOLATED,
        events::RECOVERED,
    ]
    .contains(&event)
}

/// What other replicas start from: the state and the latch of an open incident.
pub fn recorded(status: &NodeIncidentStatus, now: Millis) -> Option<Recorded> {
    let text = if status.decision.state.is_empty() {
        &status.state
    } else {
        &status.decision.state
    };
    Some(Recorded {
        state: NodeState::parse(text)?,
        // Objects hold whole seconds: rounded up, so that what is protected for a time is not let go sooner
        // than by who wrote it.
        since: read_instant(status.state_since.as_ref(), now).map_or(now, |since| since.plus(999).min(now)),
        latch: read_latch(status, now),
        life: read_instant(status.latch.last_sign_of_life_at.as_ref(), now),
    })
}

fn read_latch(status: &NodeIncidentStatus, now: Millis) -> Latch {
    let record = &status.latch;
    if let Some(since) = read_instant(record.isolated_since.as_ref(), now) {
        return Latch::Isolated { since };
    }
    let since = read_instant(status.state_since.as_ref(), now).unwrap_or(now);
    let first = match read_instant(record.first_dead_round_at.as_ref(), now) {
        Some(first) => first,
        // A former version recorded the state alone.
        None if status.decision.state.is_empty() && status.state == "Dead" => since,
        None if status.decision.state.is_empty() && status.state == "Isolated" => {
            return Latch::Isolated { since };
        }
        None => return Latch::Open,
    };
    Latch::Dead(DeadLatch {
        requested: first,
        renewal: record.last_renewal.parse().ok().map(Renewal),
        received: first,
        own: None,
        later: None,
        confirmed: read_instant(record.confirmed_at.as_ref(), now),
        slow: Slow::parse(&record.stock_pace),
    })
}

/// What is latched, as the incident holds it.
pub fn latch_record(memory: &Memory) -> LatchRecord {
    match &memory.latch {
        Latch::Open => LatchRecord::default(),
        Latch::Isolated { since } => LatchRecord {
            isolated_since: Some(time(*since)),
            ..LatchRecord::default()
        },
        Latch::Dead(death) => LatchRecord {
            // Whole seconds: the next one, so that no other replica counts a longer time.
            first_dead_round_at: Some(time(death.received.plus(999))),
            // Likewise, so that no other replica gives the pods up sooner.
            last_sign_of_life_at: memory.silent_from().map(|life| time(life.plus(999))),
            last_renewal: death
                .renewal
                .map(|renewal| renewal.0.to_string())
                .unwrap_or_default(),
            confirmed_at: death.confirmed.map(time),
            stock_pace: death.slow.map(Slow::text).unwrap_or_default().to_owned(),
            ..LatchRecord::default()
        },
    }
}

/// An instant as objects carry it: whole seconds.
pub fn time(at: Millis) -> Time {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

/// The instant that an object carries, never ahead of `now`: another controller's clock may be.
pub fn instant(time: &Time, now: Millis) -> Millis {
    Millis(u64::try_from(time.0.as_millisecond()).unwrap_or(0)).min(now)
}

fn read_instant(time: Option<&Time>, now: Millis) -> Option<Millis> {
    time.map(|time| instant(time, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_judge::Dead;

    fn incident() -> Incident {
        let node = NodeRef {
            name: "shore-3".to_owned(),
            uid: "u3".to_owned(),
        };
        Incident::open(
            &node,
            "shore",
            NodeState::Dead(Dead::Announced),
            Millis(1_700_000_001_500),
        )
    }

    #[test]
    fn an_incident_is_named_by_node_and_second() {
        assert_eq!(incident().name, "shore-3-1700000001");
        let node = NodeRef {
            name: format!("{}.{}", "a".repeat(229), "b".repeat(20)),
            uid: "u".to_owned(),
        };
        let name = Incident::open(&node, "", NodeState::Dark, Millis(0)).name;
        assert!(name.len() <= 253 && name.ends_with("a-0"), "{name}");
    }

    #[test]
    fn the_timeline_keeps_the_newest_rows() {
        let mut incident = incident();
        for number in 0..100 {
            incident.row("E", format!("row {number}"), Millis(number));
        }
        assert_eq!(incident.status.timeline.len(), ROWS);
        assert_eq!(incident.status.timeline[0].message, "row 36");
    }

    #[test]
    fn the_same_row_twice_is_one() {
        let mut incident = incident();
        incident.row("E", "same".to_owned(), Millis(0));
        incident.row("E", "same".to_owned(), Millis(9));
        assert_eq!(incident.status.timeline.len(), 1);
    }

    #[test]
    fn instants_survive_objects_to_the_second_and_never_lie_ahead() {
        let at = Millis(1_700_000_001_500);
        assert_eq!(instant(&time(at), at), Millis(1_700_000_001_000));
        assert_eq!(instant(&time(at), Millis(5)), Millis(5));
    }
}
