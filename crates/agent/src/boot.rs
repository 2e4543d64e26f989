//! The machine's present boot: which one it is, and for how long it has lasted.

use crate::zone;
use evenkeel_zone::Millis;
use jiff::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

/// A random number that the kernel draws at each boot. Containers see that of their host.
const KERNELS: &str = "/proc/sys/kernel/random/boot_id";

/// Why the boot is not known. The message names the file.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The file cannot be read.
    #[error("cannot read the ID of the machine's boot from {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file of a simulated machine is not what it should be.
    #[error("--boot {}: the first line has to be the ID of the boot, the second its time as in 2026-01-31T12:00:00Z", .0.display())]
    Format(PathBuf),
}

/// The machine's present boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Another one at each boot.
    pub id: String,
    /// For how many milliseconds the machine had been up at `read`, on the clock of the agent's engine.
    uptime_ms: u64,
    read: Millis,
}

impl Boot {
    /// The boot of this machine, or that of a simulated one, whose file has the ID and the time of the boot,
    /// a line each.
    pub fn read(simulated: Option<&Path>) -> Result<Self, BootError> {
        let path = simulated.unwrap_or(Path::new(KERNELS));
        let text = std::fs::read_to_string(path).map_err(|source| BootError::Read {
            path: path.to_owned(),
            source,
        })?;
        let read = zone::now();
        let mut lines = text.lines().map(str::trim);
        let id = lines.next().unwrap_or_default().to_owned();
        let uptime_ms = match simulated {
            // The engine's clock counts from the boot.
            None => Some(read.0),
            Some(_) => lines
                .next()
                .and_then(|time| time.parse::<Timestamp>().ok())
                .map(since),
        };
        match uptime_ms.filter(|_| !id.is_empty()) {
            Some(uptime_ms) => Ok(Self { id, uptime_ms, read }),
            None => Err(BootError::Format(path.to_owned())),
        }
    }

    /// For how many milliseconds the machine has been up.
    pub(crate) fn uptime_ms(&self, now: Millis) -> u64 {
        self.uptime_ms.saturating_add(now.since(self.read))
    }
}

/// Milliseconds since that time; 0 for a time to come.
fn since(boot: Timestamp) -> u64 {
    u64::try_from(Timestamp::now().duration_since(boot).as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_boot_is_as_old_as_its_clock_says() {
        let (one, again) = (Boot::read(None).unwrap(), Boot::read(None).unwrap());
        assert_eq!(one.id, again.id);
        assert_eq!(one.uptime_ms(one.read), one.read.0);
        assert_eq!(one.uptime_ms(one.read.plus(7)), one.read.0 + 7);
    }

    #[test]
    fn the_boot_of_a_simulated_machine_is_in_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boot");
        let error = Boot::read(Some(&path)).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        for odd in ["", "an-id", "an-id\nyesterday", "\n2026-01-31T12:00:00Z"] {
            std::fs::write(&path, odd).unwrap();
            let error = Boot::read(Some(&path)).unwrap_err().to_string();
            assert!(error.contains("--boot"), "{odd:?}: {error}");
        }
        std::fs::write(&path, "an-id\n2026-01-31T12:00:00Z\n").unwrap();
        let boot = Boot::read(Some(&path)).unwrap();
        let expected = since("2026-01-31T12:00:00Z".parse().unwrap());
        assert_eq!(boot.id, "an-id");
        assert!((expected - 60_000..=expected).contains(&boot.uptime_ms(boot.read)));
        std::fs::write(&path, "an-id\n2999-01-31T12:00:00Z\n").unwrap();
        assert_eq!(Boot::read(Some(&path)).unwrap().uptime_ms, 0);
    }
}
