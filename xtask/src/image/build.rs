//! Static programs that name no place of the machine on which they were built.

use super::{Image, Origin};
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An architecture, as images name it, and the targets that make a static program for it. The better one is
/// first, because glibc is under the LGPL and musl is not.
#[derive(Clone, Copy)]
pub(super) struct Platform {
    pub(super) architecture: &'static str,
    /// As Rust names it.
    machine: &'static str,
    targets: [&'static str; 2],
}

pub(super) const PLATFORMS: [Platform; 2] = [
    Platform {
        architecture: "amd64",
        machine: "x86_64",
        targets: ["x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnu"],
    },
    Platform {
        architecture: "arm64",
        machine: "aarch64",
        targets: ["aarch64-unknown-linux-musl", "aarch64-unknown-linux-gnu"],
    },
];

/// The first version of glibc whose static programs read addresses that are stored as bits.
const READS_PACKED: (u32, u32) = (2, 36);

/// How this machine builds for an architecture.
pub(super) struct Toolchain {
    pub(super) architecture: &'static str,
    pub(super) target: &'static str,
    /// Compiles C, and links.
    compiler: String,
    /// The version of glibc that is linked in; with other targets it is musl.
    pub(super) glibc: Option<(u32, u32)>,
}

/// The first target of `platform` that is installed, with a C compiler for it; or what is missing.
pub(super) fn toolchain(platform: Platform) -> anyhow::Result<Result<Toolchain, String>> {
    let mut missing = Vec::new();
    for target in platform.targets {
        let folder = rustc(&["--print", "target-libdir", "--target", target])?;
        if !Path::new(&folder).is_dir() {
            missing.push(format!("the Rust target {target} is not installed"));
            continue;
        }
        let libc = target.rsplit('-').next().unwrap_or_default();
        let cross = format!("{}-linux-{libc}-gcc", platform.machine);
        let native = platform.machine == std::env::consts::ARCH;
        let names = match (native, libc) {
            (true, "gnu") => vec!["cc".to_owned(), cross],
            (true, _) => vec!["musl-gcc".to_owned(), cross],
            (false, _) => vec![cross],
        };
        if let Some(compiler) = names.iter().find(|name| is_on_path(name)) {
            return Ok(Ok(Toolchain {
                architecture: platform.architecture,
                target,
                compiler: compiler.clone(),
                glibc: if libc == "gnu" {
                    Some(glibc(compiler)?)
                } else {
                    None
                },
            }));
        }
        missing.push(format!("no {} on PATH for {target}", names.join(" or ")));
    }
    Ok(Err(missing.join("; ")))
}

/// Builds the program of `image`; where it lies.
pub(super) fn program(
    root: &Path,
    image: &Image,
    toolchain: &Toolchain,
    origin: &Origin,
) -> anyhow::Result<PathBuf> {
    let target = toolchain.target;
    let folder = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let replaced = replaced(root, &folder)?;
    // Of several that fit, the last one counts, for both compilers.
    let mut rust = vec![OsString::from("-Ctarget-feature=+crt-static")];
    if toolchain.glibc >= Some(READS_PACKED) {
        // Addresses that the program mends at its start take 24 bytes each without it.
        rust.push("-Clink-arg=-Wl,-z,pack-relative-relocs".into());
    }
    let mut c = OsString::new();
    for (place, name) in &replaced {
        let mut pair = place.clone().into_os_string();
        pair.push("=");
        pair.push(name);
        rust.push("--remap-path-prefix".into());
        rust.push(pair.clone());
        let mut flags = OsString::from("-ffile-prefix-map=");
        flags.push(pair);
        flags.push(" ");
        c.push(flags);
    }
    let variable = target.replace('-', "_");
    let built = Command::new("cargo")
        .args(["build", "--locked", "--quiet", "--profile", image.profile])
        .args(["--package", image.name, "--bin", image.name, "--target", target])
        .current_dir(root)
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}".as_ref()))
        .env(
            format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()),
            &toolchain.compiler,
        )
        .env(format!("CC_{variable}"), &toolchain.compiler)
        .env(format!("CFLAGS_{variable}"), c)
        .env("EVENKEEL_COMMIT", &origin.commit)
        .env("EVENKEEL_TARGET", target)
        .env("EVENKEEL_PROFILE", image.profile)
        // It is for the archives. Crates with C code are compiled anew where it has changed.
        .env_remove("SOURCE_DATE_EPOCH")
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("cargo could not build {} for {target} ({built})", image.name);
    }
    Ok(folder.join(target).join(image.profile).join(image.name))
}

/// Directories of this machine whose paths would stand in the program, each with what stands there instead,
/// longer paths after those that they lie in.
fn replaced(root: &Path, target: &Path) -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let home = home.context("there is neither CARGO_HOME nor HOME")?;
    let mut found = vec![
        (root.to_path_buf(), "/evenkeel"),
        (target.to_path_buf(), "/target"),
        (home.clone(), "/cargo"),
        (PathBuf::from(rustc(&["--print", "sysroot"])?), "/rust"),
    ];
    // Sources of crates lie in a directory for each registry, whose name is the machine's own matter.
    if let Ok(registries) = std::fs::read_dir(home.join("registry/src")) {
        found.extend(registries.flatten().map(|entry| (entry.path(), "/cargo/crates")));
    }
    found.sort();
    Ok(found)
}

/// The version of glibc that a compiler links, from its header.
fn glibc(compiler: &str) -> anyhow::Result<(u32, u32)> {
    let ran = Command::new(compiler)
        .args(["-E", "-dM", "-include", "features.h", "-x", "c", "/dev/null"])
        .output()
        .with_context(|| format!("cannot start {compiler}"))?;
    let macros = String::from_utf8_lossy(&ran.stdout);
    let value = |name: &str| {
        let mut lines = macros.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.nth(1)? == name).then(|| words.next()?.parse().ok())?)
    };
    let version = value("__GLIBC__").zip(value("__GLIBC_MINOR__"));
    version.with_context(|| {
        format!("the headers of {compiler} name no version of glibc; is libc6-dev installed?")
    })
}

/// What `rustc` answers, without the end of the line.
pub(super) fn rustc(args: &[&str]) -> anyhow::Result<String> {
    let ran = Command::new("rustc")
        .args(args)
        .output()
        .context("cannot start rustc")?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        bail!("rustc {}: {}: {said}", args.join(" "), ran.status);
    }
    let said = String::from_utf8(ran.stdout).context("rustc's answer is not UTF-8")?;
    Ok(said.trim().to_owned())
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_an_architecture_is_named() {
        let unknown = Platform {
            architecture: "amd64",
            machine: "x86_64",
            targets: ["x86_64-unknown-none", "x86_64-unknown-uefi"],
        };
        let why = toolchain(unknown).unwrap().err().unwrap();
        for target in unknown.targets {
            assert!(why.contains(target), "{why}");
        }
    }

    #[test]
    fn the_version_of_glibc_is_that_of_the_compiler() {
        if cfg!(target_env = "gnu") {
            assert!(glibc("cc").unwrap() >= (2, 17), "Rust needs that");
        }
        let error = glibc("no-such-compiler").unwrap_err();
        assert!(format!("{error:#}").contains("no-such-compiler"));
    }

    #[test]
    fn a_directory_in_another_one_is_replaced_by_its_own_name() {
        let places = replaced(Path::new("/src"), Path::new("/src/target")).unwrap();
        let at = |name: &str| places.iter().position(|(_, with)| *with == name).unwrap();
        assert!(at("/evenkeel") < at("/target"), "the last one that fits counts");
    }
}
