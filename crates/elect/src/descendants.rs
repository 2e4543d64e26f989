//! Finds all descendants of a process in `/proc`, and kills them.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::collections::HashSet;
use std::{fs, io};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: Pid,
    parent: Pid,
    /// ID of its process group.
    pub(crate) group: Pid,
}

/// All running processes that descend from `ancestor`. Zombies are not among them.
pub(crate) fn descendants(ancestor: Pid) -> Vec<Process> {
    let all: Vec<Process> = match fs::read_dir("/proc") {
        Ok(entries) => entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|id: i32| parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?))
            .collect(),
        Err(error) => {
            tracing::error!(%error, "cannot read /proc: processes that left the command's group are not seen");
            Vec::new()
        }
    };
    below(ancestor, &all)
}

/// Kills all descendants of this process, until it has no children left. No other code may wait for these
/// children, and this process must be a subreaper, so that the kernel gives it the orphans.
pub(crate) async fn end_all() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        for process in descendants(getpid()) {
            if let Err(error) = kill(process.id, Signal::SIGKILL) {
                tracing::debug!(%error, id = %process.id, "cannot kill a process of the command");
            }
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return Ok(()),
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        ended.recv().await;
    }
}

fn below(ancestor: Pid, all: &[Process]) -> Vec<Process> {
    let mut known = HashSet::from([ancestor]);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for process in all {
            if known.contains(&process.parent) && known.insert(process.id) {
                found.push(*process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Reads a line of `/proc/PID/stat` (proc_pid_stat(5)): ID, name in brackets (which may contain any
/// character), state, parent, group, and, of the fields after these, the number of threads. A process whose
/// first thread has ended while others run is shown as a zombie, and runs.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let id = head.split_once(' ')?.0;
    let mut fields = tail.split_whitespace();
    let state = fields.next()?;
    let mut next = || fields.next()?.parse::<i32>().ok();
    let process = Process {
        id: Pid::from_raw(id.parse().ok()?),
        parent: Pid::from_raw(next()?),
        group: Pid::from_raw(next()?),
    };
    let lives = match state {
        "X" => false,
        // The sixth field comes next, and the threads are the twentieth.
        "Z" => fields.nth(20 - 6)?.parse::<u32>().ok()? > 1,
        _ => true,
    };
    lives.then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let expected = Process {
            id: Pid::from_raw(7),
            parent: Pid::from_raw(3),
            group: Pid::from_raw(5),
        };
        assert_eq!(parse("7 (a) S 1 (b) R 3 5 5 0 -1"), Some(expected));
        let zombie = |threads| format!("7 (a) Z 3 5 5 0 -1 1 2 3 4 5 6 7 8 9 20 0 {threads} 0 1");
        assert_eq!(parse(&zombie(1)), None);
        assert_eq!(
            parse(&zombie(2)),
            Some(expected),
            "its first thread alone has ended"
        );
        assert_eq!(parse("7 (a) Z 3 5 5 0 -1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn children_of_children_are_found_in_any_order() {
        let process = |id, parent| Process {
            id: Pid::from_raw(id),
            parent: Pid::from_raw(parent),
            group: Pid::from_raw(1),
        };
        let all = [
            process(9, 8),
            process(8, 7),
            process(7, 2),
            process(6, 1),
            process(2, 1),
        ];
        let mut found: Vec<i32> = below(Pid::from_raw(2), &all)
            .iter()
            .map(|process| process.id.as_raw())
            .collect();
        found.sort_unstable();
        assert_eq!(found, [7, 8, 9]);
    }

    #[test]
    fn a_child_of_this_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = Pid::from_raw(child.id() as i32);
        let found = descendants(getpid());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|process| process.id == id), "{found:?}");
    }
}
