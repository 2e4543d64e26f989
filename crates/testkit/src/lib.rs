//! Test support: conditions awaited with a deadline, skips that are seen, tools that may be missing, a
//! cluster of the test's own, an API server on links that can be cut, networks that lose packets, candidates
//! of elections as processes, programs on Kubernetes' own code as peers, its control plane, a container
//! runtime, what is logged, benchmarks of many processes, and (feature `arklet`) fake Koupleless bases and an
//! MQTT broker.

#[cfg(feature = "arklet")]
pub mod arklet;
pub mod attacks;
pub mod bench;
pub mod candidate;
pub mod cluster;
pub mod containerd;
pub mod documents;
pub mod interop;
pub mod koupleless;
pub mod kubectl;
pub mod log;
#[cfg(feature = "arklet")]
pub mod mqtt;
pub mod netns;
pub mod objects;
mod ports;
pub mod real;
mod served;
mod wait;

pub use cluster::{Cluster, read};
pub use evenkeel_apiserver::{
    ApiServer, Fault, Interception, Options, RecordedRequest, RequestFilter, TestServer,
};
pub use ports::free_port;
pub use served::{Link, ServedApi};
pub use wait::{SOON, becomes, ends, eventually, eventually_here, until, until_within};

use std::path::{Path, PathBuf};

/// Says on standard error that a test was skipped and why, in the form that CI counts.
///
/// ```
/// let Some(_kubectl) = evenkeel_testkit::kubectl() else {
///     return evenkeel_testkit::skipped("kubectl_lists_nodes", "no kubectl on PATH");
/// };
/// ```
pub fn skipped(test: &str, why: &str) {
    use std::io::Write as _;
    let line = format!("SKIPPED {test}: {why}\n");
    // Past the test harness's capture, so that the line is seen for passing tests too.
    let shown = std::io::stderr().write_all(line.as_bytes());
    assert!(shown.is_ok(), "cannot write to standard error");
    if let Ok(file) = std::env::var("EVENKEEL_SKIP_LOG") {
        let appended = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut log| log.write_all(line.as_bytes()));
        assert!(
            appended.is_ok(),
            "cannot append to EVENKEEL_SKIP_LOG={file}: {appended:?}"
        );
    }
}

/// The root of the repository.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fresh API server inside the process, with the objects that a fresh cluster has.
pub fn api_server() -> ApiServer {
    api_server_with(Options::default())
}

/// The same with options.
#[expect(clippy::panic, reason = "a test without its server has failed")]
pub fn api_server_with(options: Options) -> ApiServer {
    evenkeel_net::init_crypto();
    match ApiServer::new(options) {
        Ok(server) => server,
        Err(error) => panic!("cannot make an API server: {error}"),
    }
}

/// The real `kubectl`: `$EVENKEEL_KUBECTL`, or the first on the PATH.
pub fn kubectl() -> Option<PathBuf> {
    tool("EVENKEEL_KUBECTL", "kubectl")
}

/// Every `kubectl` there is: `$EVENKEEL_KUBECTL` alone, or the ones on the PATH with the versions beside
/// them, which some distributions install as `kubectl.1.NN`. Sorted, none twice.
pub fn kubectls() -> Vec<PathBuf> {
    if std::env::var_os("EVENKEEL_KUBECTL").is_some_and(|named| !named.is_empty()) {
        return kubectl().into_iter().collect();
    }
    kubectls_on(&std::env::var_os("PATH").unwrap_or_default())
}

fn kubectls_on(path: &std::ffi::OsStr) -> Vec<PathBuf> {
    let mut found = std::collections::BTreeSet::new();
    for directory in std::env::split_paths(path) {
        let Ok(program) = directory.join("kubectl").canonicalize() else {
            continue;
        };
        let beside = program.parent().map(std::fs::read_dir);
        for entry in [std::fs::read_dir(&directory)]
            .into_iter()
            .chain(beside)
            .flatten()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix("kubectl"));
            let digits = |version: &str| {
                version.is_empty()
                    || version
                        .strip_prefix(".1.")
                        .is_some_and(|minor| minor.parse::<u8>().is_ok())
            };
            if version.is_some_and(digits)
                && let Ok(file) = entry.path().canonicalize()
                && is_executable(&file)
            {
                found.insert(file);
            }
        }
    }
    found.into_iter().collect()
}

/// The Go tool chain: `$EVENKEEL_GO`, or the first on the PATH.
pub fn go() -> Option<PathBuf> {
    tool("EVENKEEL_GO", "go")
}

/// A program for tests against real peers: named by an environment variable, or found on the PATH. A variable
/// that names no program fails the test instead of skipping it.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        assert!(
            is_executable(&named),
            "{variable}={} is no program",
            named.display()
        );
        return Some(named);
    }
    find(&std::env::var_os("PATH")?, name)
}

fn find(path: &std::ffi::OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn every_kubectl_is_found_once_by_its_real_name() {
        let (bin, real) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, mode) in [
            ("kubectl", 0o755),
            ("kubectl.1.30", 0o755),
            ("kubectl.1.31", 0o644),
            ("kubectl.bak", 0o755),
            ("kubectl-plugin", 0o755),
        ] {
            let file = real.path().join(name);
            std::fs::write(&file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink(real.path().join("kubectl"), bin.path().join("kubectl")).unwrap();
        let path = std::env::join_paths([bin.path(), real.path()]).unwrap();
        let real = real.path().canonicalize().unwrap();
        assert_eq!(
            kubectls_on(&path),
            [real.join("kubectl"), real.join("kubectl.1.30")]
        );
        assert_eq!(
            kubectls_on(bin.path().join("none").as_os_str()),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn the_first_executable_on_the_path_is_found() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([one.path(), two.path()]).unwrap();
        std::fs::write(one.path().join("tool"), "not executable").unwrap();
        std::fs::create_dir(one.path().join("directory")).unwrap();
        let wanted = two.path().join("tool");
        std::fs::write(&wanted, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&wanted, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&path, "tool"), Some(wanted));
        assert_eq!(find(&path, "directory"), None);
        assert_eq!(find(&path, "nothing"), None);
    }
}
