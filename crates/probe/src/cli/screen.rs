//! The live table on a terminal: drawn in place, below the lines that scroll.
//!
//! Nothing of the terminal's state is changed (no alternate screen, no raw mode, the cursor stays visible),
//! so nothing has to be put back, however the process ends.

use super::out::{self, Reader};
use super::text::width;
use crossterm::cursor::MoveToPreviousLine;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use std::io;

/// What stands at the bottom of the terminal.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// Widths of the lines drawn last.
    drawn: Vec<usize>,
}

/// Columns and rows of the terminal; 80 and 24 where it does not say.
pub(super) fn size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (usize::from(columns), usize::from(rows)),
        Ok(_) | Err(_) => (80, 24),
    }
}

impl Screen {
    /// Writes `scroll` where the table was, and the table below. The last line is ended, so that the shell's
    /// prompt comes below it.
    pub(super) fn draw(&mut self, scroll: &[String], table: &[String], columns: usize) -> io::Result<Reader> {
        out::put(&self.frame(scroll, table, columns))
    }

    /// The bytes of it.
    fn frame(&mut self, scroll: &[String], table: &[String], columns: usize) -> String {
        let mut frame = String::new();
        ansi(&mut frame, BeginSynchronizedUpdate);
        let up = rows(&self.drawn, columns);
        if up > 0 {
            ansi(
                &mut frame,
                MoveToPreviousLine(u16::try_from(up).unwrap_or(u16::MAX)),
            );
        }
        ansi(&mut frame, Clear(ClearType::FromCursorDown));
        for line in scroll.iter().chain(table) {
            frame.push_str(line);
            frame.push_str("\r\n");
        }
        ansi(&mut frame, EndSynchronizedUpdate);
        self.drawn = table.iter().map(|line| width(line)).collect();
        frame
    }
}

/// A terminal that has become narrower has broken the lines drawn before.
fn rows(drawn: &[usize], columns: usize) -> usize {
    let columns = columns.max(1);
    drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum()
}

fn ansi(text: &mut String, command: impl crossterm::Command) {
    // Writing to a string cannot fail.
    let _ = command.write_ansi(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_table_is_drawn_over_the_one_before() {
        let mut screen = Screen::default();
        let first = screen.frame(&lines(&["hello"]), &lines(&["a", "b"]), 80);
        assert_eq!(first, "\x1b[?2026h\x1b[Jhello\r\na\r\nb\r\n\x1b[?2026l");
        let second = screen.frame(&[], &lines(&["c"]), 80);
        assert_eq!(second, "\x1b[?2026h\x1b[2F\x1b[Jc\r\n\x1b[?2026l");
        let third = screen.frame(&[], &[], 80);
        assert!(third.contains("\x1b[1F"), "{third:?}");
    }

    #[test]
    fn lines_that_a_narrower_terminal_has_broken_are_counted() {
        assert_eq!(rows(&[10, 0, 25], 80), 3);
        assert_eq!(rows(&[10, 0, 25], 10), 5);
        assert_eq!(rows(&[10], 0), 10);
    }
}
