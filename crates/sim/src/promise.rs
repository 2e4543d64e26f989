//! What is promised to a node in a script.

use crate::api::Writer;
use crate::script::{Fault, Group, SECOND, Script};

/// A node that is silent for longer than this counts as dead: its peers and the API server cannot tell it
/// from one.
const STALL_IS_DEATH: u64 = 10 * SECOND;
/// Stock Kubernetes evicts so long after the last renewal, at least: 50 s of grace and 300 s of toleration.
const STOCK_EVICTS: u64 = 340 * SECOND;

/// What is kept when the last replica is killed is gone after this long (hazard 52): 5 s to the stock
/// controller's next pass, 10 s in its queue of a zone, 300 s of toleration.
const LAST_KEEPER: u64 = 315 * SECOND;

/// An API server that was down for longer than this finds Leases older than the stock grace period of 50 s:
/// they are renewed every 10 s.
const TOO_LONG_DOWN: u64 = 40 * SECOND;
/// By when after an outage a kubelet has renewed its Lease.
const RENEWED: u64 = 15 * SECOND;

/// By when a kubelet that starts, or has its link again, has looked at its pods and written their status.
const WRITES_WITHIN: u64 = 6 * SECOND;

/// A machine that is switched on says so with the first renewal of its kubelet; the stock controllers look
/// every 5 s.
pub(crate) const BACK_ON: u64 = 12 * SECOND;

/// Later than any run ends.
const FOR_EVER: u64 = 1 << 40;

/// What happens to one node by the script.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    /// When it is dead: power-offs and long stalls.
    pub dead: Vec<(u64, u64)>,
    /// When its own link to the cloud is cut.
    pub cut: Vec<(u64, u64)>,
    /// When it stalls for no longer than 10 s.
    pub stalls: Vec<(u64, u64)>,
    /// When its kubelet is down.
    pub kubelet: Vec<(u64, u64)>,
    /// When the API server is down for everybody.
    pub api: Vec<(u64, u64)>,
    /// When it is split from some other node.
    pub split: Vec<(u64, u64)>,
}

impl Fate {
    /// Of a node in a script.
    pub fn of(script: &Script, node: usize) -> Self {
        let mut fate = Self::default();
        for step in &script.steps {
            let span = (step.at, step.ends());
            match &step.fault {
                Fault::PowerOff(other) | Fault::DiskLost(other) if *other == node => fate.dead.push(span),
                Fault::Leave(other) if *other == node => fate.dead.push((step.at, FOR_EVER)),
                Fault::Stall(other) if *other == node && step.lasts > STALL_IS_DEATH => fate.dead.push(span),
                Fault::Stall(other) if *other == node => fate.stalls.push(span),
                Fault::CutCloud(other) if *other == node => fate.cut.push(span),
                Fault::KubeletDown(other) | Fault::SlowKubelet(other, _) if *other == node => {
                    fate.kubelet.push(span);
                }
                Fault::ApiDown { .. } => fate.api.push(span),
                Fault::SplitLan(few) if few.contains(&node) => fate.split.push(span),
                Fault::CutOneWay(from, to) if from.contains(&node) || to.contains(&node) => {
                    fate.split.push(span);
                }
                Fault::CutPair(one, other) if *one == node || *other == node => fate.split.push(span),
                _ => {}
            }
        }
        fate
    }

    /// Whether it is dead at an instant.
    pub fn is_dead(&self, at: u64) -> bool {
        covers(&self.dead, at)
    }

    /// When the outage began because of which stock Kubernetes takes every Lease for stale: nobody could
    /// renew one. Outages that follow each other within [`RENEWED`] are one.
    fn nobody_renewed(&self, at: u64) -> Option<u64> {
        let mut outages = self.api.clone();
        outages.sort_unstable();
        let mut began = 0;
        let mut ended = 0;
        for (from, to) in outages.into_iter().filter(|(from, _)| *from <= at) {
            if from > ended + RENEWED || ended == 0 {
                began = from;
            }
            ended = ended.max(to);
        }
        (ended.min(at) - began > TOO_LONG_DOWN && at < ended + RENEWED).then_some(began)
    }

    /// Whether it is dead, or was switched on so lately that nobody can know.
    pub fn seems_dead(&self, at: u64) -> bool {
        self.is_dead(at) || self.is_dead(at.saturating_sub(BACK_ON))
    }

