//! Words: quotes, substitutions, sums.

use super::{Parsed, Parser, Wrong, ends_word, is_name, unexpected};
use crate::simulated::shell::syntax::{Instead, Part, Word};

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Parsed<Word> {
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(char) = self.peek() {
            match char {
                c if ends_word(c) => break,
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(char) => {
                            flush(&mut parts, &mut text);
                            parts.push(Part::Quoted(char.to_string()));
                        }
                        None => return Err(Wrong::Unfinished("nothing follows a backslash".to_owned())),
                    }
                }
                '\'' => {
                    self.at += 1;
                    flush(&mut parts, &mut text);
                    parts.push(Part::Quoted(self.until('\'')?));
                }
                '"' => {
                    self.at += 1;
                    flush(&mut parts, &mut text);
                    // Even an empty pair makes a word.
                    parts.push(Part::Quoted(String::new()));
                    parts.extend(self.deeper(|parser| parser.quoted(Some('"')))?);
                }
                '$' | '`' => {
                    flush(&mut parts, &mut text);
                    let part = self.deeper(|parser| parser.substitution(false))?;
                    parts.push(part);
                }
                char => {
                    self.at += 1;
                    text.push(char);
                }
            }
        }
        flush(&mut parts, &mut text);
        Ok(parts)
    }

    fn until(&mut self, end: char) -> Parsed<String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(char) if char == end => return Ok(text),
                Some(char) => text.push(char),
                None => return Err(Wrong::Unfinished(format!("{end} is missing"))),
            }
        }
    }

    /// What stands in double quotes.
    fn quoted(&mut self, end: Option<char>) -> Parsed<Word> {
        let mut parts = Vec::new();
        let mut text = String::new();
        loop {
            match self.peek() {
                None if end.is_none() => break,
                None => return Err(Wrong::Unfinished("\" is missing".to_owned())),
                char if char == end => {
                    self.at += 1;
                    break;
                }
                Some('\\') => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(char @ ('$' | '`' | '"' | '\\')) => text.push(char),
                        Some(char) => text.extend(['\\', char]),
                        None => return Err(Wrong::Unfinished("\" is missing".to_owned())),
                    }
                }
                Some('$' | '`') => {
                    if !text.is_empty() {
                        parts.push(Part::Quoted(std::mem::take(&mut text)));
                    }
                    parts.push(self.deeper(|parser| parser.substitution(true))?);
                }
                Some(char) => {
                    self.at += 1;
                    text.push(char);
                }
            }
        }
        if !text.is_empty() {
            parts.push(Part::Quoted(text));
        }
        Ok(parts)
    }

    fn substitution(&mut self, quoted: bool) -> Parsed<Part> {
        if self.take("`") {
            let mut text = self.until('`')?.replace("\\`", "`");
            text.push('\n');
            let chars: Vec<char> = text.chars().collect();
            let mut inner = Parser {
                chars: &chars,
                at: 0,
                depth: self.depth,
            };
            let script = inner.script(&[])?;
            return match inner.peek() {
                None => Ok(Part::Output { script, quoted }),
                Some(char) => Err(unexpected(char)),
            };
        }
        if self.take("$((") {
            return self.sum();
        }
        if self.take("$(") {
            let script = self.script(&[])?;
            self.close(')')?;
            return Ok(Part::Output { script, quoted });
        }
        if self.take("${") {
            return self.braces(quoted);
        }
        self.at += 1;
        let name: String = match self.peek() {
            Some(char @ ('?' | '$' | '#' | '@' | '*' | '!')) => char.to_string(),
            Some(char) if char.is_ascii_digit() => char.to_string(),
            Some(char) if is_name(char) => {
                let rest = self.chars.get(self.at..).unwrap_or_default();
                rest.iter().take_while(|char| is_name(**char)).collect()
            }
            _ => return Ok(Part::Quoted("$".to_owned())),
        };
        self.at += name.chars().count();
        Ok(Part::Variable {
            name,
            instead: None,
            quoted,
        })
    }

    fn sum(&mut self) -> Parsed<Part> {
        let start = self.at;
        let mut open = 0u32;
        loop {
            match self.peek() {
                None => return Err(Wrong::Unfinished("`))` is missing".to_owned())),
                Some('(') => open += 1,
                Some(')') if open > 0 => open -= 1,
                Some(')') if self.ahead(1) == Some(')') => break,
                Some(')') => return Err(unexpected(')')),
                Some(_) => {}
            }
            self.at += 1;
        }
        let chars = self.chars.get(start..self.at).unwrap_or_default();
        let mut inner = Parser {
            chars,
            at: 0,
            depth: self.depth,
        };
        let word = inner.deeper(|parser| parser.quoted(None))?;
        self.at += 2;
        Ok(Part::Sum(word))
    }

    fn braces(&mut self, quoted: bool) -> Parsed<Part> {
        let length = self.peek() == Some('#') && self.ahead(1) != Some('}');
        if length {
            self.at += 1;
        }
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let mut name: String = rest.iter().take_while(|char| is_name(**char)).collect();
        if name.is_empty() {
            match self.peek() {
                None => return Err(Wrong::Unfinished("} is missing".to_owned())),
                Some(char) if "?$#@*!".contains(char) => name.push(char),
                Some(_) => return Err(Wrong::Syntax("bad substitution".to_owned())),
            }
        }
        self.at += name.chars().count();
        let mut instead = length.then_some(Instead::Length);
        if self.peek() != Some('}') {
            let empty = self.take(":");
            let sign = self.next();
            let word = match sign {
                Some('-' | '+') if !length => self.deeper(Self::until_brace)?,
                None => return Err(Wrong::Unfinished("} is missing".to_owned())),
                Some(_) => {
                    return Err(Wrong::Syntax(format!(
                        "bad substitution: of ${{{name}…}} only :-, -, :+ and + are simulated"
                    )));
                }
            };
            instead = Some(if sign == Some('-') {
                Instead::Default { empty, word }
            } else {
                Instead::Other { empty, word }
            });
        }
        if !self.take("}") {
            return Err(Wrong::Unfinished("} is missing".to_owned()));
        }
        Ok(Part::Variable {
            name,
            instead,
            quoted,
        })
    }

    /// A word up to `}`, blanks included.
    fn until_brace(&mut self) -> Parsed<Word> {
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(char) = self.peek() {
            match char {
                '}' => break,
                '$' | '`' => {
                    flush(&mut parts, &mut text);
                    parts.push(self.substitution(true)?);
                }
                '\'' => {
                    self.at += 1;
                    text.push_str(&self.until('\'')?);
                }
                '"' => {
                    self.at += 1;
                    flush(&mut parts, &mut text);
                    parts.extend(self.quoted(Some('"'))?);
                }
                char => {
                    self.at += 1;
                    text.push(char);
                }
            }
        }
        flush(&mut parts, &mut text);
        Ok(parts)
    }
}

fn flush(parts: &mut Word, text: &mut String) {
    if !text.is_empty() {
        parts.push(Part::Text(std::mem::take(text)));
    }
}
