//! Text for terminals: strangers' text made harmless, and tables. Feature `terminal`.

use unicode_width::UnicodeWidthStr as _;

/// Text that may have come from anybody, on one line: whatever [`is_unsafe`] is escaped.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c if is_unsafe(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// What a terminal would obey, or what turns the direction of text around or cannot be seen.
pub fn is_unsafe(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    );
    unseen || c.is_control()
}

/// A text and blanks up to so many cells of a terminal.
pub fn pad(text: &str, cells: usize) -> String {
    let blanks = cells.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}

/// Columns under each other, two spaces apart; each cell [`clean`]. Every line ends with a line feed. Rows
/// may differ in length.
pub fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let clean_row = |row: &R| row.as_ref().iter().map(|cell| clean(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(clean_row).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.width())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| pad(cell, *width))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(clean("ok\n\tdone\r"), "ok\\n\\tdone\\r");
        assert_eq!(
            clean("\x1b[2Jgone\x07\u{9b}31m\x7f"),
            "\\u{1b}[2Jgone\\u{7}\\u{9b}31m\\u{7f}"
        );
        assert_eq!(clean("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
        assert_eq!(clean("grün 好"), "grün 好");
    }

    #[test]
    fn wide_letters_keep_the_columns_and_what_a_terminal_would_obey_is_escaped() {
        let cells = |cells: &[&str]| -> Vec<String> { cells.iter().map(|cell| (*cell).to_owned()).collect() };
        let rows = [
            cells(&["港-1", "x"]),
            cells(&["abcdef", "y\u{1b}[2J", "z"]),
            cells(&[]),
        ];
        assert_eq!(table(&rows), "港-1    x\nabcdef  y\\u{1b}[2J  z\n\n");
        assert_eq!(pad("好", 4), "好  ");
    }
}
