//! A decision in words: what it rests on, and what would change it.

use crate::decide::{Decision, GIVE_BACK_AFTER_MS};
use crate::evidence::{Evidence, Lease, Timing, WRITE_GAP_MS};
use crate::memory::Latch;
use crate::policy::Settings;
use crate::sight::View;
use crate::state::{Dead, NodeState};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Health, Link, NoVerdict, Verdict};

/// What is known of the node, one line each: Lease, verdict, zone, sight.
pub fn evidence_lines(evidence: &Evidence, timing: &Timing, now: Millis) -> Vec<String> {
    let ago = |at: Millis| format!("{} s ago", now.since(at) / 1000);
    let life = &evidence.life;
    let lease = match life.lease(&evidence.sight.leases, timing, now) {
        Lease::Fresh => "fresh",
        Lease::Stale => "stale",
        Lease::Unproven => "not watched for long enough",
    };
    let renewed = match (life.renewed, life.first_seen) {
        (Some(renewed), _) => format!("last seen renewed {}", ago(renewed)),
        (None, Some(seen)) => format!("first seen {}, not seen renewed since", ago(seen)),
        (None, None) => "the node has no Lease".to_owned(),
    };
    let mut lines = vec![format!("Lease: {lease}; {renewed}")];
    if let Some(mark) = life.stock_mark {
        lines.push(format!(
            "Stock Kubernetes: its node controller marked the node Unknown {}",
            ago(mark)
        ));
    }
    lines.push(format!("Neighbours: {}", verdict_words(&evidence.verdict, now)));
    if let Some(since) = evidence.agent.since(now) {
        lines.push(format!(
            "Agent: seen writing to the API server since {}",
            ago(since)
        ));
    }
    lines.push(match (evidence.zone.reported, evidence.zone.advanced) {
        (false, _) => "Zone: nobody has ever reported for it".to_owned(),
        (true, None) => "Zone: not seen to report since this controller started".to_owned(),
        (true, Some(at)) => format!("Zone: last seen to report {}", ago(at)),
    });
    if evidence.zone.storm {
        lines.push(
            "Zone: more than a quarter of it died within a minute; evictions keep the stock pace".to_owned(),
        );
    }
    if evidence.zone.may_prove_split && !evidence.zone.may_be_split {
        lines.push(
            "Zone: nodes of several cells fell silent, and their cells have not said why; see `evenkeel status zones`"
                .to_owned(),
        );
    }
    if evidence.zone.may_be_split {
        lines.push(
            "Zone: several cells convicted members at once, as in a split; no new death is confirmed"
                .to_owned(),
        );
    }
    match evidence.sight.at(now) {
        View::Full => {}
        View::Held => lines
            .push("Sight: some watch is not proven live; nothing is done that could harm a node".to_owned()),
        View::Lost => lines.push("Sight: lost for more than a minute; stock Kubernetes acts".to_owned()),
    }
    lines
}

fn verdict_words(verdict: &Verdict, now: Millis) -> String {
    match verdict {
        Verdict::Alive(alive) => {
            let cloud = match alive.cloud {
                Link::Up => "its agent says that its link to the API server is up",
                Link::Down => "its agent says that its link to the API server is down",
                Link::Unknown => "nothing is known of its link to the API server",
            };
            let part = |name: &str, health: Health| match health {
                Health::Ok => format!("{name} answers"),
                Health::Failing => format!("{name} does not answer"),
                Health::Unknown => format!("nothing is known of the {name}"),
            };
            format!(
                "a majority vouched for it {} s ago; {cloud}; {}; {}",
                now.since(alive.received) / 1000,
                part("kubelet", alive.kubelet),
                part("container runtime", alive.runtime)
            )
        }
        Verdict::Dead(death) => format!(
            "a majority voted it dead {} s ago, without any contact for {} s",
            now.since(death.received) / 1000,
            death.silence_ms / 1000
        ),
        Verdict::OneShort(death) => format!(
            "its only peer voted it dead {} s ago, one vote short of a majority",
            now.since(death.received) / 1000
        ),
        Verdict::None(why) => match why {
            NoVerdict::NotListed => "no evidence about it was received",
            NoVerdict::NotAMember => "no agent of its zone watches it",
            NoVerdict::Void => "what they reported before this controller started does not count",
            NoVerdict::NoMajority => "no majority either way",
            NoVerdict::OtherChallenge => {
                "their votes sign neither the present challenge nor the one before it: they are old, or the \
                 reporters do not see the ZoneChallenge of their cell"
            }
            NoVerdict::Refused => "their report was refused: signatures, roster or sequence did not hold",
        }
        .to_owned(),
    }
}

