//! `docs/failover-rules.md` names tests that exist, and every hazard of its list.

use evenkeel_testkit::named::{exists, names};
use std::fs;
use std::path::Path;

/// Numbers of the hazards that the page speaks of.
const HAZARDS: [&str; 26] = [
    "7", "8", "12", "13", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "36", "37", "38",
    "40", "50", "52", "54", "55", "56", "58", "doubt",
];

fn rows(page: &str) -> Vec<Vec<&str>> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|row| row.split(" | ").collect())
        .collect()
}

#[test]
fn the_tests_that_the_rules_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/failover-rules.md")).unwrap();
    let named: Vec<&str> = rows(&page)
        .into_iter()
        .filter_map(|row| row.get(2).copied())
        .flat_map(names)
        .collect();
    assert!(named.len() > 60, "{}", named.len());
    let gone: Vec<&&str> = named.iter().filter(|name| !exists(root, name)).collect();
    assert!(gone.is_empty(), "{gone:#?}");
    assert!(!exists(root, "judge::decide_tests::no_such_test"));
}

#[test]
fn every_hazard_has_a_row_with_a_test_or_says_that_one_is_missing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/failover-rules.md")).unwrap();
    for hazard in HAZARDS {
        let held = rows(&page).into_iter().any(|row| {
            let tests = row.get(2).copied().unwrap_or_default();
            row.get(1) == Some(&hazard) && (names(tests).next().is_some() || tests.starts_with("*missing*"))
        });
        assert!(held, "hazard {hazard}");
    }
}
