//! Wall clocks of single agents, set by libfaketime: the machine's own clock is everybody's.

use super::{Shore, name};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library, or why there is none.
pub(super) fn library() -> Result<PathBuf, String> {
    let directories = std::fs::read_dir("/usr/lib").map_err(|error| format!("/usr/lib: {error}"))?;
    let libraries = directories
        .flatten()
        .map(|directory| directory.path().join("faketime/libfaketime.so.1"));
    let mut found = libraries.filter(|library| library.exists());
    found
        .next()
        .ok_or_else(|| "no libfaketime: install Debian's package faketime".to_owned())
}

/// Makes a process take the time of day from the machine's clock and the offset in a file, which it reads
/// every second. Time since boot stays what it is, as when somebody sets a clock.
pub(super) fn fake(command: &mut Command, library: &Path, offset: &Path) {
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", offset)
        .env("FAKETIME_CACHE_DURATION", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

impl Shore {
    pub(super) fn clock_of(&self, number: u8) -> PathBuf {
        self.home.path().join(format!("{}.clock", name(number)))
    }

    /// Sets the wall clock of a machine's agent so many seconds ahead of the right time.
    pub(super) fn set_clock(&self, number: u8, ahead: i64) {
        // Written whole: the agent may read it in this moment.
        let fresh = self.clock_of(number).with_extension("new");
        std::fs::write(&fresh, format!("{ahead:+}\n")).expect("the directory is writable");
        std::fs::rename(fresh, self.clock_of(number)).expect("the directory is writable");
    }
}