    /// When the death began that lasts at an instant.
    pub fn death_before(&self, at: u64) -> Option<u64> {
        self.dead
            .iter()
            .find(|(from, to)| *from <= at && at < *to)
            .map(|(from, _)| *from)
    }

    /// When the death begins that lasts to the end, or for long.
    pub fn dies_for_good(&self) -> Option<u64> {
        self.dead
            .iter()
            .find(|(from, to)| to - from >= 400 * SECOND)
            .map(|(from, _)| *from)
    }

    /// When the cuts are over that leave the kubelet no time to write after `at`. Cuts that follow each other
    /// without giving it that time are one.
    fn cut_around(&self, at: u64) -> Option<u64> {
        let mut cuts = self.cut.clone();
        cuts.sort_unstable();
        let mut until = None;
        for (from, to) in cuts {
            if to > at && from < until.unwrap_or(at) + WRITES_WITHIN {
                until = until.max(Some(to));
            }
        }
        until
    }

    /// Since when nothing has kept the node and its kubelet from writing, and nothing stalls.
    fn free_since(&self, now: u64) -> u64 {
        let all = [&self.dead, &self.stalls, &self.kubelet, &self.api];
        all.into_iter()
            .flatten()
            .map(|(_, to)| *to)
            .filter(|to| *to <= now)
            .max()
            .unwrap_or_default()
    }
}

fn covers(spans: &[(u64, u64)], at: u64) -> bool {
    spans.iter().any(|(from, to)| *from <= at && at < *to)
}

/// What is promised in the script of a group.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    group: Group,
    /// Everything is as it was 30 s after the last fault.
    pub converges: bool,
    /// Changes of state per node and fault.
    pub changes: Option<usize>,
    /// Changes of state for the end of the last fault. The end of a split is one more event: nodes that were
    /// Isolated throughout are vouched for again. The end of a cut is a renewal, which belongs to the cut.
    pub ends: usize,
    /// The run is compared with stock Kubernetes alone; endpoints too.
    pub compares_endpoints: bool,
    /// How much later than stock something may happen, because watches and loops have their own pace.
    pub later_than_stock: u64,
    /// By when stock Kubernetes alone has evicted what was kept by replicas that were all killed in mid-cut.
    pub unkept_by: Option<u64>,
}

impl Promise {
    /// Of a script.
    pub fn of(script: &Script) -> Self {
        let group = script.group;
        let mid_cut = script
            .steps
            .iter()
            .any(|step| matches!(step.fault, Fault::CutCloud(_)));
        let left_alone = group == Group::NeverLaterThanStock && mid_cut;
        let killed = script
            .steps
            .iter()
            .filter(|step| left_alone && matches!(step.fault, Fault::ReplicaDown(_)))
            .map(|step| step.at);
        Self {
            group,
            unkept_by: killed.max().map(|at| at + LAST_KEEPER),
            converges: !matches!(group, Group::NeverLaterThanStock | Group::StockQueue),
            changes: matches!(group, Group::CutOff | Group::LanSplit).then_some(2),
            ends: usize::from(group == Group::LanSplit),
            compares_endpoints: !mid_cut,
            // Who is kept at first lives for longer, or is left alone for longer.
            later_than_stock: if left_alone || group == Group::StockQueue {
                180
            } else {
                12
            } * SECOND,
        }
    }

    /// Why an eviction at `at` breaks what was promised, if it does.
    pub fn eviction_is_early(&self, fate: &Fate, at: u64, by: Writer) -> Option<String> {
        let Some(died) = fate
            .death_before(at)
            .or_else(|| fate.death_before(at.saturating_sub(BACK_ON)))
        else {
            return Some("the node is alive".to_owned());
        };
        let was_split = fate.split.iter().any(|(from, to)| *from < died && died < *to);
        let slow = was_split || covers(&fate.cut, died);
        let since = fate
            .cut
            .iter()
            .filter(|(from, to)| *from <= died && died < *to)
            .map(|(from, _)| *from)
            .min();
        let earliest = since.unwrap_or(died).saturating_sub(12 * SECOND) + STOCK_EVICTS;
        (slow && by == Writer::Ours && at < earliest).then(|| {
            format!(
                "sooner than by stock Kubernetes, which evicts after {} s",
                earliest / SECOND
            )
        })
    }

