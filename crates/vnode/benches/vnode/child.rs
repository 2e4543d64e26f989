//! Processes of this program in another role, and what the kernel says of them.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A child that answers lines with blocks of lines that end with an empty one. It ends with its standard input.
pub(crate) struct Role {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Role {
    /// Starts it and waits for its first answer.
    pub(crate) fn start(words: &[&str]) -> (Self, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut role = Self {
            child,
            orders,
            answers,
        };
        let first = role.answer();
        (role, first)
    }

    /// Orders and waits for the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.answers.read_line(&mut line).unwrap() > 0,
                "a process of the benchmark ended early"
            );
            if line == "\n" {
                return text;
            }
            text.push_str(&line);
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// A figure of `/proc/PID/status` in bytes.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        let kilobytes = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
        kilobytes.parse::<u64>().unwrap() * 1024
    }

    /// CPU seconds that it has used, user and system.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // utime and stime are fields 14 and 15 of proc(5), in hundredths; the name, which is cut off, was the second.
        let ticks: f64 = [11, 12]
            .iter()
            .map(|&at: &usize| fields[at].parse::<f64>().unwrap())
            .sum();
        ticks / 100.0
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.orders.take());
        // One that is stopped hears of it only when it goes on.
        self.signal(Signal::SIGCONT);
        let _ = self.child.wait();
    }
}

/// Answers each line of standard input until it ends.
#[expect(clippy::print_stdout, reason = "answers")]
pub(crate) fn serve_orders(first: &str, mut answer: impl FnMut(&str) -> String) {
    println!("{first}\n");
    for line in std::io::stdin().lines() {
        println!("{}\n", answer(&line.unwrap()).trim_end());
    }
}
