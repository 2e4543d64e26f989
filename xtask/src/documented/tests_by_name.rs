//! Finds tests by their paths, in the sources: asking the test binaries would mean to build them all.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether there is a test of this path (`module::test`, or `module::test::case` of a table) below `src` of
/// the crate in the folder `home`, or, for `it::…`, below its `tests/it`. The path of another crate's test
/// begins with the name of that crate's folder.
pub(super) fn exists(root: &Path, home: &str, name: &str) -> bool {
    let crates = root.join("crates");
    let elsewhere = || {
        let (folder, path) = name.split_once("::")?;
        let folder = crates.join(folder);
        folder.join("Cargo.toml").is_file().then(|| is_in(&folder, path))
    };
    is_in(&crates.join(home), name) || elsewhere().unwrap_or(false)
}

fn is_in(folder: &Path, name: &str) -> bool {
    let (base, path) = match name.strip_prefix("it::") {
        Some(path) => (folder.join("tests/it"), path),
        None => (folder.join("src"), name),
    };
    let parts: Vec<&str> = path.split("::").collect();
    // The function is the last part, or the one before it where a case is named.
    [1, 2].into_iter().any(|last| {
        let Some((module, rest)) = parts.len().checked_sub(last).map(|at| parts.split_at(at)) else {
            return false;
        };
        // A module named `tests` may stand within the file of the module around it.
        let source = source(&base, module).or_else(|| source(&base, module.strip_suffix(&["tests"])?));
        source.is_some_and(|source| is_test(&source, rest[0], rest.get(1).copied()))
    })
}

/// The file of a module.
fn source(base: &Path, module: &[&str]) -> Option<String> {
    let path: PathBuf = base.join(module.join("/"));
    [
        path.with_extension("rs"),
        path.join("mod.rs"),
        path.join("lib.rs"),
        path.join("main.rs"),
    ]
    .into_iter()
    .find_map(|path| fs::read_to_string(path).ok())
}

/// Whether the lines above a function, up to the end of the item before it, make it a test, and one with this
/// case.
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
