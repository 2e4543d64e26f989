//! `real`: Kubernetes' own control plane, built of its Go modules (see `interop/kubernetes/README.md`).

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Builds the control plane if need be, and runs it with `args`; `up` without any. With `build_only` it
/// prints where the program is instead.
pub(crate) fn run(root: &Path, build_only: bool, args: Vec<OsString>) -> anyhow::Result<()> {
    let program = build(root)?;
    if build_only {
        return writeln!(std::io::stdout(), "{}", program.display()).context("cannot write");
    }
    let args = if args.is_empty() { vec!["up".into()] } else { args };
    // It takes this process's place, so that signals and exit codes are its own.
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Where the program is, built anew if a source is newer.
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    const VERSION: &str = "k8s.io/component-base/version";
    let source = root.join("interop/kubernetes");
    let program = root.join("target/real/kubernetes");
    if is_current(&source, &program)? {
        return Ok(program);
    }
    let release = release(root)?;
    let (major, rest) = release.split_once('.').context("the release has no minor")?;
    let minor = rest.split('.').next().unwrap_or_default();
    let flags = format!(
        "-s -w -X {VERSION}.gitVersion=v{release} -X {VERSION}.gitMajor={major} -X {VERSION}.gitMinor={minor} \
         -X {VERSION}.gitTreeState=clean"
    );
    writeln!(
        std::io::stderr(),
        "building Kubernetes {release} of its Go modules; the first time takes some minutes"
    )
    .context("cannot write")?;
    let built = Command::new("go")
        .args([
            "build",
            "-mod=readonly",
            "-buildvcs=false",
            "-trimpath",
            "-ldflags",
            &flags,
            "-o",
        ])
        .arg(&program)
        .arg(".")
        .current_dir(&source)
        .status()
        .context("cannot start `go`; install Go 1.26 or newer")?;
    if !built.success() {
        bail!("`go build` in interop/kubernetes failed ({built})");
    }
    Ok(program)
}

/// The release of Kubernetes that is built, `1.36.2`.
pub(crate) fn release(root: &Path) -> anyhow::Result<String> {
    let module = root.join("interop/kubernetes/go.mod");
    let text = std::fs::read_to_string(&module).with_context(|| format!("{}", module.display()))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))
        .and_then(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .with_context(|| format!("{} requires no k8s.io/kubernetes", module.display()))
}

/// Whether the program is newer than everything that it is built of.
fn is_current(source: &Path, program: &Path) -> anyhow::Result<bool> {
    let Ok(built) = program.metadata().and_then(|data| data.modified()) else {
        return Ok(false);
    };
    let mut newest = SystemTime::UNIX_EPOCH;
    let entries = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    for entry in entries {
        let data = entry
            .and_then(|entry| entry.metadata())
            .context("cannot read interop/kubernetes")?;
        // Scenarios are a folder beside the sources.
        if data.is_file() {
            newest = newest.max(data.modified().context("cannot read interop/kubernetes")?);
        }
    }
    Ok(newest < built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_again_when_a_source_is_newer_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("source"), folder.path().join("program"));
        std::fs::create_dir(&source).unwrap();
        let write = |path: &Path, seconds: u64| {
            std::fs::write(path, "x").unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        write(&source.join("main.go"), 1_000);
        assert!(!is_current(&source, &program).unwrap(), "there is none");
        write(&program, 2_000);
        assert!(is_current(&source, &program).unwrap());
        std::fs::create_dir(source.join("scenarios")).unwrap();
        assert!(is_current(&source, &program).unwrap(), "a folder is no source");
        write(&source.join("go.mod"), 3_000);
        assert!(!is_current(&source, &program).unwrap());
    }

    #[test]
    fn the_release_is_the_one_that_is_required() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(release(&root).unwrap(), "1.36.2");
    }
}
