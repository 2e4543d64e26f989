//! Processes of this program in another role, and what the kernel says of them.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A child that answers lines with blocks of lines, perhaps none, that end with an empty one. It ends with
/// its standard input. What does not go well fails the benchmark.
pub struct Role {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Role {
    /// Starts this program with other words and waits for its first answer.
    pub fn start(words: &[&str]) -> (Self, String) {
        let program = std::env::current_exe().expect("this program has a file");
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut role = Self {
            child,
            orders,
            answers,
        };
        let first = role.answer();
        (role, first)
    }

    /// Orders and waits for the answer.
    pub fn ask(&mut self, order: &str) -> String {
        let orders = self.orders.as_mut().expect("it is taken at the end alone");
        writeln!(orders, "{order}").expect("the process hears orders");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).expect("answers are text");
            assert!(read > 0, "a process of the benchmark ended early");
            if line == "\n" {
                return text;
            }
            text.push_str(&line);
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().try_into().expect("the kernel's own type");
        kill(Pid::from_raw(pid), signal).expect("it is our child and has not been waited for");
    }

    /// As [`memory`].
    pub fn memory(&self, figure: &str) -> u64 {
        memory(self.child.id(), figure)
    }

    /// As [`cpu`].
    pub fn cpu(&self) -> f64 {
        cpu(self.child.id())
    }

    /// Open files, sockets among them.
    pub fn files(&self) -> usize {
        files(self.child.id()).expect("the process lives, and is ours")
    }

    /// Most open files seen from now on, by looking each 50 ms until it ends or nobody asks any more.
    pub fn watch_files(&self) -> Arc<AtomicUsize> {
        let (id, most) = (self.child.id(), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::downgrade(&most);
        std::thread::spawn(move || {
            while let (Some(most), Ok(count)) = (seen.upgrade(), files(id)) {
                most.fetch_max(count, Ordering::Relaxed);
                drop(most);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        most
    }
}

/// A figure of `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`. Fails the benchmark without such a process.
pub fn memory(process: u32, figure: &str) -> u64 {
    let status = proc(process, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(figure));
    let kilobytes = line.and_then(|line| line.trim_start_matches(':').trim().strip_suffix("kB"));
    let kilobytes = kilobytes.and_then(|number| number.trim().parse::<u64>().ok());
    kilobytes.expect("the kernel tells the figure") * 1024
}

/// CPU seconds that a process has used, user and system. Fails the benchmark if there is no such process.
pub fn cpu(process: u32) -> f64 {
    let stat = proc(process, "stat");
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // utime and stime are fields 14 and 15 of proc(5), in hundredths; the name, which is cut off, was the
    // second.
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|field| field.parse::<f64>().expect("a number of ticks"));
    ticks.sum::<f64>() / 100.0
}

fn proc(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).expect("the process lives")
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.orders.take());
        // One that is stopped hears of it only when it goes on.
        self.signal(Signal::SIGCONT);
        let _ = self.child.wait();
    }
}

fn files(id: u32) -> io::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{id}/fd"))?.count())
}

/// Answers each line of standard input with all metrics, until it ends.
pub fn serve_metrics(first: &str, registry: &Registry) {
    serve_orders(first, |_| {
        let mut text = String::new();
        encode(&mut text, registry).expect("a string takes all");
        text
    });
}

/// Answers each line of standard input until it ends.
#[expect(clippy::print_stdout, reason = "answers")]
pub fn serve_orders(first: &str, mut answer: impl FnMut(&str) -> String) {
    println!("{first}\n");
    for line in io::stdin().lines() {
        let line = line.expect("orders are text");
        match answer(&line).trim_end() {
            "" => println!(),
            text => println!("{text}\n"),
        }
    }
}
