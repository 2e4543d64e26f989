//! `check-outside`: the crates that others may use are packaged, and programs outside the workspace are
//! built of them.
//!
//! Each folder of `interop/outside` is such a program: it depends on one crate of ours. Here it is built of
//! the crates' packages, as if they came from a registry, so that a package lacks no file. It has no lock
//! file of its own in git: the workspace's is copied beside it, so that it is checked with the versions
//! that the tests ran with.

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program may depend on.
struct Program {
    /// Its folder.
    name: &'static str,
    /// How many packages it may depend on, direct and not.
    most: usize,
    /// Packages, or `package/feature`, that it must be free of.
    without: &'static [&'static str],
}

/// A limit may be this far above what is counted: then it is to be lowered, so that it goes on to mean
/// something.
const SLACK: usize = 10;

const PROGRAMS: [Program; 4] = [
    // It is a client of the API server by way of kube, and serves nothing.
    Program {
        name: "election",
        most: 155,
        without: &[
            "clap",
            "axum",
            "hyper/server",
            "tonic",
            "prost",
            "rcgen",
            "tracing-subscriber",
            "evenkeel-net",
        ],
    },
    // HTTP, TCP and commands: no client of the API server either.
    Program {
        name: "prober",
        most: 104,
        without: &[
            "clap",
            "axum",
            "hyper/server",
            "tonic",
            "prost",
            "rcgen",
            "tracing-subscriber",
            "kube",
            "evenkeel-cri",
        ],
    },
    // Without the kubelet's HTTP API, which is a feature. Its election and its prober are used without a
    // server too.
    Program {
        name: "virtual-node",
        most: 174,
        without: &[
            "clap",
            "axum",
            "hyper/server",
            "tonic",
            "prost",
            "rcgen",
            "tracing-subscriber",
            "evenkeel-cri",
        ],
    },
    // It is a server, and makes certificates.
    Program {
        name: "api-server",
        most: 220,
        without: &[
            "clap",
            "tonic",
            "prost",
            "tracing-subscriber",
            "evenkeel-api",
            "kube-runtime",
        ],
    },
];

/// Packages by name and version, each with the features that are on.
type Packages = BTreeMap<(String, String), BTreeSet<String>>;

/// Packages the crates that may be published; then counts the dependencies of each program, compares them
/// with its limit and compiles it.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = target.join("outside");
    let _ = std::fs::remove_dir_all(&place);
    let crates = packaged(root, &target, &place.join("packages"))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let locked = locked(&lock);
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let profiles = profiles(&manifest);
    let mut complaints = Vec::new();
    for program in &PROGRAMS {
        let folder = place.join(program.name);
        set_up(
            &root.join("interop/outside").join(program.name),
            &folder,
            &crates,
            &profiles,
            &lock,
        )
        .with_context(|| format!("cannot set up {}", folder.display()))?;
        let tree = cargo(
            &folder,
            &[
                "tree", "--quiet", "-e", "normal", "--prefix", "none", "-f", "{p}|{f}",
            ],
        )?;
        let packages = packages(&tree);
        let report = format!(
            "{}: {} dependencies, at most {}",
            program.name,
            packages.len(),
            program.most
        );
        writeln!(std::io::stdout(), "{report}").context("cannot write to standard output")?;
        complaints.extend(problems(program, &packages, &locked));
        let target = target.display().to_string();
        cargo(
            &folder,
            &["check", "--quiet", "--locked", "--target-dir", &target],
        )?;
    }
    if !complaints.is_empty() {
        bail!("programs outside the workspace:\n{}", complaints.join("\n"));
    }
    Ok(())
}

/// Packages every crate that may be published and unpacks it; the name of each with its folder.
fn packaged(root: &Path, target: &Path, place: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let metadata = cargo(
        root,
        &["metadata", "--format-version", "1", "--no-deps", "--offline"],
    )?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let all = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let open = all.iter().filter(|package| package["publish"].is_null());
    let names: Vec<(&str, &str)> = open
        .filter_map(|package| Some((package["name"].as_str()?, package["version"].as_str()?)))
        .collect();
    let mut arguments = vec!["package", "--quiet", "--no-verify", "--allow-dirty"];
    arguments.extend(names.iter().flat_map(|(name, _)| ["-p", name]));
    cargo(root, &arguments)?;
    writeln!(std::io::stdout(), "packaged: {}", names.len()).context("cannot write to standard output")?;
    std::fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let mut folders = BTreeMap::new();
    for (name, version) in names {
        let file = target.join("package").join(format!("{name}-{version}.crate"));
        // Not with the times in the package, which are all the same: cargo tells by them what has changed.
        let unpacked = Command::new("tar")
            .arg("-xmzf")
            .arg(&file)
            .arg("-C")
            .arg(place)
            .status();
        if !unpacked.context("cannot run tar")?.success() {
            bail!("cannot unpack {}", file.display());
        }
        folders.insert(name.to_owned(), place.join(format!("{name}-{version}")));
    }
    Ok(folders)
}

/// Copies a program, with the packages in place of the paths that it names. The packages name each other by
/// version alone, for which they stand in too.
fn set_up(
    from: &Path,
    to: &Path,
    crates: &BTreeMap<String, PathBuf>,
    profiles: &str,
    lock: &str,
) -> std::io::Result<()> {
    std::fs::create_dir_all(to.join("src"))?;
    std::fs::copy(from.join("src/main.rs"), to.join("src/main.rs"))?;
    let mut manifest = std::fs::read_to_string(from.join("Cargo.toml"))?;
    let mut patches = String::from("\n[patch.crates-io]\n");
    for (name, folder) in crates {
        let short = name.strip_prefix("evenkeel-").unwrap_or(name);
        let folder = folder.display();
        manifest = manifest.replace(&format!("\"../../../crates/{short}\""), &format!("\"{folder}\""));
        patches.extend([name, " = { path = \"", &folder.to_string(), "\" }\n"]);
    }
    // From here the same path leads to the tree, too, unless the target directory lies elsewhere.
    if manifest.contains("../crates/") {
        return Err(std::io::Error::other(
            "it depends on a crate that is not packaged",
        ));
    }
    std::fs::write(to.join("Cargo.toml"), format!("{manifest}{patches}\n{profiles}"))?;
    std::fs::write(to.join("Cargo.lock"), lock)
}

