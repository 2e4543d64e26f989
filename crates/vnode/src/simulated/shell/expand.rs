//! Words become arguments: variables, output of commands, sums, patterns of file names.

use super::eval::{Flow, Session, State, script};
use super::streams::{Output, Streams};
use super::syntax::{Instead, Part, Word};
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// Most arguments of a command, and bytes of all of them; of a text, too.
const ARGUMENTS: usize = 10_000;
const BYTES: usize = 1 << 20;
/// Longest pattern of file names: no path is longer.
const PATTERN: usize = 4096;
/// Names that are matched in the time of one command.
const NAMES: usize = 64;

/// A field under way.
#[derive(Default)]
struct Field {
    text: String,
    /// Positions of `*` and `?` that are patterns.
    patterns: Vec<usize>,
    /// There was a quote: even empty it is a field.
    kept: bool,
}

/// Words as arguments: values are divided at blanks, patterns become file names.
pub async fn fields(
    session: &Session,
    state: &mut State,
    words: &[Word],
    streams: &Streams,
) -> Result<Vec<String>, Flow> {
    let mut all = Vec::new();
    // Of all arguments so far.
    let mut total = 0;
    for word in words {
        let mut done = Vec::new();
        let mut bytes = total;
        let mut field = Field::default();
        for part in word {
            match part {
                Part::Text(text) => {
                    bytes += text.len();
                    let base = field.text.len();
                    let patterns = text.match_indices(['*', '?']).map(|(at, _)| base + at);
                    field.patterns.extend(patterns);
                    let home = state.get("HOME").unwrap_or("/root");
                    if base == 0 && (text == "~" || text.starts_with("~/")) {
                        field.text.push_str(home);
                        field.text.push_str(text.get(1..).unwrap_or(""));
                        field.patterns.clear();
                    } else {
                        field.text.push_str(text);
                    }
                }
                Part::Quoted(text) => {
                    bytes += text.len();
                    field.kept = true;
                    field.text.push_str(text);
                }
                Part::Variable { name, quoted, .. } if *quoted && name == "@" => {
                    let arguments = state.arguments.clone();
                    for (index, argument) in arguments.iter().enumerate() {
                        if index > 0 {
                            done.push(std::mem::take(&mut field));
                        }
                        bytes += argument.len();
                        field.text.push_str(argument);
                        field.kept = true;
                    }
                }
                part => {
                    let (text, quoted) = value(session, state, part, streams).await?;
                    bytes += text.len();
                    if quoted {
                        field.kept = true;
                        field.text.push_str(&text);
                    } else {
                        split(&text, &mut field, &mut done)?;
                    }
                }
            }
            if bytes > BYTES || all.len() + done.len() > ARGUMENTS {
                return Err(Flow::TooLong);
            }
        }
        if field.kept || !field.text.is_empty() {
            done.push(field);
        }
        for field in done {
            let before = all.len();
            if !field.patterns.is_empty() {
                matching(session, state, &field.text, &mut all, &mut total).await?;
            }
            if all.len() == before {
                total += field.text.len();
                all.push(field.text);
            }
            if total > BYTES || all.len() > ARGUMENTS {
                return Err(Flow::TooLong);
            }
        }
    }
    Ok(all)
}

fn split(text: &str, field: &mut Field, done: &mut Vec<Field>) -> Result<(), Flow> {
    let mut rest = text;
    while let Some(at) = rest.find(char::is_whitespace) {
        field.text.push_str(rest.get(..at).unwrap_or(""));
        if field.kept || !field.text.is_empty() {
            done.push(std::mem::take(field));
            if done.len() > ARGUMENTS {
                return Err(Flow::TooLong);
            }
        }
        rest = rest.get(at..).unwrap_or("").trim_start();
    }
    field.text.push_str(rest);
    Ok(())
}

