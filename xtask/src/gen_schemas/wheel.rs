//! The JSON Schemas in the Python package `kubernetes-validate`.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The definitions of one Kubernetes minor, by name.
pub(super) fn definitions(wheel: Option<&Path>, version: &str, minor: &str) -> Result<Map<String, Value>> {
    let downloaded;
    let wheel = if let Some(wheel) = wheel {
        wheel
    } else {
        downloaded = download(version)?;
        &downloaded
    };
    let member = format!("kubernetes_validate/kubernetes-json-schema/v{minor}.0-local/_definitions.json");
    // A wheel is a zip archive; Python, which `pip` needs anyway, can read one.
    let output = Command::new("python3")
        .args([
            "-c",
            "import sys,zipfile;sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))",
        ])
        .arg(wheel)
        .arg(&member)
        .output()
        .context("cannot run python3")?;
    if !output.status.success() {
        bail!(
            "cannot read {member} of {}: {}",
            wheel.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut document: Value =
        serde_json::from_slice(&output.stdout).context("the definitions are not JSON")?;
    match document["$defs"].take() {
        Value::Object(definitions) => Ok(definitions),
        _ => bail!("{member} has no $defs"),
    }
}

fn download(version: &str) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("kubernetes-validate-{version}"));
    let status = Command::new("pip")
        .args(["download", "--no-deps", "--dest"])
        .arg(&folder)
        .arg(format!("kubernetes-validate=={version}"))
        .status()
        .context("cannot run pip; give the file with --wheel")?;
    if !status.success() {
        bail!("pip download kubernetes-validate=={version} failed");
    }
    let name = format!("kubernetes_validate-{version}-py3-none-any.whl");
    Ok(folder.join(name))
}
