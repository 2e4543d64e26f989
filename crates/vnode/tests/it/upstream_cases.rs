//! `docs/vnode/upstream-cases.md` names tests that exist, and leaves no case without a test or a reason.

use evenkeel_testkit::named::{gone, names, rows};
use std::fs;
use std::path::Path;

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("../../docs/vnode/upstream-cases.md")).unwrap()
}

#[test]
fn the_tests_that_are_named_exist() {
    let page = page();
    let (named, gone) = gone(Path::new(env!("CARGO_MANIFEST_DIR")), &page);
    assert!(named > 100, "{named}");
    assert!(gone.is_empty(), "{gone:#?}");
}

/// Beside a case stands a test, or why there is none.
#[test]
fn no_case_is_left_out() {
    let page = page();
    let rows = rows(&page);
    assert!(rows.len() > 90, "{}", rows.len());
    let unexplained: Vec<&str> = rows
        .into_iter()
        .filter(|(_, here)| names(here).next().is_none() && !here.starts_with("Cannot apply: "))
        .map(|(case, _)| case)
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}
