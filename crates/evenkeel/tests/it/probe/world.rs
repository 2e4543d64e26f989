//! A server whose answer can be changed, and the command as a process.

use crate::support::evenkeel;
use evenkeel_testkit::eventually_here;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;

/// An HTTP server on loopback that answers everything with one status.
pub(super) struct Server {
    pub(super) port: u16,
    status: Arc<AtomicU16>,
}

impl Server {
    pub(super) fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let port = listener.local_addr().expect("it is bound").port();
        let status = Arc::new(AtomicU16::new(status));
        let answer = status.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let mut request = [0; 4096];
                    // A prober that has gone away does not matter.
                    let _ = stream.read(&mut request);
                    let status = answer.load(Ordering::SeqCst);
                    let _ = write!(
                        stream,
                        "HTTP/1.1 {status} x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nbody\n"
                    );
                });
            }
        });
        Self { port, status }
    }

    /// Answers with this status from now on.
    pub(super) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

/// A directory with manifests.
pub(super) struct World {
    pub(super) home: TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            home: TempDir::new().expect("a temporary directory"),
        }
    }

    /// A file with this text.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.home.path().join(name);
        std::fs::write(&path, text).expect("the directory is writable");
        path.to_str().expect("temporary names are UTF-8").to_owned()
    }

    /// A pod with one container `web` whose probes these are, as members of the container.
    pub(super) fn pod(&self, probes: &str) -> String {
        self.file("pod.yaml", &pod(probes))
    }
}

/// The manifest of [`World::pod`].
pub(super) fn pod(probes: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - name: web\n    image: x\n    \
         ports: [{{name: http, containerPort: 8080}}]\n    {}\n",
        probes.trim().replace('\n', "\n    ")
    )
}

/// Exit code, standard output and standard error of a command that must end by itself.
pub(super) fn ended(args: &[&str]) -> (i32, String, String) {
    let output = evenkeel()
        .arg("probe")
        .args(args)
        .output()
        .expect("the command starts");
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A command that runs, and the lines it has written.
pub(super) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(super) fn start(args: &[&str]) -> Self {
        let mut child = evenkeel()
            .arg("probe")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = lines.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                read.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { child, lines }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line after the first `skip` that holds all of `words`; gives its number plus one.
    pub(super) fn sees(&self, skip: usize, words: &[&str]) -> usize {
        let what = || {
            format!(
                "a line with {words:?} after line {skip}:\n{}",
                self.lines().join("\n")
            )
        };
        eventually_here(what, || {
            let lines = self.lines();
            let mut rest = lines.iter().skip(skip);
            let found = rest.position(|line| words.iter().all(|word| line.contains(word)));
            found.map(|found| skip + found + 1)
        })
    }

    /// Waits until the command has a handler for a signal, as the kernel tells.
    pub(super) fn handles(&self, signal: Signal) {
        let bit = 1_u64 << (signal as u64 - 1);
        eventually_here(
            || format!("it handles {signal}"),
            || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
                let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
                let mask = u64::from_str_radix(caught.trim(), 16).ok()?;
                (mask & bit != 0).then_some(())
            },
        );
    }

    pub(super) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process IDs are small");
        kill(Pid::from_raw(id), signal).expect("the command is ours and runs");
    }

    /// The exit code, once it has ended.
    pub(super) fn code(&mut self) -> i32 {
        let lines = Arc::clone(&self.lines);
        let what = || {
            format!(
                "it ends:\n{}",
                lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
            )
        };
        let status = eventually_here(what, || self.child.try_wait().expect("it is our child"));
        status.code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
