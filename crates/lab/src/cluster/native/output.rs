//! What processes print: one file per run, each line with its time and stream.

use bytes::Bytes;
use evenkeel_vnode::provider::{Exit, LogOptions, LogStream, Streams};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    sync::watch,
};

/// A longer line is divided, as container runtimes do.
const LINE: u64 = 16 << 10;
/// How often a reader that follows looks for more.
const LOOK: Duration = Duration::from_millis(100);
/// What a message of a container that failed holds at the most, as a kubelet has it.
const MESSAGE: usize = 2048;

/// Copies what comes from a process to the file of its run, until it ends.
pub async fn keep(from: impl AsyncRead + Unpin, stream: &str, file: Arc<File>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match (&mut from).take(LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut text = format!("{} {stream} ", stamp(Timestamp::now())).into_bytes();
        text.append(&mut line);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        // One write, so that lines of both streams stay whole. What does not fit on the disk is lost.
        if let Err(error) = (&*file).write_all(&text) {
            tracing::warn!(%error, "a line of a pod's log is lost");
        }
    }
}

/// A line as it is in the file.
struct Line<'a> {
    at: &'a str,
    stream: &'a str,
    /// With the end of line.
    text: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(parts.next()?).ok();
        let (at, stream) = (word()?, word()?);
        Some(Self {
            at,
            stream,
            text: parts.next()?,
        })
    }

    fn is_wanted(&self, options: &LogOptions) -> bool {
        let of_stream = match options.streams {
            Streams::All => true,
            Streams::Stdout => self.stream == "stdout",
            Streams::Stderr => self.stream == "stderr",
        };
        let late = |since: Timestamp| self.at.parse::<Timestamp>().is_ok_and(|at| at >= since);
        of_stream && options.since.is_none_or(late)
    }

    fn shown(&self, options: &LogOptions) -> Vec<u8> {
        let time = options.timestamps.then(|| format!("{} ", self.at));
        let mut shown = time.unwrap_or_default().into_bytes();
        shown.extend_from_slice(self.text);
        shown
    }
}

/// The lines of a text that are wanted, ready to be sent.
fn select(text: &[u8], options: &LogOptions) -> Vec<Vec<u8>> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.filter_map(Line::parse);
    lines
        .filter(|line| line.is_wanted(options))
        .map(|line| line.shown(options))
        .collect()
}

/// A reader of a file.
struct Reader {
    path: PathBuf,
    /// Up to where it was read: whole lines.
    position: u64,
    options: LogOptions,
    ended: watch::Receiver<Option<Exit>>,
    /// Bytes that may still be given.
    left: u64,
}

/// What a process printed, as it comes.
pub fn read(path: PathBuf, options: &LogOptions, ended: watch::Receiver<Option<Exit>>) -> LogStream {
    let reader = Reader {
        path,
        position: 0,
        left: options.limit.unwrap_or(u64::MAX),
        options: options.clone(),
        ended,
    };
    stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await.transpose()?;
        Some((next, reader))
    })
    .boxed()
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            // Looked at before the file, so that nothing is missed that came before the end.
            let over = !self.options.follow || self.ended.borrow().is_some();
            let text = self.more()?;
            let mut lines = select(&text, &self.options);
            if let Some(tail) = self.options.tail.take() {
                let tail = usize::try_from(tail).unwrap_or(usize::MAX);
                lines.drain(..lines.len().saturating_sub(tail));
            }
            let mut bytes = lines.concat();
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= bytes.len() as u64;
            if !bytes.is_empty() {
                return Ok(Some(bytes.into()));
            }
            if over || self.left == 0 {
                return Ok(None);
            }
            tokio::select! {
                // Its end is seen at the next look.
                _ = self.ended.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// What is new, up to the end of the last line.
    fn more(&mut self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.position))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        text.truncate(whole);
        self.position += whole as u64;
        Ok(text)
    }
}

/// The end of a log, for the message of a container that failed.
pub fn last_words(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let lines = select(&text, &LogOptions::default()).concat();
    let from = lines.len().saturating_sub(MESSAGE);
    String::from_utf8_lossy(&lines[from..]).into_owned()
}

/// RFC 3339 with nanoseconds, all nine digits.
fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LOG: &str = "2026-11-28T00:00:00.000000000Z stdout one two\n\
                       2026-11-28T00:00:01.000000000Z stderr bad\n\
                       2026-11-28T00:00:02.000000000Z stdout three\n";

    async fn text(path: &Path, options: &LogOptions) -> String {
        let (_running, ended) = watch::channel(None);
        let chunks: Vec<_> = read(path.to_owned(), options, ended).collect().await;
        let chunks: Vec<u8> = chunks
            .into_iter()
            .flat_map(|chunk| chunk.unwrap().to_vec())
            .collect();
        String::from_utf8(chunks).unwrap()
    }

    #[rstest]
    #[case(LogOptions::default(), "one two\nbad\nthree\n")]
    #[case(LogOptions { tail: Some(1), ..LogOptions::default() }, "three\n")]
    #[case(LogOptions { limit: Some(5), ..LogOptions::default() }, "one t")]
    #[case(LogOptions { streams: Streams::Stderr, ..LogOptions::default() }, "bad\n")]
    #[case(LogOptions { since: Some("2026-11-28T00:00:01Z".parse().unwrap()), ..LogOptions::default() }, "bad\nthree\n")]
    #[case(LogOptions { timestamps: true, tail: Some(1), ..LogOptions::default() }, "2026-11-28T00:00:02.000000000Z three\n")]
    #[tokio::test]
    async fn what_is_asked_for_is_read(#[case] options: LogOptions, #[case] expected: &str) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        std::fs::write(&path, LOG).unwrap();
        assert_eq!(text(&path, &options).await, expected);
        assert_eq!(last_words(&path), "one two\nbad\nthree\n");
    }

    #[tokio::test]
    async fn a_reader_that_follows_gets_what_comes_until_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let file = Arc::new(File::create(&path).unwrap());
        let (end, ended) = watch::channel(None);
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let mut stream = read(path, &options, ended);
        keep(&b"first\n"[..], "stdout", Arc::clone(&file)).await;
        assert_eq!(stream.next().await.unwrap().unwrap(), "first\n");
        keep(&b"without end of line"[..], "stderr", file).await;
        assert_eq!(stream.next().await.unwrap().unwrap(), "without end of line\n");
        let exit = Exit {
            code: 0,
            reason: String::new(),
            message: String::new(),
            started_at: None,
            at: Timestamp::now(),
        };
        end.send_replace(Some(exit));
        assert!(stream.next().await.is_none());
    }
}
