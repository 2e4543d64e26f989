//! Lists of the crates in a program (a "software bill of materials"), in CycloneDX 1.5: exactly those that
//! are linked into it, with the features that its build has, and no tools of the build.

use super::build::{Toolchain, rustc};
use super::{Image, Origin, oci, rfc3339};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A crate in the program.
#[derive(Debug, Default)]
struct Part {
    license: String,
    repository: String,
    /// References of the crates that it uses.
    uses: BTreeSet<String>,
}

/// The list for `program`, which is `image`'s of `toolchain`.
pub(super) fn list(
    root: &Path,
    image: &Image,
    toolchain: &Toolchain,
    program: &[u8],
    origin: &Origin,
) -> anyhow::Result<String> {
    let ran = Command::new("cargo")
        .args([
            "tree",
            "--locked",
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "depth",
        ])
        .args(["--format", "|{p}|{l}|{r}", "--target", toolchain.target])
        .args(["--package", image.name])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    if !ran.status.success() {
        bail!(
            "cargo tree: {}: {}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        );
    }
    let tree = String::from_utf8(ran.stdout).context("cargo's answer is not UTF-8")?;
    let parts = parts(&tree)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let sums = checksums(&lock);
    let own = reference(image.name, origin.version);
    let mut components: Vec<Value> = parts
        .iter()
        .filter(|(reference, _)| **reference != own)
        .map(|(reference, part)| component(reference, part, sums.get(reference)))
        .collect();
    components.extend(linked(toolchain)?);
    let uses = |(reference, part): (&String, &Part)| json!({"ref": reference, "dependsOn": part.uses});
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": rfc3339(origin.time)?,
            "component": {
                "type": "application",
                "bom-ref": own,
                "purl": own,
                "name": image.name,
                "version": origin.version,
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
                "hashes": [{"alg": "SHA-256", "content": hexadecimal(program)}],
                "properties": [
                    {"name": "evenkeel:commit", "value": origin.commit},
                    {"name": "evenkeel:target", "value": toolchain.target},
                    {"name": "evenkeel:profile", "value": image.profile},
                ],
            },
        },
        "components": components,
        "dependencies": parts.iter().map(uses).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&list).context("cannot write JSON")?;
    text.push('\n');
    Ok(text)
}

fn component(reference: &str, part: &Part, sum: Option<&String>) -> Value {
    let (name, version) = reference
        .trim_start_matches("pkg:cargo/")
        .split_once('@')
        .unwrap_or_default();
    let mut component = json!({
        "type": "library", "bom-ref": reference, "purl": reference, "name": name, "version": version,
        // Before 2018 crates wrote `/` for `OR`.
        "licenses": [{"expression": part.license.replace('/', " OR ").replace("  ", " ")}],
    });
    if !part.repository.is_empty() {
        component["externalReferences"] = json!([{"type": "vcs", "url": part.repository}]);
    }
    if let Some(sum) = sum {
        // That of the package's archive, which cargo compares.
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// What no crate brings: Rust's standard library, and the C library.
fn linked(toolchain: &Toolchain) -> anyhow::Result<[Value; 2]> {
    let rust = rustc(&["--version"])?;
    let rust = rust.split_whitespace().nth(1).unwrap_or_default();
    let library = |name: &str, version: &str, license: &str| json!({"type": "library", "name": name, "version": version, "licenses": [{"expression": license}]});
    Ok([
        library("rust-std", rust, "MIT OR Apache-2.0"),
        if let Some((major, minor)) = toolchain.glibc {
            library("glibc", &format!("{major}.{minor}"), "LGPL-2.1-or-later")
        } else {
            // It comes with Rust, which does not tell its version.
            library("musl", &format!("of Rust {rust}"), "MIT")
        },
    ])
}

/// Reads `cargo tree`: each line is a depth, and then a package, its license and its repository. What stands
/// below a package is listed where it comes first.
fn parts(tree: &str) -> anyhow::Result<BTreeMap<String, Part>> {
    let mut parts = BTreeMap::<String, Part>::new();
    let mut above = Vec::<String>::new();
    for line in tree.lines() {
        let columns: Vec<&str> = line.split('|').collect();
        let [depth, package, license, repository] = columns[..] else {
            bail!("cargo tree printed a line of another form: {line}");
        };
        let depth: usize = depth.parse().with_context(|| format!("no depth: {line}"))?;
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree printed no name and version: {line}");
        };
        let reference = reference(name, version.trim_start_matches('v'));
        above.truncate(depth);
        if let Some(user) = above.last().and_then(|user| parts.get_mut(user)) {
            user.uses.insert(reference.clone());
        }
        let part = parts.entry(reference.clone()).or_default();
        license.trim().clone_into(&mut part.license);
        repository
            .trim()
            .trim_end_matches("(*)")
            .trim()
            .clone_into(&mut part.repository);
        above.push(reference);
    }
    Ok(parts)
}

/// The checksums of packages in `Cargo.lock`, by reference.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let value = |package: &str, key: &str| {
        package.lines().find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(" = \"")?
                .strip_suffix('"')
                .map(str::to_owned)
        })
    };
    lock.split("[[package]]")
        .filter_map(|package| {
            let name = value(package, "name")?;
            Some((
                reference(&name, &value(package, "version")?),
                value(package, "checksum")?,
            ))
        })
        .collect()
}

/// A package URL, which is what tools compare with lists of vulnerabilities.
fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn hexadecimal(bytes: &[u8]) -> String {
    oci::digest(bytes).trim_start_matches("sha256:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|web v0.1.0 (/src/web)|Apache-2.0|\n\
        1|http v1.3.0|MIT OR Apache-2.0|https://example.org/http\n\
        2|bytes v1.2.0|MIT|https://example.org/bytes\n\
        1|bytes v1.2.0|MIT|https://example.org/bytes (*)\n\
        1|old v0.3.0|MIT/Apache-2.0|\n";

    #[test]
    fn each_crate_is_listed_once_with_what_it_uses() {
        let parts = parts(TREE).unwrap();
        let uses = |name: &str| parts[name].uses.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(parts.len(), 4);
        assert_eq!(
            uses("pkg:cargo/web@0.1.0"),
            [
                "pkg:cargo/bytes@1.2.0",
                "pkg:cargo/http@1.3.0",
                "pkg:cargo/old@0.3.0"
            ]
        );
        assert_eq!(uses("pkg:cargo/http@1.3.0"), ["pkg:cargo/bytes@1.2.0"]);
        let bytes = &parts["pkg:cargo/bytes@1.2.0"];
        assert_eq!(bytes.repository, "https://example.org/bytes");
        assert!(bytes.uses.is_empty());
    }

    #[test]
    fn a_crate_has_the_checksum_that_cargo_compares_and_an_spdx_expression() {
        let lock = "version = 4\n\n[[package]]\nname = \"old\"\nversion = \"0.3.0\"\nchecksum = \"ab12\"\n\n\
            [[package]]\nname = \"web\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        let old = "pkg:cargo/old@0.3.0";
        assert_eq!(sums, BTreeMap::from([(old.to_owned(), "ab12".to_owned())]));
        let component = component(old, &parts(TREE).unwrap()[old], sums.get(old));
        assert_eq!(component["hashes"][0]["content"], "ab12");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            (&component["name"], &component["version"]),
            (&"old".into(), &"0.3.0".into())
        );
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        assert!(
            parts("0|web v0.1.0|MIT")
                .unwrap_err()
                .to_string()
                .contains("0|web")
        );
    }
}
