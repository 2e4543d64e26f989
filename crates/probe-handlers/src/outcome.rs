//! What one attempt found.

use serde::{Deserialize, Serialize};

/// What a handler says of one attempt. Upstream's four results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// What is probed works.
    Success,
    /// It works, but somebody should look at it. Counts as a success.
    Warning,
    /// It does not work.
    Failure,
    /// The attempt says nothing.
    Unknown,
}

/// One attempt's end: upstream's triple of result, output and error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was found.
    pub verdict: Verdict,
    /// What the other side said, or why it failed; at most [`Outcome::OUTPUT`] bytes.
    pub output: String,
    /// Why there is no result that could count. Repeated at once, then discarded, whatever the verdict.
    pub error: Option<String>,
}

impl Outcome {
    /// Most that is kept of an answer, in bytes (upstream's `maxRespBodyLength` and `maxReadLength`).
    pub const OUTPUT: usize = 10 << 10;

    /// The end of an attempt that found that it works.
    pub fn success(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Success, output)
    }

    /// It works, but.
    pub fn warning(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Warning, output)
    }

    /// It does not work.
    pub fn failure(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Failure, output)
    }

    /// The attempt itself went wrong.
    pub fn error(verdict: Verdict, error: impl Into<String>) -> Self {
        Self {
            verdict,
            output: String::new(),
            error: Some(error.into()),
        }
    }

    fn plain(verdict: Verdict, output: impl Into<String>) -> Self {
        Self {
            verdict,
            output: output.into(),
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_says_one_thing() {
        let ends = [
            (Outcome::success("a"), Verdict::Success, "a", None),
            (Outcome::warning("b"), Verdict::Warning, "b", None),
            (Outcome::failure("c"), Verdict::Failure, "c", None),
            (
                Outcome::error(Verdict::Unknown, "d"),
                Verdict::Unknown,
                "",
                Some("d"),
            ),
        ];
        for (outcome, verdict, output, error) in ends {
            assert_eq!(
                (outcome.verdict, &*outcome.output, outcome.error.as_deref()),
                (verdict, output, error)
            );
        }
    }
}
