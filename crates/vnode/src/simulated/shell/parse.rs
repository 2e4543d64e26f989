//! Text becomes a script. Pure: never panics, always ends, and goes no deeper than a stack bears.

mod word;

use super::syntax::{Command, How, Item, Joint, Pipeline, Redirect, Script, What};

/// Longest script, in bytes.
pub const LONGEST: usize = 64 << 10;
/// Deepest nesting of quotes, substitutions and compound commands.
const DEPTH: u32 = 24;

/// Most commands of a pipeline.
const STAGES: usize = 32;

/// Why a text is no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// More may make it one.
    Unfinished(String),
    /// Nothing will.
    Syntax(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unfinished(what) => write!(f, "syntax error: unexpected end of file: {what}"),
            Self::Syntax(what) => write!(f, "syntax error: {what}"),
        }
    }
}

/// Reads a script.
pub fn parse(text: &str) -> Result<Script, Wrong> {
    if text.len() > LONGEST {
        return Err(Wrong::Syntax(format!(
            "the script has {} bytes, at most {LONGEST} are read",
            text.len()
        )));
    }
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser {
        chars: &chars,
        at: 0,
        depth: 0,
    };
    let script = parser.script(&[])?;
    match parser.peek() {
        None => Ok(script),
        Some(char) => Err(unexpected(char)),
    }
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
    depth: u32,
}

type Parsed<T> = Result<T, Wrong>;

