//! Tests by name: documentation that names a test is wrong once the test is gone.

use std::fs;
use std::path::{Path, PathBuf};

/// The rows of a page's tables of two columns: upstream's case, and what stands beside it here.
pub fn rows(page: &str) -> Vec<(&str, &str)> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(case, _)| *case != "upstream")
        .collect()
}

/// The tests that a text names.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains("::"))
}

/// Of the tests that a page names in its tables: how many there are, and those that the crate at `root` (see [`exists`]) has not.
pub fn gone<'a>(root: &Path, page: &'a str) -> (usize, Vec<&'a str>) {
    let named: Vec<&str> = rows(page).into_iter().flat_map(|(_, here)| names(here)).collect();
    let count = named.len();
    let gone = named.into_iter().filter(|name| !exists(root, name)).collect();
    (count, gone)
}

/// Whether the lines before a function, up to the last item's end, make it a test, with this case.
fn is_test(source: &str, function: &str, case: Option<&str>) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let named = |line: &&str| {
        line.trim_start()
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

/// Whether the crate at `root` has a test of this path (`module::test`, or `module::test::case` of a table) below `src`,
/// or, for `it::…`, below `tests/it`. A test of a crate beside it has that crate's folder before its path.
pub fn exists(root: &Path, name: &str) -> bool {
    let elsewhere = || {
        let (neighbour, path) = name.split_once("::")?;
        let neighbour = root.parent()?.join(neighbour);
        neighbour
            .join("Cargo.toml")
            .is_file()
            .then(|| is_in(&neighbour, path))
    };
    is_in(root, name) || elsewhere().unwrap_or(false)
}

fn is_in(root: &Path, name: &str) -> bool {
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
            [
                path.with_extension("rs"),
                path.join("mod.rs"),
                path.join("main.rs"),
            ]
            .into_iter()
            .find_map(|path| fs::read_to_string(path).ok())
        };
        // Or a module within the file.
        let source = file(module).or_else(|| file(module.strip_suffix(&["tests"])?));
        source.is_some_and(|source| is_test(&source, rest[0], rest.get(1).copied()))
    })
}
