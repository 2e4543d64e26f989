//! Peers made of Kubernetes' own code: Go programs in `interop`, built when a test needs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds client-go's candidate (see [`crate::candidate`]) and returns the program, which lies in
/// `directory`. Modules are fetched if need be.
///
/// # Errors
/// What Go says.
pub fn build_clientgo(go: &Path, directory: &Path) -> Result<PathBuf, String> {
    build(go, "clientgo", &[], directory)
}

/// Builds the kubelet's probe handlers (see `interop/kubeletprobe/README.md`) and returns the program, which
/// lies in `directory`. They call themselves `kube-probe/1.36`. Modules are fetched if need be.
///
/// # Errors
/// What Go says.
pub fn build_kubeletprobe(go: &Path, directory: &Path) -> Result<PathBuf, String> {
    const VERSION: &str =
        "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36";
    build(go, "kubeletprobe", &["-ldflags", VERSION], directory)
}

fn build(go: &Path, name: &str, flags: &[&str], directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../interop")
        .join(name);
    let built = Command::new(go)
        .args(["build", "-mod=readonly", "-buildvcs=false"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", go.display()))?;
    if built.status.success() {
        Ok(program)
    } else {
        let said = String::from_utf8_lossy(&built.stderr);
        Err(format!("cannot build interop/{name}:\n{said}"))
    }
}
