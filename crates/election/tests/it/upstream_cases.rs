//! `docs/election/upstream-cases.md` names tests that exist, and every scenario.

use evenkeel_testkit::named::exists;
use std::fs;
use std::path::Path;

#[test]
fn the_tests_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../../docs/election/upstream-cases.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let names: Vec<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|name| name.contains("::"))
        .collect();
    assert!(names.len() > 100, "{}", names.len());
    let missing: Vec<&&str> = names.iter().filter(|name| !exists(root, name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(!exists(
        root,
        "core::machine::tests::acquire::one_attempt::no_such_case"
    ));
    assert!(!exists(root, "core::machine::tests::acquire::no_such_test"));
}

#[test]
fn no_scenario_is_left_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../../docs/election/upstream-cases.md")).unwrap();
    let named = |number: u32| {
        let name = format!("S{number}");
        let mut words = text.split(|mark: char| !mark.is_alphanumeric());
        words.any(|word| word == name)
    };
    let missing: Vec<u32> = (1..=25).filter(|number| !named(*number)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