/// A word as one text, as in assignments and redirections.
pub fn text<'a>(
    session: &'a Session,
    state: &'a mut State,
    word: &'a [Part],
    streams: &'a Streams,
) -> BoxFuture<'a, Result<String, Flow>> {
    Box::pin(async move {
        state.enter()?;
        let mut whole = Ok(String::new());
        for part in word {
            let value = value(session, state, part, streams).await;
            whole = match (whole, value) {
                (Ok(mut whole), Ok((text, _))) if whole.len() + text.len() <= BYTES => {
                    whole.push_str(&text);
                    Ok(whole)
                }
                (Ok(_), Ok(_)) => Err(Flow::Failed("Argument list too long".to_owned())),
                (Err(flow), _) | (_, Err(flow)) => Err(flow),
            };
            if whole.is_err() {
                break;
            }
        }
        state.leave();
        whole
    })
}

/// A part's value, and whether it stays one word.
async fn value(
    session: &Session,
    state: &mut State,
    part: &Part,
    streams: &Streams,
) -> Result<(String, bool), Flow> {
    match part {
        Part::Text(text) => Ok((text.clone(), false)),
        Part::Quoted(text) => Ok((text.clone(), true)),
        Part::Sum(word) => {
            let sum = text(session, state, word, streams).await?;
            let sum = super::expand::sum(&sum, state)
                .map_err(|error| Flow::Failed(format!("arithmetic syntax error: {error} in {sum:?}")))?;
            Ok((sum.to_string(), true))
        }
        Part::Output {
            script: inner,
            quoted,
        } => {
            let kept = Arc::new(Mutex::new(Vec::new()));
            let streams = Streams {
                output: Output::Kept(kept.clone()),
                ..streams.clone()
            };
            let mut inner_state = state.child()?;
            let ended = script(session, &mut inner_state, inner, &streams).await;
            if let Err(Flow::Failed(message)) = &ended {
                streams.complain(&format!("sh: {message}")).await;
            }
            state.status = ended.unwrap_or_else(|flow| flow.code());
            let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
            let text = String::from_utf8_lossy(&kept);
            Ok((text.trim_end_matches('\n').to_owned(), *quoted))
        }
        Part::Variable {
            name,
            instead,
            quoted,
        } => {
            let found = state.parameter(name);
            let filled = found.as_ref().filter(|value| !value.is_empty());
            let text = match instead {
                None => found.unwrap_or_default(),
                Some(Instead::Length) => found.unwrap_or_default().chars().count().to_string(),
                Some(Instead::Default { empty, word }) => {
                    match if *empty { filled.cloned() } else { found.clone() } {
                        Some(value) => value,
                        None => text(session, state, word, streams).await?,
                    }
                }
                Some(Instead::Other { empty, word }) => {
                    match if *empty { filled.cloned() } else { found.clone() } {
                        Some(_) => text(session, state, word, streams).await?,
                        None => String::new(),
                    }
                }
            };
            Ok((text, *quoted))
        }
    }
}

/// Adds files whose names match, and their bytes; of the last part of the path alone. A pattern that is longer than any
/// path matches nothing.
async fn matching(
    session: &Session,
    state: &State,
    pattern: &str,
    all: &mut Vec<String>,
    total: &mut usize,
) -> Result<(), Flow> {
    if pattern.len() > PATTERN {
        return Ok(());
    }
    let (folder, name) = pattern
        .rsplit_once('/')
        .map_or(("", pattern), |(folder, name)| (folder, name));
    if folder.contains(['*', '?']) {
        return Ok(());
    }
    let prefix = if pattern.contains('/') {
        format!("{folder}/")
    } else {
        String::new()
    };
    let path =
        crate::simulated::fs::absolute(&state.directory, if prefix.is_empty() { "." } else { &prefix });
    let entries = session.view.list(&path).await.unwrap_or_default();
    let hidden = name.starts_with('.');
    let pattern = Pattern::new(name);
    for names in entries.chunks(NAMES) {
        session.step().await;
        let known = names.iter().map(|(name, _)| name.as_str());
        for known in known.filter(|known| (hidden || !known.starts_with('.')) && pattern.matches(known)) {
            *total += prefix.len() + known.len();
            if *total > BYTES || all.len() >= ARGUMENTS {
                return Err(Flow::TooLong);
            }
            all.push(format!("{prefix}{known}"));
        }
    }
    Ok(())
}

