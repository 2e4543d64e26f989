//! `size`: how large the tree is, crate by crate, and whether it stays within its limits.
//!
//! Counted are the lines of all `*.rs` files, blank ones and comments included. As tests count `tests`,
//! `benches`, `fuzz` and `examples`, files named `tests.rs` or `*_tests.rs`, inline test modules, and the
//! crates `testkit` and `xtask`; all other lines are the product.

mod circles;
mod limits;
mod source;

use anyhow::{Context, bail};
use limits::{LIMITS, Limit, Measure, TABLES};
pub(crate) use source::is_test_only;
use source::{Function, Source};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Prints the sizes; with `check`, fails where a limit is broken or could be lower.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let crates = read(root)?;
    print(&mut std::io::stdout().lock(), &crates).context("cannot write to standard output")?;
    let complaints = complaints(&Totals::of(&crates));
    if check && !complaints.is_empty() {
        bail!("the size of the tree:\n{}", complaints.join("\n"));
    }
    Ok(())
}

/// One crate.
#[derive(Debug)]
struct Crate {
    name: String,
    sources: Vec<Source>,
    /// Files that import each other in a circle, the largest circle first.
    circles: Vec<Vec<String>>,
}

impl Crate {
    fn product_lines(&self) -> usize {
        self.sources.iter().map(Source::product_lines).sum()
    }

    fn test_lines(&self) -> usize {
        self.sources.iter().map(|source| source.test_lines).sum()
    }

    fn product_files(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_test)
    }

    /// Product lines of the file in the middle.
    fn median(&self) -> usize {
        let mut lines: Vec<usize> = self.product_files().map(Source::product_lines).collect();
        lines.sort_unstable();
        lines.get(lines.len() / 2).copied().unwrap_or_default()
    }

    fn longest_file(&self) -> Option<&Source> {
        self.product_files().max_by_key(|source| source.product_lines())
    }

    /// The longest function of the product that is no table of data.
    fn longest_function(&self) -> Option<(&Source, &Function)> {
        self.product_files()
            .flat_map(|source| source.functions.iter().map(move |function| (source, function)))
            .filter(|(source, function)| !is_table(source, function))
            .max_by_key(|(_, function)| function.lines)
    }
}

fn is_table(source: &Source, function: &Function) -> bool {
    TABLES
        .iter()
        .any(|(file, name, _)| *file == source.path && *name == function.name)
}

/// What the limits speak of, over all crates; each with what to look at.
#[derive(Debug, Default)]
struct Totals {
    product: usize,
    tests: usize,
    file: (usize, String),
    function: (usize, String),
    circle: (usize, String),
    wide_comments: usize,
}

impl Totals {
    fn of(crates: &[Crate]) -> Self {
        let mut totals = Self::default();
        for each in crates {
            totals.product += each.product_lines();
            totals.tests += each.test_lines();
            totals.wide_comments += each
                .sources
                .iter()
                .map(|source| source.wide_comments)
                .sum::<usize>();
            if let Some(file) = each.longest_file() {
                totals.file = totals.file.max((file.product_lines(), file.path.clone()));
            }
            if let Some((source, function)) = each.longest_function() {
                let place = format!("{} in {}:{}", function.name, source.path, function.line);
                totals.function = totals.function.max((function.lines, place));
            }
            if let Some(circle) = each.circles.first() {
                totals.circle = totals.circle.max((circle.len(), circle.join(", ")));
            }
        }
        totals
    }

    /// The measured value, and where it is found.
    fn measured(&self, measure: Measure) -> (usize, &str) {
        match measure {
            Measure::ProductLines => (self.product, ""),
            Measure::TestLines => (self.tests, ""),
            Measure::LongestFile => (self.file.0, &self.file.1),
            Measure::LongestFunction => (self.function.0, &self.function.1),
            Measure::LargestCircle => (self.circle.0, &self.circle.1),
            Measure::WideComments => (self.wide_comments, ""),
        }
    }
}

