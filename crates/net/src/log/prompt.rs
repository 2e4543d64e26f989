//! Lines for a reader who may not read.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many bytes fit into a pipe or socket that takes any (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Lines that were lost since the last one that was not.
static LOST: AtomicU64 = AtomicU64::new(0);

/// A log that nobody waits for: a line that a full pipe or socket would hold up is lost, and the next one
/// that passes is preceded by their number. A container's standard error is such a pipe, and who reads it may
/// hang with the node's disk; an agent that waited for it would be taken for dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompt<W> {
    pub(super) out: W,
    /// Lines are JSON.
    pub(super) json: bool,
}

impl<W: Write + AsFd> Prompt<W> {
    fn takes_any(&self) -> bool {
        let mut ready = [PollFd::new(self.out.as_fd(), PollFlags::POLLOUT)];
        // What cannot be asked is written to: the error, if there is one, is that of the write.
        poll(&mut ready, PollTimeout::ZERO) != Ok(0)
    }
}

impl<W: Write + AsFd> Write for Prompt<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.takes_any() {
            LOST.fetch_add(1, Ordering::Relaxed);
            return Ok(bytes.len());
        }
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} lines of the log were lost: nobody read standard error");
            let line = if self.json {
                format!("{{\"level\":\"WARN\",\"message\":\"{text}\"}}\n")
            } else {
                format!("{text}\n")
            };
            self.out.write_all(line.as_bytes())?;
        }
        self.out.write(bytes.get(..AT_ONCE).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;

    #[test]
    fn a_full_pipe_costs_lines_and_holds_nobody_up() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let mut log = Prompt {
            out: File::from(write),
            json: true,
        };
        let line = [b"x".repeat(999), b"\n".to_vec()].concat();
        let mut written = 0;
        while LOST.load(Ordering::Relaxed) < 3 {
            log.write_all(&line).unwrap();
            written += 1;
        }
        let mut read = File::from(read);
        let mut all = vec![0; (written - 3) * line.len()];
        read.read_exact(&mut all).unwrap();
        // Longer than what is written at once.
        let long = [b"y".repeat(2 * AT_ONCE), b"\n".to_vec()].concat();
        log.write_all(&long).unwrap();
        drop(log);
        let mut rest = String::new();
        read.read_to_string(&mut rest).unwrap();
        let (told, last) = rest.split_once('\n').unwrap();
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        assert!(
            told["message"]
                .as_str()
                .unwrap()
                .starts_with("3 lines of the log were lost"),
            "{told}"
        );
        assert_eq!(last.len(), long.len());
    }
}
