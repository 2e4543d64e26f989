//! Peers made of Kubernetes' and of Prometheus' own code: Go programs in `interop`, built when a test needs
//! them.

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

/// Builds Helm of its own module, in the version of `interop/helm/go.mod`, and returns the program, which
/// lies in `directory`.
///
/// # Errors
/// What Go says.
pub fn build_helm(go: &Path, directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join("helm");
    let command = built(go, "helm", "build", &program);
    finish("helm", command, "helm.sh/helm/v4/cmd/helm")?;
    Ok(program)
}

/// Builds Prometheus' promtool of its own module, in the version of `interop/promtool/go.mod`, and returns
/// the program, which lies in `directory`. It knows no clouds in which to look for targets, which are most
/// of what it is made of.
///
/// # Errors
/// What Go says.
pub fn build_promtool(go: &Path, directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join("promtool");
    let mut command = built(go, "promtool", "build", &program);
    command.args(["-tags", "remove_all_sd"]);
    finish(
        "promtool",
        command,
        "github.com/prometheus/prometheus/cmd/promtool",
    )?;
    Ok(program)
}

/// Builds the suite of the small controller (see `interop/controller`) and returns the program, which lies
/// in `directory`. It is run in [`source`]`("controller")`.
///
/// # Errors
/// What Go says.
pub fn build_controller_suite(go: &Path, directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join("controller.test");
    let mut command = built(go, "controller", "test", &program);
    command.arg("-c");
    finish("controller", command, ".")?;
    Ok(program)
}

/// Where a peer's source lies.
pub fn source(name: &str) -> PathBuf {
    let interop = crate::root().join("interop");
    interop.join(name)
}

/// A Python that has the package `kubernetes`: `$EVENKEEL_PYTHON`, the first on the PATH, or the system's,
/// for which distributions package it.
pub fn python_with_kubernetes() -> Option<PathBuf> {
    let system = PathBuf::from("/usr/bin/python3");
    let has_it = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import kubernetes"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let named = crate::tool("EVENKEEL_PYTHON", "python3");
    named.into_iter().chain([system]).find(has_it)
}

fn build(go: &Path, name: &str, flags: &[&str], directory: &Path) -> Result<PathBuf, String> {
    let program = directory.join(name);
    let mut command = built(go, name, "build", &program);
    command.args(flags);
    finish(name, command, ".")?;
    Ok(program)
}

fn built(go: &Path, name: &str, verb: &str, program: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .args([verb, "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(program)
        .current_dir(source(name))
        .stdin(Stdio::null());
    command
}

fn finish(name: &str, mut command: Command, package: &str) -> Result<(), String> {
    let output = command.arg(package).output();
    let output = output.map_err(|error| format!("cannot start Go: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("cannot build interop/{name}:\n{said}"))
}
