//! What a probe finds as time goes by.

use std::time::Duration;

/// Answers one after the other, counted from the container's start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Script {
    /// Each with the time for which it holds; at least one, and none of them empty but the last.
    steps: Vec<(Answer, Duration)>,
    /// Whether it begins anew after its last step, which then has a duration; else that one holds for ever.
    repeats: bool,
}

/// What a probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Good,
    /// It says that it does not.
    Bad,
    Broken,
    /// Nothing until the probe's timeout.
    Silent,
}

impl Script {
    /// Reads `not-ready 5s, ready 10s, not-ready`: the last step holds for ever, or the script repeats where
    /// it has a duration too.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut repeats = false;
        let parts: Vec<&str> = text.split(',').collect();
        for (index, part) in parts.iter().enumerate() {
            let mut words = part.split_whitespace();
            let word = words
                .next()
                .ok_or("a step is empty: write `ready 5s, not-ready`")?;
            let answer = match word {
                "ready" | "ok" => Answer::Good,
                "not-ready" | "fail" => Answer::Bad,
                "broken" => Answer::Broken,
                "silent" => Answer::Silent,
                _ => {
                    return Err(format!(
                        "{word:?} is no answer: `ready`, `not-ready`, `ok`, `fail`, `broken` or `silent`"
                    ));
                }
            };
            let last = index + 1 == parts.len();
            let lasts = match words.next() {
                Some(span) => super::amount::span(span)
                    .filter(|span| !span.is_zero())
                    .ok_or_else(|| format!("{span:?} is no span of time such as `5s`"))?,
                None if last => Duration::ZERO,
                None => {
                    return Err(format!(
                        "{word:?} needs a duration: only the last step holds for ever"
                    ));
                }
            };
            if let Some(word) = words.next() {
                return Err(format!("{word:?} is too much: steps are divided by commas"));
            }
            repeats = last && !lasts.is_zero();
            steps.push((answer, lasts));
        }
        Ok(Self { steps, repeats })
    }

    /// What is found so long after the start.
    pub(crate) fn at(&self, since: Duration) -> Answer {
        let mut left = since;
        if self.repeats {
            let period: Duration = self.steps.iter().map(|(_, lasts)| *lasts).sum();
            let into = since.as_nanos() % period.as_nanos().max(1);
            left = Duration::from_nanos(u64::try_from(into).unwrap_or(0));
        }
        for (answer, lasts) in &self.steps {
            if !self.repeats && lasts.is_zero() || left < *lasts {
                return *answer;
            }
            left -= *lasts;
        }
        self.steps.last().map_or(Answer::Good, |(answer, _)| *answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, Answer::Bad)]
    #[case(4_999, Answer::Bad)]
    #[case(5_000, Answer::Good)]
    #[case(14_999, Answer::Good)]
    #[case(15_000, Answer::Bad)]
    #[case(1_000_000_000, Answer::Bad)]
    fn the_last_step_holds_for_ever(#[case] milliseconds: u64, #[case] answer: Answer) {
        let script = Script::parse("not-ready 5s, ready 10s, not-ready").unwrap();
        assert_eq!(script.at(Duration::from_millis(milliseconds)), answer);
    }

    #[rstest]
    #[case(0, Answer::Good)]
    #[case(1, Answer::Broken)]
    #[case(3, Answer::Good)]
    #[case(4, Answer::Broken)]
    #[case(3_000_001, Answer::Broken)]
    fn a_script_whose_last_step_ends_begins_anew(#[case] seconds: u64, #[case] answer: Answer) {
        let script = Script::parse("ok 1s,broken 2s").unwrap();
        assert_eq!(script.at(Duration::from_secs(seconds)), answer);
    }

    #[rstest]
    #[case("", "a step is empty")]
    #[case("ready, not-ready", "\"ready\" needs a duration")]
    #[case("maybe", "\"maybe\" is no answer")]
    #[case("ready soon, fail", "\"soon\" is no span")]
    #[case("ready 0, fail", "\"0\" is no span")]
    #[case("ready 5s fail", "\"fail\" is too much")]
    fn what_is_wrong_is_named(#[case] text: &str, #[case] said: &str) {
        let error = Script::parse(text).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}
