//! Signs of life as they stand in the objects, with the time of ours at which they changed.

use evenkeel_judge::evidence::{AgentWrites, Life};
use evenkeel_zone::Millis;
use evenkeel_zone::wire::Renewal;
use jiff::Timestamp;

/// What a node's kubelet and agent were seen to write.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    pub(super) node_uid: String,
    lease: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    pub(super) life: Life,
    pub(super) agent: AgentWrites,
    /// What the kubelet itself said last of its readiness, if this replica saw it.
    pub(super) says_not_ready: Option<bool>,
}

/// What was last seen of a node's own writes: an irreversible step makes sure that nothing newer exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastSigns {
    /// `renewTime` of its Lease, if it has one.
    pub lease: Option<Timestamp>,
    /// Heartbeat in its status.
    pub heartbeat: Option<Timestamp>,
    /// Its agent's writes for their own sake, if the agent has said anything.
    pub link_proofs: Option<i64>,
}

impl Signs {
    pub(super) fn last(&self, link_proofs: Option<i64>) -> LastSigns {
        LastSigns {
            lease: self.lease,
            heartbeat: self.heartbeat,
            link_proofs,
        }
    }

    /// A Node of that UID. Another machine by the same name begins anew: what its Lease showed before says
    /// nothing.
    pub(super) fn node(&mut self, now: Millis, uid: &str, heartbeat: Option<Timestamp>, marked: bool) {
        if self.node_uid != uid {
            let first_seen = self.lease.map(|_| now);
            *self = Self {
                node_uid: uid.to_owned(),
                lease: self.lease,
                life: Life {
                    first_seen,
                    renewal: self.life.renewal,
                    ..Life::default()
                },
                ..Self::default()
            };
        } else if heartbeat > self.heartbeat {
            self.renewed(now);
        }
        self.heartbeat = heartbeat.max(self.heartbeat);
        let mark = self.life.stock_mark;
        self.life.stock_mark = marked.then(|| mark.unwrap_or(now));
    }

    /// Neither a Node nor a Lease is there.
    pub(super) fn is_empty(&self) -> bool {
        self.node_uid.is_empty() && self.lease.is_none()
    }

    /// The Node is gone; its Lease may outlive it.
    pub(super) fn node_gone(&mut self) {
        *self = Self {
            lease: self.lease,
            life: Life {
                renewal: self.life.renewal,
                ..Life::default()
            },
            ..Self::default()
        };
    }

    /// The Lease as it stands. Returns whether it is news.
    pub(super) fn lease(&mut self, now: Millis, renew_time: Timestamp, renewal: Option<Renewal>) -> bool {
        match self.lease.replace(renew_time) {
            None => self.life.first_seen = self.life.first_seen.or(Some(now)),
            Some(before) if before != renew_time => self.renewed(now),
            // Whoever wrote that, it was not the kubelet.
            Some(_) if renewal >= self.life.renewal => {
                let is_news = renewal > self.life.renewal.max(self.life.touched);
                if is_news {
                    self.life.touched = renewal;
                }
                return is_news;
            }
            Some(_) => {}
        }
        (self.life.renewal, self.life.touched) = (renewal, None);
        true
    }

    pub(super) fn lease_gone(&mut self) {
        self.lease = None;
        self.life.first_seen = None;
        self.life.renewed = None;
        (self.life.renewal, self.life.touched) = (None, None);
    }

    fn renewed(&mut self, now: Millis) {
        self.life.renewed = Some(now);
        self.agent.renewed();
    }
}
