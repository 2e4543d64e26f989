//! `image`: the container images `evenkeel` and `evenkeel-agent` as archives that every container tool loads,
//! each with a list of what its binary is made of (docs/images.md).

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

mod build;
mod oci;
mod sbom;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Directory for archives, lists and binaries [default: target/image]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// What stands before the images' names: the registry that they will be pushed to, and a path in it
    #[arg(long, value_name = "PREFIX", default_value = "localhost")]
    prefix: String,
    /// Make this image alone
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// An image: one program, and nothing else.
pub(crate) struct Image {
    /// Its name, which is the package's and the program's too.
    name: &'static str,
    /// The profile of Cargo.toml that it is built with.
    profile: &'static str,
    /// Who runs it unless a manifest says otherwise.
    user: &'static str,
    /// How large its layer may be, compressed, in bytes.
    most: usize,
}

const IMAGES: [Image; 2] = [
    Image {
        name: "evenkeel",
        profile: "release",
        user: "65532:65532",
        most: 25 << 20,
    },
    // Its key and its state lie in a directory of the node, which is root's.
    Image {
        name: "evenkeel-agent",
        profile: "edge",
        user: "0:0",
        most: 6 << 20,
    },
];

/// What is told about an image in its labels, besides its name.
struct Origin {
    version: &'static str,
    /// The commit, with `-dirty` if files differ from it; empty where there is no git.
    commit: String,
    /// Seconds since 1970: the time of everything in the archive, which must not depend on when it is made.
    time: u64,
}

/// Builds the programs for each architecture that this machine can build for, and writes the archives.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<()> {
    if let Some(name) = &args.only
        && !IMAGES.iter().any(|image| image.name == name)
    {
        bail!("--only {name}: there is no such image; write evenkeel or evenkeel-agent");
    }
    let output = args.output.clone().unwrap_or_else(|| root.join("target/image"));
    std::fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let origin = origin(root)?;
    let mut platforms = Vec::new();
    for platform in build::PLATFORMS {
        match build::toolchain(platform)? {
            Ok(toolchain) => platforms.push(toolchain),
            Err(why) => say(&format!("SKIPPED images for {}: {why}", platform.architecture))?,
        }
    }
    if platforms.is_empty() {
        bail!("this machine builds for none of the architectures above");
    }
    let wanted = |image: &&Image| args.only.as_deref().is_none_or(|name| name == image.name);
    for image in IMAGES.iter().filter(wanted) {
        make(root, &output, &args.prefix, image, &platforms, &origin)?;
    }
    Ok(())
}

/// Builds one image for all of `platforms`.
fn make(
    root: &Path,
    output: &Path,
    prefix: &str,
    image: &Image,
    platforms: &[build::Toolchain],
    origin: &Origin,
) -> anyhow::Result<()> {
    let name = image.name;
    let mut layers = Vec::new();
    for toolchain in platforms {
        let architecture = toolchain.architecture;
        let built = build::program(root, image, toolchain, origin)?;
        let program = std::fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
        // Where deploy/Containerfile looks for it.
        let place = output.join(architecture);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        std::fs::copy(&built, place.join(name)).context("cannot copy the program")?;
        let list = sbom::list(root, image, toolchain, &program, origin)?;
        let list_file = output.join(format!("{name}.{architecture}.cdx.json"));
        std::fs::write(&list_file, list).with_context(|| format!("cannot write {}", list_file.display()))?;
        let layer = oci::Layer::of(name, &program, architecture, origin.time)?;
        say(&format!(
            "{name} {architecture}: {} bytes, compressed {} bytes (limit {}), {}",
            program.len(),
            layer.size(),
            image.most,
            toolchain.target
        ))?;
        if layer.size() > image.most {
            bail!("{name} is larger than its limit; find out what made it grow (docs/images.md)");
        }
        layers.push(layer);
    }
    let reference = format!("{prefix}/{name}:{}", origin.version);
    let archive = oci::archive(image, &reference, &layers, origin)?;
    let file = output.join(format!("{name}.oci.tar"));
    std::fs::write(&file, archive).with_context(|| format!("cannot write {}", file.display()))?;
    say(&format!("{reference}: {}", file.display()))
}

fn origin(root: &Path) -> anyhow::Result<Origin> {
    let git = |args: &[&str]| {
        let ran = Command::new("git").args(args).current_dir(root).output().ok()?;
        let said = String::from_utf8(ran.stdout).ok()?;
        ran.status.success().then(|| said.trim().to_owned())
    };
    let commit = std::env::var("EVENKEEL_COMMIT").ok().or_else(|| {
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
        Some(if changed.is_empty() {
            commit
        } else {
            format!("{commit}-dirty")
        })
    });
    let time = std::env::var("SOURCE_DATE_EPOCH").ok();
    let time = time.or_else(|| git(&["log", "-1", "--format=%ct"]));
    let time =
        time.context("there is no git here: set SOURCE_DATE_EPOCH to the seconds of the source's time")?;
    Ok(Origin {
        version: env!("CARGO_PKG_VERSION"),
        commit: commit.unwrap_or_default(),
        time: time
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH={time} is no number of seconds"))?,
    })
}

/// `1795827762` as `2026-11-28T01:02:42Z`.
fn rfc3339(seconds: u64) -> anyhow::Result<String> {
    let seconds = i64::try_from(seconds).context("the source's time is too late")?;
    Ok(jiff::Timestamp::from_second(seconds)
        .context("the source's time is too late")?
        .to_string())
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write")
}
