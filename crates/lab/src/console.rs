//! What people see while a lab runs: lines with the time since the start, and on a terminal a busy line
//! below.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// Standard output with a clock. A reader that went away does not stop the lab.
pub struct Console {
    start: Instant,
    terminal: bool,
    busy: Mutex<usize>,
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// The clock starts now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            terminal: io::stdout().is_terminal(),
            busy: Mutex::default(),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether somebody sees this as it comes.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A line with the time.
    pub fn line(&self, text: &str) {
        let seconds = self.elapsed().as_secs_f64();
        self.write(&format!("{seconds:7.1} s  {text}\n"));
    }

    /// Text as it is.
    pub fn text(&self, text: &str) {
        self.write(text);
    }

    /// The busy line; nothing where nobody sees it go.
    pub fn busy(&self, text: &str) {
        if !self.terminal {
            return;
        }
        let mut turn = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        *turn += 1;
        let sign = SPINNER[*turn % SPINNER.len()];
        let seconds = self.elapsed().as_secs_f64();
        // Shortened, so that it stays one line on a narrow terminal.
        let text: String = text.chars().take(60).collect();
        put(&format!("\r\x1b[K{seconds:7.1} s {sign} {text}"));
    }

    fn write(&self, text: &str) {
        let _turn = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal {
            put(&format!("\r\x1b[K{text}"));
        } else {
            put(text);
        }
    }
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody reads any more: the lab goes on, its exit code and report still tell.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