    /// Whether an endpoint that the node loses at `at` breaks what was promised: its only fault is its cloud
    /// link, its peers can vouch for it, and some replica answers admission. After an outage of the API
    /// server in which every Lease grew too old, that is promised to nodes that were cut off before, and were
    /// vouched for, alone: stock Kubernetes takes the endpoints of all others for a moment, with us and
    /// without us. We ourselves take none.
    pub fn never_loses(&self, fate: &Fate, guarded_since: Option<u64>, at: u64, by: Writer) -> bool {
        let only_cut = fate.dead.is_empty()
            && fate.stalls.is_empty()
            && fate.kubelet.is_empty()
            && fate.split.is_empty();
        let groups = matches!(
            self.group,
            Group::CutOff
                | Group::PowerOff
                | Group::ApiRestart
                | Group::GuardRestarts
                | Group::AgentRestarts
                | Group::ThreeZones
                | Group::Carriers
                | Group::Hostile
                | Group::Random
        );
        let guarded = guarded_since.is_some_and(|since| at - since >= 25 * SECOND);
        let outage = fate.nobody_renewed(at);
        let by_stock = by != Writer::Ours && outage.is_some_and(|began| !covers(&fate.cut, began));
        groups && only_cut && guarded && !by_stock
    }

    /// By when an endpoint of a living node that was lost at `lost` must be back.
    pub fn back_by(&self, fate: &Fate, lost: u64, guarded_since: Option<u64>) -> Option<u64> {
        let free = fate.free_since(u64::MAX).max(lost);
        if self.group == Group::NeverLaterThanStock
            || fate.dead.iter().any(|(_, to)| *to >= free) && fate.is_dead(free)
        {
            return None;
        }
        match fate.cut_around(free) {
            // The kubelet can write.
            None => Some(free + 15 * SECOND),
            Some(until) => {
                // Only we can give it back, once we see, and its peers vouch for it.
                let seen = guarded_since?;
                let promised = (free + 30 * SECOND).max(seen + 45 * SECOND);
                let promised_to = matches!(
                    self.group,
                    Group::Stalls | Group::GuardRestarts | Group::ApiRestart | Group::AgentRestarts
                );
                Some(if promised_to {
                    promised
                } else {
                    until + 25 * SECOND
                })
            }
        }
    }

    /// Faults that touch a node.
    pub fn faults_of(&self, script: &Script, node: usize) -> usize {
        let own = script.faults_of(node).count();
        let shared = script.steps.iter().filter(|step| match &step.fault {
            Fault::SplitLan(few) => few.contains(&node),
            Fault::ApiDown { .. } => true,
            _ => false,
        });
        own + shared.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_between_which_no_kubelet_can_write_are_one() {
        for (cuts, at, expected) in [
            (vec![(42, 111), (111, 153)], 92, Some(153)),
            (vec![(111, 153), (42, 111)], 92, Some(153)),
            (vec![(42, 111), (120, 153)], 92, Some(111)),
            (vec![(73, 84)], 70, Some(84)),
            (vec![(77, 84)], 70, None),
            (vec![(50, 60)], 70, None),
        ] {
            let fate = Fate {
                cut: cuts
                    .iter()
                    .map(|(from, to)| (from * SECOND, to * SECOND))
                    .collect(),
                ..Fate::default()
            };
            let found = fate.cut_around(at * SECOND).map(|until| until / SECOND);
            assert_eq!(found, expected, "{cuts:?} at {at} s");
        }
    }

    /// Outages of the API server by their beginning and length in seconds, an instant, and the outage that
    /// was too long.
    #[test]
    fn outages_that_follow_each_other_are_one() {
        let s = |second: u64| second * SECOND;
        for (outages, at, expected) in [
            (vec![], 100, None),
            (vec![(50, 30)], 81, None),
            (vec![(50, 30), (72, 30)], 103, Some(50)),
            (vec![(72, 30), (50, 30)], 103, Some(50)),
            (vec![(50, 30), (90, 30)], 121, Some(50)),
            (vec![(50, 30), (96, 30)], 127, None),
            (vec![(50, 30), (72, 30)], 117, None),
            (vec![(50, 30), (72, 30)], 89, None),
        ] {
            let fate = Fate {
                api: outages
                    .iter()
                    .map(|(from, lasts)| (s(*from), s(from + lasts)))
                    .collect(),
                ..Fate::default()
            };
            let found = fate.nobody_renewed(s(at)).map(|began| began / SECOND);
            assert_eq!(found, expected, "{outages:?} at {at} s");
        }
    }
}
