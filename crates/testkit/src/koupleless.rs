//! A real Koupleless base as a peer: `interop/koupleless-base`, built by Maven and run as a process. What of
//! it is Koupleless' own and what is not, its `README.md` says.
//!
//! ```no_run
//! # async fn test() {
//! use evenkeel_testkit::koupleless::{self, Setup};
//! let built = match koupleless::build() {
//!     Ok(built) => built,
//!     Err(why) => return evenkeel_testkit::skipped("modules_are_installed", &why.to_string()),
//! };
//! let base = built.start(Setup::default()).await;
//! let url = built.jar("good", "1.0.0");
//! let module = serde_json::json!({ "bizName": "good", "bizVersion": "1.0.0", "bizUrl": url });
//! assert_eq!(base.post("installBiz", &module).await["code"], "SUCCESS");
//! # }
//! ```

mod base;

pub use base::{JavaBase, MqttSetup, Setup};

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Exit status of the build script if the package registry cannot be reached.
const UNREACHABLE: i32 = 75;

/// Why a test with a real base or broker cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// This program is not there.
    Missing(&'static str),
    /// The package registry cannot be reached, and this artifact of it is needed.
    Unreachable(String),
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(program) => write!(out, "no {program} on PATH"),
            Self::Unreachable(artifact) => {
                write!(out, "the package registry cannot be reached, for {artifact}")
            }
        }
    }
}

/// The base and its modules, built.
#[derive(Clone, Debug)]
pub struct Built {
    java: PathBuf,
    directory: PathBuf,
}

/// Builds the base and its modules unless this machine has them: then it takes milliseconds, otherwise up to
/// a minute with the downloads. Processes that build at once wait for the first. Blocks.
///
/// `$EVENKEEL_JAVA` and `$EVENKEEL_MVN` name the programs, if others than the first on the PATH. The result
/// lies below `$EVENKEEL_INTEROP_CACHE`, or `~/.cache/evenkeel`.
///
/// # Panics
/// If it does not build although all that it needs is there.
pub fn build() -> Result<Built, Why> {
    let java = super::tool("EVENKEEL_JAVA", "java").ok_or(Why::Missing("java"))?;
    let mvn = super::tool("EVENKEEL_MVN", "mvn").ok_or(Why::Missing("mvn"))?;
    let script = crate::root().join("interop/koupleless-base/build");
    let output = Command::new(script)
        .env("EVENKEEL_MVN", mvn)
        .stdin(Stdio::null())
        .output()
        .expect("the build script runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        let directory = String::from_utf8_lossy(&output.stdout).trim().into();
        return Ok(Built { java, directory });
    }
    Err(reason(output.status.code(), &said).unwrap_or_else(|| fail(&said)))
}

#[expect(clippy::panic, reason = "fails the test")]
fn fail(said: &str) -> ! {
    panic!("cannot build interop/koupleless-base:\n{said}")
}

/// What the machine lacks, if that is why the build script has failed.
fn reason(code: Option<i32>, said: &str) -> Option<Why> {
    if code == Some(UNREACHABLE) {
        // "… Could not transfer artifact ARTIFACT from/to REPOSITORY: …"
        let artifact = said
            .lines()
            .filter_map(|line| line.split_once("Could not transfer artifact "))
            .find_map(|(_, rest)| rest.split_whitespace().next());
        return Some(Why::Unreachable(artifact.unwrap_or_default().to_owned()));
    }
    let compiler = said.contains("No compiler is provided in this environment");
    compiler.then_some(Why::Missing("javac"))
}

impl Built {
    /// `file://` URL of a module's jar: `good` 1.0.0 and 2.0.0, and in 1.0.0 `slow`, `failing`, `fat`, `one`,
    /// `two` and `three`.
    ///
    /// # Panics
    /// If there is no such module.
    pub fn jar(&self, name: &str, version: &str) -> String {
        let jar = self
            .directory
            .join(format!("modules/module-{name}-{version}.jar"));
        assert!(jar.is_file(), "{} is not there", jar.display());
        format!("file://{}", jar.display())
    }

    /// Starts a base, and waits until it answers in full.
    ///
    /// # Panics
    /// If it does not.
    pub async fn start(&self, setup: Setup) -> JavaBase {
        JavaBase::start(self, setup).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_machine_lacks_is_a_reason_to_skip() {
        let transfer = "[ERROR] x\n[ERROR] Could not transfer artifact a:b:1 from/to central: Unknown host\n";
        let cases = [
            (Some(75), transfer, Some(Why::Unreachable("a:b:1".to_owned()))),
            (
                Some(1),
                "[ERROR] No compiler is provided in this environment. Perhaps",
                Some(Why::Missing("javac")),
            ),
            (Some(1), "[ERROR] Could not find artifact a:b:1 in central", None),
            (Some(1), "[ERROR] Base.java:[3,4] ';' expected", None),
            (None, "", None),
        ];
        for (code, said, wanted) in cases {
            assert_eq!(reason(code, said), wanted, "{code:?} {said}");
        }
        assert_eq!(Why::Missing("mvn").to_string(), "no mvn on PATH");
    }
}
