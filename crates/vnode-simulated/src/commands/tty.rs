//! A terminal's line discipline: echo, erasing, end of line, `^C`, `^D`; or bytes as they come, without a
//! terminal.

use evenkeel_vnode::provider::TerminalSize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Longest line, as in a real terminal.
const LINE: usize = 4096;
/// What may wait to be read.
const WAITING: usize = 64 << 10;
/// What each piece of it takes beside its bytes, so that many small ones have an end, too.
const PIECE: usize = 64;

/// What was typed and not read yet.
#[derive(Debug, Default)]
pub(crate) struct Tty {
    state: Mutex<State>,
    more: Notify,
    room: Notify,
    interrupts: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The line that is being typed.
    line: Vec<u8>,
    ready: VecDeque<Typed>,
    waiting: usize,
    /// Nothing more will come.
    over: bool,
    escape: Escape,
    size: Option<TerminalSize>,
}

#[derive(Debug)]
enum Typed {
    Bytes(VecDeque<u8>),
    /// `^D` on an empty line: the reader's end of file, and the next one reads on.
    End,
}

/// Arrow keys and the like are swallowed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// No sequence is under way.
    #[default]
    No,
    /// ESC was read.
    Begun,
    /// ESC and `[` or `O` were read.
    Inside,
}

impl Tty {
    fn state(&self) -> MutexGuard<'_, State> {
        // A queue of bytes is whole whatever panicked elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was typed; returns what is echoed. What nobody reads for too long is dropped.
    pub(crate) fn typed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut echo = Vec::new();
        let mut state = self.state();
        for byte in bytes {
            match (state.escape, *byte) {
                (Escape::Begun, b'[' | b'O') => state.escape = Escape::Inside,
                (Escape::Begun, _) => state.escape = Escape::No,
                (Escape::Inside, 0x40..=0x7e) => state.escape = Escape::No,
                (Escape::Inside, _) => {}
                (Escape::No, 0x1b) => state.escape = Escape::Begun,
                (Escape::No, b'\r' | b'\n') => {
                    echo.extend_from_slice(b"\r\n");
                    state.line.push(b'\n');
                    state.enter();
                    self.more.notify_waiters();
                }
                (Escape::No, 0x03) => {
                    echo.extend_from_slice(b"^C\r\n");
                    state.line.clear();
                    self.interrupts.notify_waiters();
                }
                (Escape::No, 0x04) => {
                    if state.line.is_empty() {
                        state.push(Typed::End);
                    } else {
                        state.enter();
                    }
                    self.more.notify_waiters();
                }
                (Escape::No, 0x7f | 0x08) => {
                    if state.rub() {
                        echo.extend_from_slice(b"\x08 \x08");
                    }
                }
                (Escape::No, 0x15) => {
                    while state.rub() {
                        echo.extend_from_slice(b"\x08 \x08");
                    }
                }
                (Escape::No, 0x17) => {
                    while state.line.last() == Some(&b' ') && state.rub() {
                        echo.extend_from_slice(b"\x08 \x08");
                    }
                    while state.line.last().is_some_and(|byte| *byte != b' ') && state.rub() {
                        echo.extend_from_slice(b"\x08 \x08");
                    }
                }
                (Escape::No, byte @ (b'\t' | 0x20..)) => {
                    if state.line.len() < LINE {
                        state.line.push(byte);
                        echo.push(byte);
                    }
                }
                (Escape::No, _) => {}
            }
        }
        echo
    }

    /// Takes bytes as they are, once there is room.
    pub(crate) async fn give(&self, bytes: &[u8]) {
        for chunk in bytes.chunks(4096) {
            loop {
                let room = self.room.notified();
                {
                    let mut state = self.state();
                    if state.over {
                        return;
                    }
                    if state.waiting < WAITING {
                        state.waiting += PIECE + chunk.len();
                        state
                            .ready
                            .push_back(Typed::Bytes(chunk.iter().copied().collect()));
                        break;
                    }
                }
                room.await;
            }
            self.more.notify_waiters();
        }
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        if !state.line.is_empty() {
            state.enter();
        }
        state.over = true;
        self.more.notify_waiters();
        self.room.notify_waiters();
    }

    /// Some bytes of a line, once it is entered; none at the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            let more = self.more.notified();
            {
                let mut state = self.state();
                let over = state.over;
                match state.ready.front_mut() {
                    Some(Typed::End) => {
                        state.ready.pop_front();
                        state.waiting = state.waiting.saturating_sub(PIECE);
                        return 0;
                    }
                    Some(Typed::Bytes(bytes)) => {
                        let count = bytes.len().min(buffer.len());
                        let mut read = count;
                        for (to, from) in buffer.iter_mut().zip(bytes.drain(..count)) {
                            *to = from;
                        }
                        if bytes.is_empty() {
                            state.ready.pop_front();
                            read += PIECE;
                        }
                        state.waiting = state.waiting.saturating_sub(read);
                        self.room.notify_waiters();
                        return count;
                    }
                    None if over => return 0,
                    None => {}
                }
            }
            more.await;
        }
    }

    /// Returns when `^C` is typed.
    pub(crate) async fn interrupted(&self) {
        self.interrupts.notified().await;
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> TerminalSize {
        self.state().size.unwrap_or(TerminalSize {
            width: 80,
            height: 24,
        })
    }

    /// Notes columns and rows.
    pub(crate) fn resize(&self, size: TerminalSize) {
        self.state().size = Some(size);
    }
}