/// Runs cargo in a folder and returns what it prints; what it says of errors goes where ours does.
fn cargo(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(folder)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run cargo in {}", folder.display()))?;
    if !output.status.success() {
        bail!("cargo {} failed in {}", arguments.join(" "), folder.display());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The workspace's profiles: what was compiled for the workspace with the same features is not compiled
/// again.
fn profiles(manifest: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.starts_with("[profile.");
        }
        if inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The lines of `cargo tree`, each `NAME vVERSION (WHERE)|FEATURE,FEATURE`; the first is the program itself.
fn packages(tree: &str) -> Packages {
    let mut packages = Packages::new();
    for line in tree.lines().skip(1) {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            continue;
        };
        let features = features
            .trim_end_matches(" (*)")
            .split(',')
            .filter(|name| !name.is_empty());
        packages
            .entry((name.to_owned(), version.trim_start_matches('v').to_owned()))
            .or_default()
            .extend(features.map(ToOwned::to_owned));
    }
    packages
}

/// Name and version of each package of a lock file.
fn locked(lock: &str) -> BTreeSet<(String, String)> {
    let value = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    let lines: Vec<&str> = lock.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| match pair {
        [name, version] if name.starts_with("name = ") => Some((value(name), value(version))),
        _ => None,
    });
    pairs.collect()
}

/// What is wrong with the dependencies of a program.
fn problems(program: &Program, packages: &Packages, locked: &BTreeSet<(String, String)>) -> Vec<String> {
    let Program { name, most, without } = program;
    let count = packages.len();
    let mut problems = Vec::new();
    if count > *most {
        problems.push(format!("  {name}: {count} dependencies, more than {most}"));
    }
    if count + SLACK < *most {
        problems.push(format!(
            "  {name}: {count} dependencies; lower its limit in xtask/src/outside.rs from {most} to {count}"
        ));
    }
    for unwanted in *without {
        let (package, feature) = unwanted.split_once('/').unwrap_or((unwanted, ""));
        let found = packages.iter().any(|((name, _), features)| {
            name == package && (feature.is_empty() || features.contains(feature))
        });
        if found {
            problems.push(format!("  {name}: depends on {unwanted}"));
        }
    }
    for (package, version) in packages.keys().filter(|package| !locked.contains(*package)) {
        problems.push(format!(
            "  {name}: depends on {package} {version}, which the workspace does not"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "program",
        most: 12,
        without: &["clap", "hyper/server"],
    };
    const LOCK: &str = "[[package]]\nname = \"hyper\"\nversion = \"1.0.0\"\ndependencies = [\n \"clap\",\n]\n\n\
                        [[package]]\nname = \"clap\"\nversion = \"4.0.0\"\n";

    fn found(tree: &str) -> Vec<String> {
        problems(&PROGRAM, &packages(tree), &locked(LOCK))
    }

    #[test]
    fn packages_are_counted_once_and_the_program_itself_is_none() {
        let tree = "program v0.0.0 (/x)|\nhyper v1.0.0|client\nhyper v1.0.0|client (*)\nclap v4.0.0|\n";
        assert_eq!(packages(tree).len(), 2);
    }

    #[test]
    fn what_a_program_must_be_free_of_is_named() {
        assert!(
            found("program v0.0.0|\nhyper v1.0.0|client,http1\nhyper v1.0.0|client,http1 (*)\n").len() < 2
        );
        let problems =
            found("program v0.0.0|\nhyper v1.0.0|http1,server\nclap v4.0.0|derive\nclap v4.1.0|\n");
        assert_eq!(
            problems,
            [
                "  program: depends on clap",
                "  program: depends on hyper/server",
                "  program: depends on clap 4.1.0, which the workspace does not",
            ]
        );
    }

    #[test]
    fn a_limit_that_is_passed_or_too_far_away_is_named() {
        let tree = |count: usize| -> String {
            let lines = (0..count).map(|number| format!("p{number} v1.0.0|\n"));
            std::iter::once("program v0.0.0|\n".to_owned())
                .chain(lines)
                .collect()
        };
        let limits = |count: usize| -> Vec<String> {
            let problems = found(&tree(count)).into_iter();
            problems
                .filter(|problem| !problem.contains("which the workspace"))
                .collect()
        };
        assert_eq!(limits(13), ["  program: 13 dependencies, more than 12"]);
        assert_eq!(limits(12), Vec::<String>::new());
        assert_eq!(limits(2), Vec::<String>::new());
        assert_eq!(
            limits(1),
            ["  program: 1 dependencies; lower its limit in xtask/src/outside.rs from 12 to 1"]
        );
    }

    #[test]
    fn the_profiles_of_a_manifest_are_all_of_it_from_their_heads() {
        let manifest = "[package]\nname = \"x\"\n\n[profile.dev]\ndebug = 1\n[profile.dev.package.y]\na = 2\n[z]\nb = 3\n";
        assert_eq!(
            profiles(manifest),
            "[profile.dev]\ndebug = 1\n[profile.dev.package.y]\na = 2\n"
        );
    }
}
