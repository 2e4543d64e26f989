//! `docs/election/upstream-cases.md` names tests that exist, and every scenario.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether the lines before a function, up to the last item's end, make it a test, with this case.
fn is_test(source: &str, function: &str, case: Option<&str>) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let named = |line: &&str| {
        line.trim_start_matches([' ', '\t'])
            .trim_start_matches("async ")
            .starts_with(&format!("fn {function}("))
    };
    let Some(place) = lines.iter().position(named) else {
        return false;
    };
    let above: Vec<&str> = lines[..place]
        .iter()
        .rev()
        .take_while(|line| !line.trim().is_empty() && line.trim() != "}")
        .copied()
        .collect();
    let has = |text: &str| above.iter().any(|line| line.trim().starts_with(text));
    let attribute = ["#[test]", "#[rstest]", "#[tokio::test"]
        .iter()
        .any(|text| has(text));
    attribute && case.is_none_or(|case| has(&format!("#[case::{case}(")))
}

fn exists(root: &Path, name: &str) -> bool {
    let (base, path) = match name.strip_prefix("it::") {
        Some(path) => (root.join("tests/it"), path),
        None => (root.join("src"), name),
    };
    let parts: Vec<&str> = path.split("::").collect();
    // The function is the last part, or the one before it where a case is named.
    [1, 2].into_iter().any(|last| {
        let Some((module, rest)) = parts.len().checked_sub(last).map(|at| parts.split_at(at)) else {
            return false;
        };
        let file = |parts: &[&str]| {
            let path: PathBuf = base.join(parts.join("/"));
            [path.with_extension("rs"), path.join("mod.rs")]
                .into_iter()
                .find_map(|path| fs::read_to_string(path).ok())
        };
        // Or a module within the file.
        let source = file(module).or_else(|| file(module.strip_suffix(&["tests"])?));
        source.is_some_and(|source| is_test(&source, rest[0], rest.get(1).copied()))
    })
}

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
