//! How a run is shown: as lines, as JSON, or as a table with lines above.

use super::super::args::Show;
use super::super::error::CliError;
use super::super::out::{self, Reader};
use super::super::record::Record;
use super::super::screen::{self, Screen};
use super::super::table::{View, render};
use super::super::text::json;
use std::io::{self, IsTerminal as _};

pub(super) struct Display {
    form: Form,
    reader: Reader,
}

enum Form {
    Lines,
    Json,
    Table {
        screen: Screen,
        /// Lines to be shown above the table at the next draw.
        above: Vec<String>,
    },
}

impl Display {
    pub(super) fn new(show: Show) -> Self {
        let table = || Form::Table {
            screen: Screen::default(),
            above: Vec::new(),
        };
        let form = match show {
            Show::Json => Form::Json,
            Show::Lines => Form::Lines,
            Show::Table => table(),
            Show::Auto if io::stdout().is_terminal() => table(),
            Show::Auto => Form::Lines,
        };
        Self {
            form,
            reader: Reader::There,
        }
    }

    /// Whether something is to be drawn again and again.
    pub(super) fn draws(&self) -> bool {
        matches!(self.form, Form::Table { .. })
    }

    /// Whether nobody reads any more.
    pub(super) fn unread(&self) -> bool {
        self.reader == Reader::Gone
    }

    /// Finds out whether somebody still reads, without writing.
    pub(super) fn check_reader(&mut self) {
        if out::reader() == Reader::Gone {
            self.reader = Reader::Gone;
        }
    }

    /// Shows a record, at once or with the next draw.
    pub(super) fn show(&mut self, record: &Record) -> Result<(), CliError> {
        let line = match &mut self.form {
            Form::Table { above, .. } => {
                above.extend(record.line());
                return Ok(());
            }
            Form::Lines => record.line(),
            Form::Json => Some(json(record).map_err(io::Error::from).map_err(unwritten)?),
        };
        if let Some(line) = line {
            self.reader = out::put(&format!("{line}\n")).map_err(unwritten)?;
        }
        Ok(())
    }

    /// Draws the table, and what is to stand above it.
    pub(super) fn draw(&mut self, view: &View) -> Result<(), CliError> {
        let Form::Table { screen, above } = &mut self.form else {
            return Ok(());
        };
        let (columns, rows) = screen::size();
        // The last column is left free: some terminals go on to the next line when it is written.
        let table = render(view, columns.saturating_sub(1), rows.saturating_sub(1));
        // Whole: the terminal breaks them, and they scroll away. They say why.
        let above = std::mem::take(above);
        self.reader = screen.draw(&above, &table, columns).map_err(unwritten)?;
        Ok(())
    }
}

fn unwritten(error: io::Error) -> CliError {
    CliError::later(format!("cannot write to standard output: {error}"))
}
