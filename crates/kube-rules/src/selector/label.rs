//! Label selectors: the text form of query parameters and the object form in specs.

use crate::gofmt::go_quote;
use crate::names;
use crate::status::{ApiError, ApiResult};
use serde_json::Value;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// The label has one of the values (`=`, `==`, `in`).
    In,
    /// The label is absent or has another value (`!=`, `notin`).
    NotIn,
    /// The label is present (the key alone).
    Exists,
    /// The label is absent (`!` and the key).
    DoesNotExist,
    /// The label is a number above the value (`>`).
    GreaterThan,
    /// The label is a number below the value (`<`).
    LessThan,
}

/// One comparison of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// A parsed label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl LabelSelector {
    /// Parses the parameter `labelSelector`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        let tokens = lex(text);
        let mut parser = Parser { tokens, at: 0 };
        let requirements = parser.selector().map_err(ApiError::bad_request)?;
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// From a `LabelSelector` object; null selects nothing, `{}` everything.
    pub fn from_object(selector: &Value) -> Result<Self, String> {
        if selector.is_null() {
            return Ok(Self {
                requirements: Vec::new(),
                nothing: true,
            });
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(requirement(key, Operator::In, values)?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!(
                        "{} is not a valid label selector operator",
                        go_quote(other)
                    ));
                }
            };
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(requirement(
                expression["key"].as_str().unwrap_or_default(),
                operator,
                values,
            )?);
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether a label map (`metadata.labels`, or null) is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(labels))
    }

    /// Whether an object's `metadata.labels` are selected.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(&object["metadata"]["labels"])
    }
}

/// As text that `parse` reads, in the order of keys.
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted: Vec<_> = self.requirements.iter().collect();
        sorted.sort_by(|left, right| left.key.cmp(&right.key));
        for (number, requirement) in sorted.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            let (key, values) = (&requirement.key, &requirement.values);
            match requirement.operator {
                Operator::In if values.len() == 1 => write!(f, "{comma}{key}={}", values[0])?,
                Operator::In => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Operator::NotIn if values.len() == 1 => write!(f, "{comma}{key}!={}", values[0])?,
                Operator::NotIn => write!(f, "{comma}{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{comma}{key}")?,
                Operator::DoesNotExist => write!(f, "{comma}!{key}")?,
                Operator::GreaterThan => write!(f, "{comma}{key}>{}", values.join(","))?,
                Operator::LessThan => write!(f, "{comma}{key}<{}", values.join(","))?,
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn matches(&self, labels: &Value) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let integers =
            || -> Option<(i64, i64)> { Some((value?.parse().ok()?, self.values.first()?.parse().ok()?)) };
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => integers().is_some_and(|(value, bound)| value > bound),
            Operator::LessThan => integers().is_some_and(|(value, bound)| value < bound),
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let errors = names::qualified(key);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "<nil>: Invalid value: {}: {}",
            go_quote(key),
            errors.join("; ")
        ))
    }
}

fn requirement(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, String> {
    check_key(key)?;
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            return Err(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                    .to_owned(),
            );
        }
        Operator::GreaterThan | Operator::LessThan => {
            for (index, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    return Err(format!(
                        "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        go_quote(value)
                    ));
                }
            }
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            return Err(format!(
                "values: Invalid value: [{}]: values set must be empty for exists and does not exist",
                values
                    .iter()
                    .map(|value| go_quote(value))
                    .collect::<Vec<_>>()
                    .join(",")
            ));
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let errors = names::label_value(value);
        if !errors.is_empty() {
            return Err(format!(
                "values[{index}][{key}]: Invalid value: {}: {}",
                go_quote(value),
                errors.join("; ")
            ));
        }
    }
    Ok(Requirement {
        key: key.to_owned(),
        operator,
        values,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    Symbol(&'static str),
    Word(String),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::End => "",
            Token::Symbol(text) => text,
            Token::Word(text) => text,
        }
    }
}

fn lex(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "<", ">", "(", ")", ","];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!<>(),".contains(c))
                .unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let parsed = self.requirement();
                    requirements
                        .push(parsed.map_err(|error| format!("unable to parse requirement: {error}"))?);
                    match self.peek() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            self.next();
                            let after = self.peek();
                            if !matches!(after, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    after.text()
                                ));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other @ Token::Symbol(_) => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        check_key(&key)?;
        if negated {
            return requirement(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return requirement(&key, Operator::Exists, Vec::new());
        }
        let token = self.next();
        match token {
            Token::Symbol("=" | "==") => requirement(&key, Operator::In, vec![self.exact()?]),
            Token::Symbol("!=") => requirement(&key, Operator::NotIn, vec![self.exact()?]),
            Token::Symbol(">") => requirement(&key, Operator::GreaterThan, vec![self.exact()?]),
            Token::Symbol("<") => requirement(&key, Operator::LessThan, vec![self.exact()?]),
            Token::Word(word) if word == "in" => requirement(&key, Operator::In, self.values()?),
            Token::Word(word) if word == "notin" => requirement(&key, Operator::NotIn, self.values()?),
            other => Err(format!("found '{}', expected: {OPERATORS}", other.text())),
        }
    }

    fn exact(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        match self.peek() {
            Token::Symbol(")") => {
                // Nothing between the parentheses is the empty value.
                self.next();
                return Ok(vec![String::new()]);
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => {
                return Err(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.text()
                ));
            }
        }
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word);
                    match self.next() {
                        Token::Symbol(",") if self.peek() == Token::Symbol(")") => values.push(String::new()),
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => values.push(String::new()),
                Token::Symbol(")") => break,
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
