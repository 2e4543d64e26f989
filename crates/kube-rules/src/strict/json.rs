//! A JSON parser that keeps what `serde_json` loses: the order of members, duplicate members, the text of
//! numbers; and that fails with the texts of Go's `encoding/json`, which clients see.

use serde_json::{Map, Number, Value};

/// A JSON value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    /// The text of a number.
    Number(String),
    String(String),
    Array(Vec<Node>),
    /// Members in the order of the document, duplicates included.
    Object(Vec<(String, Node)>),
}

/// How deep lists and objects may lie within each other. Go takes 10,000; nobody sends more than this, and
/// the stack of what recurses over them is finite.
pub(crate) const MAX_DEPTH: usize = 500;

impl Node {
    /// What Go's errors call this value.
    pub(crate) fn go_kind(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "bool",
            Node::Number(_) => "number",
            Node::String(_) => "string",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        }
    }

    /// A member; the last one wins.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Object(members) => members
                .iter()
                .rev()
                .find(|(name, _)| name == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text of a string.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Node::String(text) => Some(text),
            _ => None,
        }
    }

    /// The first number in it that no float holds.
    pub(crate) fn out_of_range(&self) -> Option<&str> {
        match self {
            Node::Number(text) => text.parse::<f64>().is_ok_and(f64::is_infinite).then_some(text),
            Node::Array(items) => items.iter().find_map(Self::out_of_range),
            Node::Object(members) => members.iter().find_map(|(_, node)| node.out_of_range()),
            Node::Null | Node::Bool(_) | Node::String(_) => None,
        }
    }

    /// The plain value; of duplicates the last one wins.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(value),
            Node::Number(text) => number(&text),
            Node::String(text) => Value::String(text),
            Node::Array(items) => Value::Array(items.into_iter().map(Node::into_value).collect()),
            Node::Object(members) => Value::Object(
                members
                    .into_iter()
                    .map(|(name, node)| (name, node.into_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(value),
            Value::Number(number) => Node::Number(number.to_string()),
            Value::String(text) => Node::String(text),
            Value::Array(items) => Node::Array(items.into_iter().map(Node::from).collect()),
            Value::Object(members) => Node::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name, Node::from(value)))
                    .collect(),
            ),
        }
    }
}

/// A number as Go would encode it: integral where it can be.
pub(crate) fn number(text: &str) -> Value {
    if let Ok(integer) = text.parse::<i64>() {
        return Value::from(integer);
    }
    let Ok(float) = text.parse::<f64>() else {
        return Value::Null;
    };
    if float.fract() == 0.0 && float.abs() < 9e15 {
        return Value::from(float as i64);
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

/// Parses a document. The error is Go's text.
pub(crate) fn parse(bytes: &[u8]) -> Result<Node, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = Parser {
        text: &text,
        at: 0,
        depth: 0,
    };
    parser.space();
    let node = parser.value()?;
    parser.space();
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.unexpected("after top-level value")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        // At the end Go tries a space, which most places take.
        let takes_space = ["looking", "after object", "after array", "in string literal"];
        let takes_space = takes_space.iter().any(|begin| context.starts_with(begin));
        match self.text[self.at..].chars().next() {
            None if takes_space => "unexpected end of JSON input".to_owned(),
            None => format!("invalid character ' ' {context}"),
            Some('\'') => format!(r"invalid character '\'' {context}"),
            Some('"') => format!("invalid character '\"' {context}"),
            Some(other) if other.is_control() => {
                format!("invalid character '{}' {context}", other.escape_default())
            }
            Some(other) => format!("invalid character '{other}' {context}"),
        }
    }

    fn value(&mut self) -> Result<Node, String> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b't') => self.literal("true", Node::Bool(true)),
            Some(b'f') => self.literal("false", Node::Bool(false)),
            Some(b'n') => self.literal("null", Node::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Result<Node, String>) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.at += 1;
        let node = parse(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn object(&mut self) -> Result<Node, String> {
        let mut members = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let name = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.space();
            members.push((name, self.value()?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Node::Object(members));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<Node, String> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            self.space();
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Node::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, node: Node) -> Result<Node, String> {
        for expected in word.chars() {
            if self.peek() != Some(expected as u8) {
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.at += 1;
        }
        Ok(node)
    }

    fn number(&mut self) -> Result<Node, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(Node::Number(self.text[start..self.at].to_owned()))
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self
                .peek()
                .is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
            {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let Some(byte) = self.peek() else {
            return Err(self.unexpected("in string escape code"));
        };
        let plain = match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, String> {
        let first = self.hex4()?;
        if !(0xD800..0xDC00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}
