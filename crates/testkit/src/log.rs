//! What is logged, as text: spans included, in the form in which the processes write it.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once, PoisonError};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

/// From now on no place that logs, and no span, is switched off for the whole process because the threads
/// that met it first had nobody who listens: a listener of one thread that comes at that moment would miss
/// it. Call it before listening.
pub fn keep_callsites() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let deaf = tracing_subscriber::registry().with(LevelFilter::DEBUG);
        // Where there is a listener for the whole process already, that one does.
        let _ = tracing::subscriber::set_global_default(deaf);
    });
}

/// What this thread logs, as long as this is alive. A test on several threads misses what the others log:
/// take `#[tokio::test]` without a flavour.
pub struct Log {
    text: Sink,
    _captures: DefaultGuard,
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines()).finish()
    }
}

impl Log {
    /// From level `info` on, as processes log by default.
    pub fn capture() -> Self {
        Self::from(Level::INFO)
    }

    /// From this level on.
    pub fn from(level: Level) -> Self {
        keep_callsites();
        let text = Sink::default();
        let sink = text.clone();
        let lines = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_writer(move || sink.clone())
            .finish();
        Self {
            text,
            _captures: tracing::subscriber::set_default(lines),
        }
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Lines that hold all these words.
    pub fn with(&self, words: &[&str]) -> Vec<String> {
        let holds = |line: &String| words.iter().all(|word| line.contains(word));
        self.lines().into_iter().filter(holds).collect()
    }

    /// Lines of the level `warn`.
    pub fn warnings(&self) -> Vec<String> {
        self.with(&["WARN"])
    }

    /// Fails the test unless exactly one line holds all these words: told, and not told every second.
    pub fn says_once(&self, words: &[&str]) {
        let found = self.with(words);
        assert_eq!(found.len(), 1, "{words:?} in {self:#?}");
    }
}
