//! `docs/koupleless/upstream-cases.md` names tests that exist, and leaves no case without a test or a reason.

use evenkeel_testkit::named::{gone, names, rows};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A file of the repository.
fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("../..").join(path)).unwrap()
}

fn page() -> String {
    file("docs/koupleless/upstream-cases.md")
}

/// The part of a page under a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("## {heading}\n")).unwrap();
    let rest = &page[start + 3..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// A case's number and letter.
fn number(case: &str) -> (u32, Option<char>) {
    let label = case.split_once(". ").unwrap().0;
    let digits = label.trim_end_matches(|c: char| c.is_ascii_lowercase());
    (digits.parse().unwrap(), label[digits.len()..].chars().next())
}

#[test]
fn the_tests_that_are_named_exist() {
    let page = page();
    let (named, gone) = gone(Path::new(env!("CARGO_MANIFEST_DIR")), &page);
    assert!(named > 140, "{named}");
    assert!(gone.is_empty(), "{gone:#?}");
}

/// Beside a case stands what is done, and then a test, or why there is none.
#[test]
fn no_case_is_left_without_a_test_or_a_reason() {
    let page = page();
    let unexplained: Vec<&str> = rows(&page)
        .into_iter()
        .filter(|(_, here)| {
            let tests = here.split_once(" | ").map_or("", |(_, tests)| tests);
            names(tests).next().is_none() && !tests.starts_with("Cannot apply: ")
        })
        .map(|(case, _)| case)
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

#[test]
fn all_scenarios_and_defects_are_there() {
    let page = page();
    for (heading, last) in [("Scenarios", 10), ("Defects", 23)] {
        let cases = rows(section(&page, heading));
        let numbers: Vec<(u32, Option<char>)> = cases.iter().map(|(case, _)| number(case)).collect();
        assert!(numbers.is_sorted(), "{heading}: {numbers:?}");
        let there: BTreeSet<u32> = numbers.iter().map(|(number, _)| *number).collect();
        assert_eq!(there, (1..=last).collect(), "{heading}");
        // Of a case with parts none is missing between them, and none stands alone.
        for number in there {
            let parts: Vec<Option<char>> = numbers
                .iter()
                .filter(|one| one.0 == number)
                .map(|one| one.1)
                .collect();
            if parts.len() > 1 {
                let wanted: Vec<Option<char>> = ('a'..).take(parts.len()).map(Some).collect();
                assert_eq!(parts, wanted, "{heading} {number}");
            } else {
                assert_eq!(parts, [None], "{heading} {number}");
            }
        }
    }
    assert!(rows(section(&page, "Bad input")).len() >= 20);
}

/// Defect 21d: rights that features need, and that nobody can do without.
#[test]
fn the_published_rights_hold_what_peers_and_logs_need() {
    let manifest = file("deploy/koupleless.yaml");
    for (resources, verb) in [
        ("[deployments]", "patch"),
        ("[pods]", "patch"),
        ("[pods/log]", "get"),
        ("[pods/exec, pods/attach]", "create"),
        ("[events]", "create"),
    ] {
        let rule = format!("resources: {resources}\n    verbs: [");
        let granted = manifest.match_indices(&rule).any(|(at, _)| {
            let verbs = &manifest[at + rule.len()..];
            let verbs = &verbs[..verbs.find(']').unwrap()];
            verbs.split(", ").any(|one| one == verb)
        });
        assert!(granted, "{verb} {resources}");
    }
}
