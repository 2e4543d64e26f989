//! What a script consists of.

/// Commands one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script(pub Vec<Item>);

/// Pipelines joined by `&&` and `||`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Always run.
    pub first: Pipeline,
    /// Run if what went before ended so.
    pub rest: Vec<(Joint, Pipeline)>,
}

/// What joins two pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// `&&`.
    And,
    /// `||`.
    Or,
}

/// Commands whose output is the next one's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// `!`.
    pub negated: bool,
    /// At least one.
    pub commands: Vec<Command>,
}

/// A command with its redirections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is done.
    pub what: What,
    /// Where its streams go, in their order.
    pub redirects: Vec<Redirect>,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A program with arguments, and variables for it alone; or variables alone.
    Simple {
        /// `NAME=value`.
        assignments: Vec<(String, Word)>,
        /// Program and arguments.
        words: Vec<Word>,
    },
    /// `{ … }`.
    Group(Script),
    /// `( … )`.
    Subshell(Script),
    /// `if`, each `elif` likewise.
    If {
        /// Condition and what is done.
        branches: Vec<(Script, Script)>,
        /// `else`.
        otherwise: Option<Script>,
    },
    /// `while` and `until`.
    Loop {
        /// Whether it goes on as long as the condition fails.
        until: bool,
        /// The condition.
        condition: Script,
        /// What is done.
        body: Script,
    },
    /// `for`.
    For {
        /// Variable.
        name: String,
        /// Its values; those of `$@` where nothing is said.
        words: Option<Vec<Word>>,
        /// What is done.
        body: Script,
    },
}

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 0, 1 or 2.
    pub stream: u8,
    /// How.
    pub how: How,
    /// File, or number of a stream.
    pub target: Word,
}

/// How a stream is redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `<`.
    Read,
    /// `>`.
    Write,
    /// `>>`.
    Append,
    /// `>&`.
    Duplicate,
}

/// Parts that stand next to each other.
pub type Word = Vec<Part>;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it stands; `*` and `?` are patterns in it.
    Text(String),
    /// As it stands.
    Quoted(String),
    /// A variable's value.
    Variable {
        /// Name, or one of `?$#@*0`, or digits.
        name: String,
        /// `${NAME:-word}` and the like.
        instead: Option<Instead>,
        /// Whether its value is one word.
        quoted: bool,
    },
    /// Output of commands.
    Output {
        /// What is run.
        script: Script,
        /// Whether it is one word.
        quoted: bool,
    },
    /// Value of `$((…))`.
    Sum(Word),
}

/// What stands for a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// `:-` (`empty`) and `-`: the word, where there is no value.
    Default {
        /// Whether an empty value is none.
        empty: bool,
        /// The word.
        word: Word,
    },
    /// `:+` and `+`: the word, where there is a value.
    Other {
        /// Whether an empty value is none.
        empty: bool,
        /// The word.
        word: Word,
    },
    /// `${#NAME}`: how long it is.
    Length,
}