/// What is wrong: a limit that is broken, or one that the tree has left so far below that it should be
/// lowered.
fn complaints(totals: &Totals) -> Vec<String> {
    let mut complaints = Vec::new();
    for limit in &LIMITS {
        let (measured, place) = totals.measured(limit.measure);
        let place = if place.is_empty() {
            String::new()
        } else {
            format!(" ({place})")
        };
        let Limit {
            measure,
            in_force: limit,
            goal,
            slack,
        } = *limit;
        if measured > limit {
            complaints.push(format!(
                "  {measure}: {measured} is above the limit of {limit}{place}"
            ));
        } else if limit > goal && limit - measured.max(goal) > slack {
            let lower = measured.max(goal);
            complaints.push(format!(
                "  {measure}: only {measured} by now; lower the limit from {limit} to {lower} in xtask/src/size/limits.rs, so that \
                 it stays so"
            ));
        }
    }
    complaints
}

/// All crates of the checkout, by name.
fn read(root: &Path) -> anyhow::Result<Vec<Crate>> {
    let mut folders = vec![root.join("xtask")];
    let crates = root.join("crates");
    for entry in std::fs::read_dir(&crates).with_context(|| format!("cannot list {}", crates.display()))? {
        folders.push(entry.context("cannot list the crates")?.path());
    }
    let mut found = Vec::new();
    for folder in folders
        .iter()
        .filter(|folder| folder.join("Cargo.toml").is_file())
    {
        let mut files = Vec::new();
        rust_files(folder, &mut files)?;
        let mut texts = BTreeMap::new();
        for file in files {
            let path = file.strip_prefix(root).unwrap_or(&file);
            let path = path.to_string_lossy().replace('\\', "/");
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
            texts.insert(path, text);
        }
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.push(measure(name, &texts)?);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Measures one crate, given as path (from the root of the checkout) to text.
fn measure(name: String, texts: &BTreeMap<String, String>) -> anyhow::Result<Crate> {
    let mut sources = Vec::new();
    let mut syntax = BTreeMap::new();
    for (path, text) in texts {
        let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        sources.push(Source::of(path, text, &file));
        syntax.insert(path.clone(), file);
    }
    Ok(Crate {
        name,
        sources,
        circles: circles::find(&syntax),
    })
}

/// The files of the product at a file or below a folder, as pairs of path (from the root) and text, in order.
pub(crate) fn product_sources(root: &Path, place: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let place = root.join(place);
    if place.is_dir() {
        rust_files(&place, &mut files)?;
    } else {
        files.push(place);
    }
    let mut sources = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(&file);
        let path = path.to_string_lossy().replace('\\', "/");
        if !source::is_test(&path) {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
            sources.push((path, text));
        }
    }
    sources.sort();
    Ok(sources)
}

/// Adds the Rust files below a folder.
pub(crate) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("cannot list {}", folder.display()))?
            .path();
        if path.is_dir() {
            // A crate that is built alone has its output beside its manifest.
            if path.file_name().is_none_or(|name| name != "target") {
                rust_files(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, crates: &[Crate]) -> std::io::Result<()> {
    writeln!(
        out,
        "{:<22} {:>7} {:>7} {:>5} {:>6}  {:<34} longest function",
        "crate", "product", "tests", "files", "median", "longest file"
    )?;
    for each in crates {
        let prefix = format!("crates/{}/", each.name);
        let short = |path: &str| path.strip_prefix(&prefix).unwrap_or(path).to_owned();
        let file = each
            .longest_file()
            .map(|file| format!("{} {}", file.product_lines(), short(&file.path)))
            .unwrap_or_default();
        let function = each
            .longest_function()
            .map(|(source, function)| {
                format!(
                    "{} {} ({}:{})",
                    function.lines,
                    function.name,
                    short(&source.path),
                    function.line
                )
            })
            .unwrap_or_default();
        writeln!(
            out,
            "{:<22} {:>7} {:>7} {:>5} {:>6}  {file:<34} {function}",
            each.name,
            each.product_lines(),
            each.test_lines(),
            each.product_files().count(),
            each.median()
        )?;
    }
    let files: usize = crates.iter().map(|each| each.product_files().count()).sum();
    let totals = Totals::of(crates);
    writeln!(
        out,
        "{:<22} {:>7} {:>7} {files:>5}",
        "total", totals.product, totals.tests
    )?;
    writeln!(
        out,
        "\ncircles of modules, by crate: files that import each other"
    )?;
    for each in crates {
        for circle in &each.circles {
            writeln!(
                out,
                "  {}: {} files: {}",
                each.name,
                circle.len(),
                circle.join(", ")
            )?;
        }
    }
    writeln!(out, "\nlimits")?;
    for limit in &LIMITS {
        let (measured, place) = totals.measured(limit.measure);
        let Limit {
            measure,
            in_force: limit,
            goal,
            ..
        } = limit;
        writeln!(
            out,
            "  {measure}: {measured} of at most {limit}, goal {goal}; {place}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(texts: &[(&str, &str)]) -> Crate {
        let texts = texts
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        measure("x".to_owned(), &texts.collect()).unwrap()
    }

    #[test]
    fn lines_are_the_products_or_the_tests() {
        let found = crate_of(&[
            (
                "crates/x/src/lib.rs",
                "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
            ),
            ("crates/x/src/a/tests/net.rs", "fn a() {}\n"),
            ("crates/x/src/b_tests.rs", "fn a() {}\n"),
            ("crates/x/src/middle.rs", "fn a() {}\n// A comment.\n\n"),
            ("crates/x/benches/speed.rs", "fn a() {}\nfn b() {}\n"),
        ]);
        assert_eq!(
            (found.product_lines(), found.test_lines()),
            (2 + 3, 4 + 1 + 1 + 2)
        );
        assert_eq!((found.product_files().count(), found.median()), (2, 3));
        assert_eq!(found.longest_file().unwrap().path, "crates/x/src/middle.rs");
    }

    fn totals(product: usize) -> Totals {
        let goal = |measure| LIMITS.iter().find(|limit| limit.measure == measure).unwrap().goal;
        Totals {
            product,
            tests: goal(Measure::TestLines),
            file: (goal(Measure::LongestFile), String::from("a.rs")),
            function: (goal(Measure::LongestFunction), String::from("f in a.rs:1")),
            circle: (goal(Measure::LargestCircle), String::from("a.rs, b.rs")),
            wide_comments: goal(Measure::WideComments),
        }
    }

    #[test]
    fn a_limit_that_is_broken_is_named_and_one_that_is_too_high_is_to_be_lowered() {
        let product = LIMITS
            .iter()
            .find(|limit| limit.measure == Measure::ProductLines)
            .unwrap();
        let about_product = |lines: usize| -> Vec<String> {
            let all = complaints(&totals(lines)).into_iter();
            all.filter(|complaint| complaint.contains("lines of the product"))
                .collect()
        };
        assert_eq!(about_product(product.in_force), Vec::<String>::new());
        let above = about_product(product.in_force + 1);
        assert!(
            above.len() == 1 && above[0].contains("above the limit"),
            "{above:?}"
        );
        if product.in_force > product.goal + product.slack {
            let below = about_product(product.in_force - product.slack - 1);
            assert!(
                below.len() == 1 && below[0].contains("lower the limit"),
                "{below:?}"
            );
        }
        // Below the goal nothing is left to be asked for.
        assert!(
            about_product(product.goal / 2)
                .iter()
                .all(|text| text.contains(&format!("to {}", product.goal)))
        );
    }

    #[test]
    fn every_table_of_data_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (path, name, _) in TABLES {
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            let source = Source::of(path, &text, &syn::parse_file(&text).unwrap());
            let is_there = source.functions.iter().any(|function| function.name == name);
            assert!(is_there, "{name} is gone from {path}");
        }
    }
}
