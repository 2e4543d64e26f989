//! `cargo xtask gen-schemas`: Kubernetes' definitions, packed for the rules on objects.
//!
//! Two sources: the JSON Schemas in the Python package `kubernetes-validate` (what fields there are), and,
//! where `--go-src` is given, the Go modules `k8s.io/api` and friends (which optional fields are pointers,
//! what Go calls a field's type, and its number in protobuf; all three are visible in answers of the API
//! server, and no schema tells). The Go facts are kept in `data/go-types.tsv`, so that the schemas can be
//! regenerated without them.

mod go_types;
mod pack;
mod wheel;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The wheel of kubernetes-validate; fetched with `pip download` if absent
    #[arg(long)]
    wheel: Option<PathBuf>,
    /// Version of kubernetes-validate to fetch
    #[arg(long, default_value = "1.36.0")]
    package_version: String,
    /// Minor version of Kubernetes whose definitions are packed
    #[arg(long, default_value = "1.36")]
    kubernetes: String,
    /// Folder with the Go modules k8s.io/api@VERSION, apimachinery, apiextensions-apiserver and
    /// kube-aggregator; go-types.tsv is regenerated from them
    #[arg(long)]
    go_src: Option<PathBuf>,
}

/// Where the files are written, in the checkout.
const OUT: &str = "crates/kube-rules/data";

/// Runs the command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let out = root.join(OUT);
    let definitions = wheel::definitions(args.wheel.as_deref(), &args.package_version, &args.kubernetes)?;
    let facts_path = out.join("go-types.tsv");
    if let Some(source) = &args.go_src {
        let text = go_types::extract(source, &definitions)?;
        write(&facts_path, text.as_bytes())?;
    }
    let facts = std::fs::read_to_string(&facts_path)
        .with_context(|| format!("cannot read {}", facts_path.display()))?;
    let definitions = wheel::definitions(args.wheel.as_deref(), &args.package_version, &args.kubernetes)?;
    write(
        &out.join("schemas.bin"),
        &pack::pack(&definitions, &go_types::parse(&facts)?)?,
    )
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
