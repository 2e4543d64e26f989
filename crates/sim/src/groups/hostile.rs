//! One member is hostile.

use crate::malice::Malice;
use crate::rng::Rng;
use crate::script::{Fault, Group, Network, SECOND, Script, WARM_UP};

/// What happens to another member meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    Nothing,
    Dies,
    Stalls,
    IsCutOff,
    /// It is cut off and cannot renew, so that the last renewal says nothing of a stall.
    StallsCutOff,
}

impl Mishap {
    pub const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Dies,
        Self::Stalls,
        Self::IsCutOff,
        Self::StallsCutOff,
    ];
}

/// From the beginning of the malice to the mishap, and from there to its end and beyond.
const BEFORE: u64 = 10 * SECOND;
const LASTS: u64 = 45 * SECOND;
const AFTER: u64 = 20 * SECOND;

/// A member of a zone of this size is hostile in this way, while this happens to another one.
pub fn hostile(group: Group, seed: u64, size: usize, malice: Malice, mishap: Mishap) -> Script {
    let mut script = super::script(group, seed);
    script.zones = vec![size];
    script.steps.clear();
    let mut rng = Rng::new(seed).fork("hostile");
    fill(&mut script, &mut rng, malice, mishap);
    script.steps.sort_by_key(|step| step.at);
    script
}

pub(super) fn any(script: &mut Script, rng: &mut Rng) {
    let large = script.group == Group::HostileZones && rng.in_thousand(30);
    let size = if large { 64 } else { rng.between(3, 5) };
    script.zones = vec![usize::try_from(size).unwrap_or(5)];
    let malice = *rng.pick(&Malice::ALL).unwrap_or(&Malice::SaysNo);
    let mishap = *rng.pick(&Mishap::ALL).unwrap_or(&Mishap::Nothing);
    fill(script, rng, malice, mishap);
}

fn fill(script: &mut Script, rng: &mut Rng, malice: Malice, mishap: Mishap) {
    // What is lost on the way is another matter.
    script.network = Network {
        latency: (1, 5),
        ..Network::default()
    };
    script.mixed_versions = false;
    let hostile = script.any_node(rng);
    let nodes = script.nodes() as u64;
    let other = 1 + (hostile + usize::try_from(rng.below(nodes - 1)).unwrap_or_default()) % script.nodes();
    let large = script.nodes() > 12;
    // Of a large zone every second costs as much as a whole run of a small one.
    let (before, lasts, after) = if large {
        (3 * SECOND, 15 * SECOND, 4 * SECOND)
    } else {
        (BEFORE, LASTS, AFTER)
    };
    script.rest = 50 * SECOND;
    let at = WARM_UP + rng.below(5 * SECOND);
    script.add(at, before + lasts + after, Fault::Hostile(hostile, malice));
    let at = at + before + rng.below(SECOND);
    match mishap {
        Mishap::Nothing => {}
        Mishap::Dies => script.add(at, lasts, Fault::PowerOff(other)),
        Mishap::Stalls => script.add(at, rng.between(2_500, 9_900), Fault::Stall(other)),
        Mishap::IsCutOff => script.add(at, lasts, Fault::CutCloud(other)),
        Mishap::StallsCutOff => {
            script.add(at, lasts, Fault::CutCloud(other));
            script.add(at + lasts / 3, rng.between(2_500, 9_900), Fault::Stall(other));
        }
    }
}
