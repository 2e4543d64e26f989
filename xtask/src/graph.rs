//! `check-graph`: the crates depend on each other as ARCHITECTURE.md says, and not otherwise.

use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

/// Crate name to the names of the crates of ours that it depends on, `evenkeel-` left out.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Compares the graph in ARCHITECTURE.md with the one in the manifests; fails naming each edge that only one has.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let file = root.join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let stated = stated(&text)?;
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let actual = actual(&metadata);
    let differences = differences(&stated, &actual);
    if !differences.is_empty() {
        bail!(
            "ARCHITECTURE.md and the manifests disagree:\n{}",
            differences.join("\n")
        );
    }
    Ok(())
}

/// Lines `a -> b, c`, and `tests of a -> b` for dev-dependencies; words in brackets are remarks.
fn stated(text: &str) -> anyhow::Result<Edges> {
    let mut edges = Edges::new();
    for line in text.lines() {
        let Some((from, to)) = line.split_once(" -> ") else {
            continue;
        };
        let to = to.split('(').next().unwrap_or_default();
        let from = from.trim();
        if !from.is_empty()
            && from
                .chars()
                .all(|c| c.is_ascii_lowercase() || matches!(c, ' ' | '-'))
        {
            edges.insert(
                from.to_owned(),
                to.split(',').map(|name| name.trim().to_owned()).collect(),
            );
        }
    }
    if edges.is_empty() {
        bail!("ARCHITECTURE.md names no edges (lines like `agent -> zone, net`)");
    }
    Ok(edges)
}

/// Dependencies between crates of the workspace; dev-dependencies belong to `tests of CRATE`.
fn actual(metadata: &Value) -> Edges {
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let short = |name: &str| name.strip_prefix("evenkeel-").unwrap_or(name).to_owned();
    let mut edges = Edges::new();
    for package in packages {
        let from = short(package["name"].as_str().unwrap_or_default());
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(to) = dependency["name"].as_str().filter(|to| names.contains(to)) else {
                continue;
            };
            let is_dev = dependency["kind"].as_str() == Some("dev");
            let from = if is_dev {
                format!("tests of {from}")
            } else {
                from.clone()
            };
            edges.entry(from).or_default().insert(short(to));
        }
    }
    edges
}

fn differences(stated: &Edges, actual: &Edges) -> Vec<String> {
    let list = |edges: &Edges| -> BTreeSet<String> {
        edges
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| format!("{from} -> {to}")))
            .collect()
    };
    let (stated, actual) = (list(stated), list(actual));
    let unnamed = actual
        .difference(&stated)
        .map(|edge| format!("  {edge}: in a manifest, not in ARCHITECTURE.md"));
    let missing = stated
        .difference(&actual)
        .map(|edge| format!("  {edge}: in ARCHITECTURE.md, not in a manifest"));
    unnamed.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_only_one_side_has_is_named() {
        let stated =
            stated("x\n```\nagent     -> zone, net\nzone -> api (plain data only)\na-b -> api\n```\n")
                .unwrap();
        let metadata = serde_json::json!({"packages": [
            {"name": "evenkeel-agent", "dependencies": [
                {"name": "evenkeel-zone", "kind": null}, {"name": "evenkeel-lab", "kind": null},
                {"name": "evenkeel-testkit", "kind": "dev"}, {"name": "serde", "kind": null},
            ]},
            {"name": "evenkeel-zone", "dependencies": [{"name": "evenkeel-api", "kind": null}]},
            {"name": "evenkeel-a-b", "dependencies": [{"name": "evenkeel-api", "kind": null}]},
            {"name": "evenkeel-lab", "dependencies": []}, {"name": "evenkeel-api", "dependencies": []},
            {"name": "evenkeel-testkit", "dependencies": []},
        ]});
        let found = differences(&stated, &actual(&metadata));
        assert_eq!(
            found,
            [
                "  agent -> lab: in a manifest, not in ARCHITECTURE.md",
                "  tests of agent -> testkit: in a manifest, not in ARCHITECTURE.md",
                "  agent -> net: in ARCHITECTURE.md, not in a manifest",
            ]
        );
    }

    #[test]
    fn a_page_without_edges_is_refused() {
        assert!(stated("nothing here").is_err());
    }
}