impl State {
    fn enter(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.push(Typed::Bytes(line.into()));
    }

    /// Adds what the reader finds next, if there is room for it.
    fn push(&mut self, typed: Typed) {
        let bytes = match &typed {
            Typed::Bytes(bytes) => bytes.len(),
            Typed::End => 0,
        };
        if self.waiting + PIECE + bytes <= WAITING {
            self.waiting += PIECE + bytes;
            self.ready.push_back(typed);
        }
    }

    /// Takes the last character away.
    fn rub(&mut self) -> bool {
        while let Some(byte) = self.line.pop() {
            // Continuation bytes of UTF-8 go with the byte before them.
            if byte & 0xc0 != 0x80 {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn line(tty: &Tty) -> String {
        let mut buffer = [0; 100];
        let count = tty.read(&mut buffer).await;
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_line_is_echoed_corrected_and_entered() {
        let tty = Tty::default();
        assert_eq!(
            tty.typed("exé\x7fho x\x17\x7f y\x1b[A\r".as_bytes()),
            "exé\x08 \x08ho x\x08 \x08\x08 \x08 y\r\n".as_bytes()
        );
        assert_eq!(line(&tty).await, "exho y\n");
        tty.typed(b"all wrong\x15right\n");
        assert_eq!(line(&tty).await, "right\n");
    }

    #[tokio::test]
    async fn an_end_of_file_is_for_one_reader() {
        let tty = Tty::default();
        tty.typed(b"\x04ab\x04\r");
        assert_eq!(line(&tty).await, "");
        assert_eq!(line(&tty).await, "ab");
        assert_eq!(line(&tty).await, "\n");
        tty.end();
        assert_eq!(line(&tty).await, "");
        assert_eq!(line(&tty).await, "");
    }

    #[tokio::test]
    async fn an_interrupt_drops_the_line_and_is_told() {
        let tty = Tty::default();
        tty.typed(b"half");
        let waiting = tty.interrupted();
        tokio::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(tty.typed(b"\x03x\r"), b"^C\r\nx\r\n");
        waiting.await;
        assert_eq!(line(&tty).await, "x\n");
    }

    #[test]
    fn what_nobody_reads_has_an_end() {
        let tty = Tty::default();
        for _ in 0..1000 {
            tty.typed(&[b'x'; 5000]);
            tty.typed(b"\r");
        }
        assert!(tty.state().waiting <= WAITING);
    }

    #[tokio::test]
    async fn ends_and_empty_lines_that_nobody_reads_have_an_end_too() {
        let tty = Tty::default();
        for _ in 0..100 {
            tty.typed(&[0x04; 4096]);
        }
        assert_eq!(tty.state().ready.len(), WAITING / PIECE);
        // What is read makes room.
        while !tty.state().ready.is_empty() {
            assert_eq!(line(&tty).await, "");
        }
        assert_eq!(tty.state().waiting, 0);
        tty.typed(&[b'\r'; 4096]);
        assert!(tty.state().ready.len() <= WAITING / PIECE);
        while !tty.state().ready.is_empty() {
            assert_eq!(line(&tty).await, "\n");
        }
        assert_eq!(tty.state().waiting, 0);
    }
}