fn unexpected(char: char) -> Wrong {
    Wrong::Syntax(format!("unexpected {char:?}"))
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Only what a shell divides words at: other blanks are letters like any other.
fn ends_word(char: char) -> bool {
    " \t\r\n;&|<>()".contains(char)
}

const RESERVED: [&str; 11] = [
    "then", "elif", "else", "fi", "do", "done", "}", "in", "case", "esac", "function",
];

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn ahead(&self, by: usize) -> Option<char> {
        self.chars.get(self.at + by).copied()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = text
            .chars()
            .enumerate()
            .all(|(by, char)| self.ahead(by) == Some(char));
        if found {
            self.at += text.chars().count();
        }
        found
    }

    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH {
            return Err(Wrong::Syntax(format!("nested more than {DEPTH} deep")));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    /// Blanks and comments within a line.
    fn blanks(&mut self) {
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' | '\r' => self.at += 1,
                '\\' if self.ahead(1) == Some('\n') => self.at += 2,
                '#' => {
                    while self.peek().is_some_and(|char| char != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn lines(&mut self) {
        self.blanks();
        while self.peek() == Some('\n') {
            self.at += 1;
            self.blanks();
        }
    }

    /// The unquoted word that stands here, if it is one: for reserved words.
    fn word_here(&self) -> &[char] {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|char| ends_word(*char) || "'\"\\$`".contains(*char));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    fn reserved(&self, word: &str) -> bool {
        self.word_here().iter().copied().eq(word.chars())
    }

    fn expect(&mut self, word: &str) -> Parsed<()> {
        self.lines();
        if self.reserved(word) {
            self.at += word.chars().count();
            return Ok(());
        }
        match self.peek() {
            None => Err(Wrong::Unfinished(format!("`{word}` is missing"))),
            Some(char) => Err(Wrong::Syntax(format!(
                "unexpected {char:?} where `{word}` is needed"
            ))),
        }
    }

    /// Commands up to one of these words, `)` or the end.
    fn script(&mut self, ends: &[&str]) -> Parsed<Script> {
        self.deeper(|parser| {
            let mut items = Vec::new();
            loop {
                parser.lines();
                match parser.peek() {
                    None | Some(')') => break,
                    Some(';') if items.is_empty() => return Err(unexpected(';')),
                    Some(_) if ends.iter().any(|end| parser.reserved(end)) => break,
                    Some(_) => {}
                }
                items.push(parser.item()?);
                parser.blanks();
                match parser.peek() {
                    Some(';') if parser.ahead(1) == Some(';') => return Err(unexpected(';')),
                    Some(';' | '\n') => parser.at += 1,
                    Some('&') => {
                        return Err(Wrong::Syntax(
                            "commands in the background are not simulated".to_owned(),
                        ));
                    }
                    None | Some(')') => break,
                    Some(_) if ends.iter().any(|end| parser.reserved(end)) => break,
                    Some(char) => return Err(unexpected(char)),
                }
            }
            Ok(Script(items))
        })
    }

    /// Likewise, at least one.
    fn body(&mut self, ends: &[&str]) -> Parsed<Script> {
        let script = self.script(ends)?;
        if script.0.is_empty() {
            return match self.peek() {
                None => Err(Wrong::Unfinished(format!("`{}` is missing", ends.join("` or `")))),
                Some(char) => Err(unexpected(char)),
            };
        }
        Ok(script)
    }

    fn item(&mut self) -> Parsed<Item> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.blanks();
            let joint = if self.take("&&") {
                Joint::And
            } else if self.take("||") {
                Joint::Or
            } else {
                return Ok(Item { first, rest });
            };
            self.lines();
            rest.push((joint, self.pipeline()?));
        }
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        self.blanks();
        let mut negated = false;
        while self.reserved("!") {
            self.at += 1;
            negated = !negated;
            self.blanks();
        }
        let mut commands = vec![self.command()?];
        loop {
            self.blanks();
            if self.peek() != Some('|') || self.ahead(1) == Some('|') {
                return Ok(Pipeline { negated, commands });
            }
            self.at += 1;
            self.lines();
            if commands.len() >= STAGES {
                return Err(Wrong::Syntax(format!(
                    "a pipeline of more than {STAGES} commands"
                )));
            }
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        self.blanks();
        let what = if self.peek() == Some('(') {
            self.at += 1;
            let script = self.body(&[])?;
            self.close(')')?;
            What::Subshell(script)
        } else if self.reserved("{") {
            self.at += 1;
            let script = self.body(&["}"])?;
            self.expect("}")?;
            What::Group(script)
        } else if self.reserved("if") {
            self.at += 2;
            self.conditional()?
        } else if self.reserved("while") || self.reserved("until") {
            let until = self.reserved("until");
            self.at += 5;
            let condition = self.body(&["do"])?;
            What::Loop {
                until,
                condition,
                body: self.loop_body()?,
            }
        } else if self.reserved("for") {
            self.at += 3;
            self.for_loop()?
        } else if let Some(word) = RESERVED.iter().find(|word| self.reserved(word)) {
            return Err(Wrong::Syntax(format!("unexpected `{word}`")));
        } else {
            return self.simple();
        };
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(Command { what, redirects }),
            }
        }
    }

    fn close(&mut self, with: char) -> Parsed<()> {
        self.lines();
        match self.next() {
            Some(char) if char == with => Ok(()),
            Some(char) => Err(unexpected(char)),
            None => Err(Wrong::Unfinished(format!("{with:?} is missing"))),
        }
    }

    fn conditional(&mut self) -> Parsed<What> {
        let mut branches = Vec::new();
        let mut otherwise = None;
        loop {
            let condition = self.body(&["then"])?;
            self.expect("then")?;
            branches.push((condition, self.body(&["elif", "else", "fi"])?));
            if self.reserved("elif") {
                self.at += 4;
                continue;
            }
            if self.reserved("else") {
                self.at += 4;
                otherwise = Some(self.body(&["fi"])?);
            }
            self.expect("fi")?;
            return Ok(What::If { branches, otherwise });
        }
    }

    fn loop_body(&mut self) -> Parsed<Script> {
        self.expect("do")?;
        let body = self.body(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn for_loop(&mut self) -> Parsed<What> {
        self.blanks();
        let name: String = self.word_here().iter().collect();
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return match self.peek() {
                None => Err(Wrong::Unfinished("`for` needs a variable".to_owned())),
                Some(_) => Err(Wrong::Syntax(format!("{name:?} is no variable"))),
            };
        }
        self.at += name.chars().count();
        self.lines();
        let mut words = None;
        if self.reserved("in") {
            self.at += 2;
            let mut list = Vec::new();
            loop {
                self.blanks();
                match self.peek() {
                    None => return Err(Wrong::Unfinished("`do` is missing".to_owned())),
                    Some(';' | '\n') => break,
                    Some(char) if ends_word(char) => return Err(unexpected(char)),
                    Some(_) => list.push(self.word()?),
                }
            }
            words = Some(list);
        }
        self.blanks();
        if self.peek() == Some(';') {
            self.at += 1;
        }
        Ok(What::For {
            name,
            words,
            body: self.loop_body()?,
        })
    }

    fn simple(&mut self) -> Parsed<Command> {
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            match self.peek() {
                None | Some('\n' | ';' | '&' | '|' | ')') => break,
                Some('(') => return Err(unexpected('(')),
                Some(_) => {}
            }
            if words.is_empty()
                && let Some(name) = self.assigned()
            {
                assignments.push((name, self.word()?));
                continue;
            }
            words.push(self.word()?);
        }
        if assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return match self.peek() {
                None => Err(Wrong::Unfinished("a command is missing".to_owned())),
                Some(char) => Err(unexpected(char)),
            };
        }
        Ok(Command {
            what: What::Simple { assignments, words },
            redirects,
        })
    }

    /// `NAME=`, if that stands here.
    fn assigned(&mut self) -> Option<String> {
        let rest = self.chars.get(self.at..)?;
        let end = rest.iter().position(|char| !is_name(*char))?;
        let name = rest.get(..end)?;
        if rest.get(end) != Some(&'=') || name.first().is_none_or(char::is_ascii_digit) {
            return None;
        }
        let name = name.iter().collect();
        self.at += end + 1;
        Some(name)
    }

    fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        let (digit, sign) = match (self.peek(), self.ahead(1)) {
            (Some(digit @ '0'..='9'), Some(sign @ ('<' | '>'))) => (Some(digit), sign),
            (Some(sign @ ('<' | '>')), _) => (None, sign),
            _ => return Ok(None),
        };
        self.at += 1 + usize::from(digit.is_some());
        let how = match sign {
            '<' if matches!(self.peek(), Some('<' | '&' | '>')) => {
                return Err(Wrong::Syntax(
                    "documents within a script are not simulated".to_owned(),
                ));
            }
            '<' => How::Read,
            _ if self.take(">") => How::Append,
            _ if self.take("&") => How::Duplicate,
            _ => {
                self.take("|");
                How::Write
            }
        };
        let stream = match digit {
            Some(digit) => u8::try_from(digit).unwrap_or(b'9') - b'0',
            None => u8::from(sign == '>'),
        };
        if stream > 2 {
            return Err(Wrong::Syntax(format!(
                "there is no stream {stream} but 0, 1 and 2"
            )));
        }
        self.blanks();
        match self.peek() {
            None => return Err(Wrong::Unfinished("a redirection needs a file".to_owned())),
            Some(char) if "\n;&|<>()".contains(char) => return Err(unexpected(char)),
            Some(_) => {}
        }
        let target = self.word()?;
        Ok(Some(Redirect { stream, how, target }))
    }
}

#[cfg(test)]
mod tests;