/// A pattern of `*` and `?`.
pub struct Pattern {
    chars: Vec<char>,
    /// Characters that a name needs at least.
    least: usize,
}

impl Pattern {
    /// From its text; `**` is `*`.
    pub fn new(text: &str) -> Self {
        let mut chars: Vec<char> = text.chars().collect();
        chars.dedup_by(|next, before| *next == '*' && *before == '*');
        let least = chars.iter().filter(|char| **char != '*').count();
        Self { chars, least }
    }

    /// Whether a name is such.
    pub fn matches(&self, name: &str) -> bool {
        name.len() >= self.least && matches(&self.chars, name)
    }
}

fn matches(pattern: &[char], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                back = Some((p, n));
                p += 1;
            }
            Some(wanted) if *wanted == '?' || name.get(n) == Some(wanted) => {
                p += 1;
                n += 1;
            }
            _ => match back {
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .unwrap_or_default()
        .iter()
        .all(|char| *char == '*')
}

/// The value of a sum: whole numbers, variables, `+ - * / %`, comparisons, parentheses.
pub fn sum(text: &str, state: &State) -> Result<i64, String> {
    let mut reader = Sum {
        chars: text.chars().filter(|char| !char.is_whitespace()).collect(),
        at: 0,
        depth: 0,
        state,
    };
    let value = reader.level(0)?;
    match reader.chars.get(reader.at) {
        None => Ok(value),
        Some(char) => Err(format!("unexpected {char:?}")),
    }
}

struct Sum<'a> {
    chars: Vec<char>,
    at: usize,
    depth: u32,
    state: &'a State,
}

/// Operators that bind equally, the loosest first.
const LEVELS: [&[&str]; 5] = [
    &["||"],
    &["&&"],
    &["==", "!=", "<=", ">=", "<", ">"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Sum<'_> {
    fn take(&mut self, text: &str) -> bool {
        let found = text
            .chars()
            .enumerate()
            .all(|(by, char)| self.chars.get(self.at + by) == Some(&char));
        if found {
            self.at += text.len();
        }
        found
    }

    fn level(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut value = self.level(level + 1)?;
        while let Some(operator) = operators.iter().copied().find(|operator| self.take(operator)) {
            let other = self.level(level + 1)?;
            value = apply(operator, value, other)?;
        }
        Ok(value)
    }

    fn operand(&mut self) -> Result<i64, String> {
        if self.depth > 32 {
            return Err("too deep".to_owned());
        }
        self.depth += 1;
        let value = if self.take("-") {
            self.operand()?.wrapping_neg()
        } else if self.take("+") {
            self.operand()?
        } else if self.take("!") {
            i64::from(self.operand()? == 0)
        } else if self.take("(") {
            let value = self.level(0)?;
            if !self.take(")") {
                return Err("`)` is missing".to_owned());
            }
            value
        } else {
            let rest = self.chars.get(self.at..).unwrap_or_default();
            let word: String = rest
                .iter()
                .take_while(|char| char.is_ascii_alphanumeric() || **char == '_')
                .collect();
            self.at += word.len();
            match word.chars().next() {
                None => return Err("a number is missing".to_owned()),
                Some(char) if char.is_ascii_digit() => {
                    word.parse().map_err(|_| format!("{word:?} is no number"))?
                }
                Some(_) => match self.state.get(&word).map(str::trim) {
                    None | Some("") => 0,
                    Some(value) => value.parse().map_err(|_| format!("{value:?} is no number"))?,
                },
            }
        };
        self.depth -= 1;
        Ok(value)
    }
}

fn apply(operator: &str, a: i64, b: i64) -> Result<i64, String> {
    Ok(match operator {
        "||" => i64::from(a != 0 || b != 0),
        "&&" => i64::from(a != 0 && b != 0),
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        _ if b == 0 => return Err("division by zero".to_owned()),
        "/" => a.wrapping_div(b),
        _ => a.wrapping_rem(b),
    })
}