/// What would change the decision, one line each.
pub fn changes(decision: &Decision, settings: &Settings, timing: &Timing) -> Vec<String> {
    let seconds = |ms: u64| ms / 1000;
    let renewed = || "A renewal of its Lease makes it Healthy".to_owned();
    let vouched = || "The votes of a majority of its zone that it lives make it Disconnected".to_owned();
    let dead = || {
        "The votes of a majority of its zone that it is dead, asked for after its last renewal, make it Dead"
            .to_owned()
    };
    let mut lines = match decision.state() {
        NodeState::Healthy => vec![
            format!(
                "A Lease that is not renewed for {} s makes it Disconnected, KubeletDown, Dark or Unknown, as its neighbours vote",
                seconds(timing.stale_after)
            ),
            dead(),
        ],
        NodeState::Disconnected => vec![
            renewed(),
            dead(),
            format!(
                "A kubelet or container runtime that its peers call broken for {0} s, or writes of its agent for {0} s, make it KubeletDown",
                seconds(timing.kubelet_grace)
            ),
            "Evidence of life that is not renewed for 15 s makes it Unknown: stock Kubernetes acts".to_owned(),
            format!(
                "Marks that Evenkeel put on its pods are given back once its peers have vouched for it for {} s",
                seconds(GIVE_BACK_AFTER_MS)
            ),
        ],
        NodeState::KubeletDown => vec![
            renewed(),
            "A kubelet and container runtime that answer again, and an agent that does not write, make it Disconnected".to_owned(),
            dead(),
        ],
        NodeState::Dead(phase) => {
            let next = match phase {
                Dead::Announced => format!(
                    "A second round of votes 12 s after the first, and {} s without a renewal, confirm the death; pods are evicted {} s later",
                    seconds(timing.confirm_after),
                    settings.evict_after_seconds
                ),
                Dead::Confirmed => format!(
                    "Pods are evicted {} s after the taint; stateful pods stay",
                    settings.evict_after_seconds
                ),
                Dead::AtStockPace => "Stock Kubernetes evicts its pods at its own pace".to_owned(),
                Dead::Paused => "A new round of votes continues what was begun".to_owned(),
            };
            vec![
                "A renewal of its Lease or a write of its agent makes it Isolated".to_owned(),
                "The votes of a majority of its zone that it lives take the death back".to_owned(),
                next,
            ]
        }
        NodeState::Isolated => vec![
            "The votes of a majority of its zone that it lives make it Healthy".to_owned(),
            format!(
                "Without a renewal of its Lease for {} s and a write of its agent for {} s it is Dead, evicted by stock Kubernetes at its own pace",
                seconds(timing.stock_grace),
                seconds(WRITE_GAP_MS)
            ),
        ],
        NodeState::Unknown => vec![renewed(), vouched(), dead()],
        NodeState::Dark => vec![
            renewed(),
            vouched(),
            format!(
                "After {} s of autonomy stock Kubernetes evicts its pods",
                settings.autonomy_seconds
            ),
        ],
    };
    if decision.memory.latch != Latch::Open && decision.held {
        lines.push("Nothing is begun while the watches are not proven live".to_owned());
    }
    lines
}
