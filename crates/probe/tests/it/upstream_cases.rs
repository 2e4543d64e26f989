//! `docs/probe/upstream-cases.md` names tests that exist, and leaves no case without a test or a reason.

use evenkeel_testkit::named::{exists, gone, names, rows};
use std::fs;
use std::path::Path;

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("../../docs/probe/upstream-cases.md")).unwrap()
}

#[test]
fn the_tests_that_are_named_exist() {
    let page = page();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (named, gone) = gone(root, &page);
    assert!(named > 220, "{named}");
    assert!(gone.is_empty(), "{gone:#?}");
    for nobody in [
        "core::worker::tests::rounds::a_first_round::no_such_case",
        "core::worker::tests::rounds::no_such_test",
        "core::no_such_module::tests::a_first_round",
        "vnode::it::container_probe::no_such_test",
        "no_such_crate::it::container_probe::liveness_waits_for_startup",
    ] {
        assert!(!exists(root, nobody), "{nobody}");
    }
}

/// Beside a case stands a test, or why there is none.
#[test]
fn no_case_is_left_out() {
    let page = page();
    let rows = rows(&page);
    assert!(rows.len() > 150, "{}", rows.len());
    let unexplained: Vec<&str> = rows
        .into_iter()
        .filter(|(_, here)| names(here).next().is_none() && !here.starts_with("Cannot apply: "))
        .map(|(case, _)| case)
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}
