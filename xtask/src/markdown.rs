//! The reader of Markdown pages that checks share: rows of tables, sections, code spans.

/// A row of a table, without the header.
pub(crate) struct Row<'a> {
    /// Its line on the page, from 1.
    pub(crate) line: usize,
    /// The last heading of the second level above it.
    pub(crate) under: &'a str,
    heads: Vec<&'a str>,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// Its first cell: the case.
    pub(crate) fn first(&self) -> &'a str {
        self.cells.first().copied().unwrap_or_default()
    }

    /// The cell in the column of a heading.
    pub(crate) fn cell(&self, heading: &str) -> Option<&'a str> {
        let nth = self.heads.iter().position(|head| *head == heading)?;
        self.cells.get(nth).copied()
    }

    /// The cells in the columns of these headings.
    pub(crate) fn columns(&self, headings: &[&str]) -> impl Iterator<Item = &'a str> {
        headings.iter().filter_map(|heading| self.cell(heading))
    }
}

/// All rows of all tables of a page, and what is wrong with the tables. Each table must have a column of one
/// of `wanted`, where that is not empty.
pub(crate) fn read<'a>(page: &'a str, wanted: &[&str]) -> (Vec<Row<'a>>, Vec<String>) {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let mut under = "";
    let mut heads: Option<Vec<&str>> = None;
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(heading) = text.strip_prefix("## ") {
            under = heading;
        }
        let Some(inner) = text.strip_prefix('|') else {
            heads = None;
            continue;
        };
        let Some(inner) = inner.strip_suffix('|') else {
            problems.push(format!(":{line}: a row of a table that does not end in |"));
            continue;
        };
        let cells = cells(inner);
        match &heads {
            None => {
                if !wanted.is_empty() && !cells.iter().any(|head| wanted.contains(head)) {
                    problems.push(format!(":{line}: a table without a column of tests"));
                }
                heads = Some(cells);
            }
            Some(_) if inner.chars().all(|c| matches!(c, '-' | '|' | ':')) => {}
            Some(heads) if heads.len() != cells.len() => problems.push(format!(
                ":{line}: {} cells in a table of {} columns",
                cells.len(),
                heads.len()
            )),
            Some(heads) => rows.push(Row {
                line,
                under,
                heads: heads.clone(),
                cells,
            }),
        }
    }
    (rows, problems)
}

/// The cells between the bars of a row. A bar within a code span is text.
fn cells(inner: &str) -> Vec<&str> {
    let mut in_code = false;
    inner
        .split(|c: char| {
            in_code ^= c == '`';
            c == '|' && !in_code
        })
        .map(str::trim)
        .collect()
}

/// The contents of a text's code spans.
pub(crate) fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The tests among code spans: paths of Rust.
pub(crate) fn is_test(span: &str) -> bool {
    span.contains("::")
}

/// The sections of the third level: heading, and text up to the next heading of that or the second level.
pub(crate) fn sections(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n### ").skip(1).filter_map(|section| {
        let section = section.split("\n## ").next()?;
        Some(section.split_once('\n').unwrap_or((section, "")))
    })
}
