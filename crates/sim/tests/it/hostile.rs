//! One hostile member with a valid key of its own (39, 41, 49): what it can do, and which rule keeps it from
//! more.

use super::search;
use evenkeel_sim::groups::{Mishap, hostile};
use evenkeel_sim::zones::Rules;
use evenkeel_sim::zones::measured::play_by;
use evenkeel_sim::{Group, Malice, Script, run};

/// Every malice beside every mishap in zones of these sizes, each with so many seeds.
fn all(group: Group, sizes: &[usize], mishaps: &[Mishap], seeds: u64) -> Vec<Script> {
    let cases = Malice::ALL.into_iter().flat_map(|malice| {
        let mishaps = mishaps.iter().map(move |mishap| (malice, *mishap));
        mishaps.flat_map(|case| sizes.iter().map(move |size| (case, *size)))
    });
    let scripts = cases.flat_map(|((malice, mishap), size)| {
        (0..seeds).map(move |seed| hostile(group, seed, size, malice, mishap))
    });
    scripts.collect()
}

/// Plays scripts; the first that breaks a promise is told.
fn all_keep_their_promises(scripts: &[Script]) {
    let failing = search(0, scripts.len() as u64, |index| {
        let script = &scripts[usize::try_from(index).unwrap()];
        let broken = run::play(script).broken?;
        Some(format!("{broken}\n{script}"))
    });
    let texts: Vec<&String> = failing.iter().map(|(_, text)| text).take(20).collect();
    assert!(
        failing.is_empty(),
        "{} of {} fail: {texts:#?}",
        failing.len(),
        scripts.len()
    );
}

#[test]
fn every_malice_beside_every_mishap_in_zones_of_3_4_and_5() {
    all_keep_their_promises(&all(Group::HostileZones, &[3, 4, 5], &Mishap::ALL, 1));
}

/// Whole systems cost three times as much; those of 4 are among the seeds of the group.
#[test]
fn every_malice_beside_every_mishap_in_whole_systems_of_3_and_5() {
    all_keep_their_promises(&all(Group::Hostile, &[3, 5], &Mishap::ALL, 1));
}

#[test]
fn every_malice_in_a_cell_of_64_of_which_one_dies() {
    all_keep_their_promises(&all(Group::HostileZones, &[64], &[Mishap::Dies], 1));
}

/// Plays scripts with broken rules until a promise of that name breaks, and demands that the script breaks
/// nothing where the last of these rules holds.
fn succeeds_without((others, rules): (Rules, Rules), scripts: impl Iterator<Item = Script>, promise: &str) {
    let mut seen = Vec::new();
    for script in scripts {
        let Some(broken) = play_by(&script, rules).broken else {
            continue;
        };
        if broken.promise.starts_with(promise) {
            assert_eq!(play_by(&script, others).broken, None, "with the rule: {script}");
            return;
        }
        seen.push(broken.promise);
    }
    panic!("nothing of \"{promise}\" breaks without {rules:?}; seen: {seen:?}");
}

const NONE: Rules = Rules {
    one_vote_less: false,
    life_never_ends: false,
    omission_is_health: false,
    hoards: false,
    any_challenge: false,
    any_request: false,
    any_renewal: false,
    any_sequence: false,
    counts_ballots: false,
    no_codes: false,
    no_bounds: false,
};
/// Votes that are known to be old count. Then the other rules against old votes are seen one by one.
const ANY_SEQUENCE: Rules = Rules {
    any_sequence: true,
    ..NONE
};

/// Ballots that were kept back convict in one of a hundred scripts.
fn scripts(
    group: Group,
    (malice, mishap): (Malice, Mishap),
    sizes: &[usize],
) -> impl Iterator<Item = Script> {
    let seeds = (0..200).flat_map(move |seed| sizes.iter().map(move |size| (seed, *size)));
    seeds.map(move |(seed, size)| hostile(group, seed, size, malice, mishap))
}

#[test]
fn who_votes_twice_convicts_where_ballots_count_and_not_voters() {
    let rules = Rules {
        counts_ballots: true,
        ..NONE
    };
    for size in [3, 4, 5] {
        let case = (Malice::SaysBoth, Mishap::Nothing);
        succeeds_without((NONE, rules), scripts(Group::HostileZones, case, &[size]), "S4");
    }
}

#[test]
fn ballots_about_a_dead_member_convict_another_one_where_they_fit_every_request() {
    let rules = Rules {
        any_request: true,
        ..NONE
    };
    let case = (Malice::Swaps, Mishap::Dies);
    succeeds_without(
        (NONE, rules),
        scripts(Group::HostileZones, case, &[3, 4, 5]),
        "S4",
    );
}

#[test]
fn ballots_that_were_kept_back_convict_where_later_ones_do_not_replace_them() {
    let case = (Malice::Hoards, Mishap::Stalls);
    succeeds_without(
        (NONE, ANY_SEQUENCE),
        scripts(Group::HostileZones, case, &[3, 4, 5]),
        "S4",
    );
}

#[test]
fn ballots_that_were_kept_back_for_long_convict_where_old_challenges_count() {
    let rules = Rules {
        any_challenge: true,
        ..ANY_SEQUENCE
    };
    let case = (Malice::HoardsLong, Mishap::Stalls);
    succeeds_without(
        (ANY_SEQUENCE, rules),
        scripts(Group::HostileZones, case, &[3, 4, 5]),
        "S4",
    );
}

#[test]
fn ballots_that_were_kept_back_convict_who_has_renewed_where_every_renewal_counts() {
    let rules = Rules {
        any_renewal: true,
        ..ANY_SEQUENCE
    };
    let case = (Malice::Hoards, Mishap::Stalls);
    succeeds_without(
        (ANY_SEQUENCE, rules),
        scripts(Group::Hostile, case, &[3, 4, 5]),
        "S4",
    );
}

#[test]
fn who_answers_for_a_dead_member_keeps_it_alive_where_nobody_looks_at_codes() {
    let rules = Rules {
        no_codes: true,
        ..NONE
    };
    let case = (Malice::LiesAsRelay, Mishap::Dies);
    succeeds_without((NONE, rules), scripts(Group::HostileZones, case, &[5]), "39");
}

#[test]
fn who_asks_without_bounds_floods_the_cell() {
    let rules = Rules {
        no_bounds: true,
        ..NONE
    };
    let case = (Malice::Asks, Mishap::Nothing);
    succeeds_without((NONE, rules), scripts(Group::HostileZones, case, &[20]), "49");
}
