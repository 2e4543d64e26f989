//! Results for people.

use std::fmt;

/// What was measured, and what should have been.
#[derive(Default)]
pub(crate) struct Table(Vec<[String; 4]>);

impl Table {
    /// More is better.
    pub(crate) fn at_least(&mut self, what: &str, value: f64, goal: Option<f64>, unit: &str) {
        let verdict = goal.map(|goal| (format!(">= {}", number(goal)), value >= goal));
        self.add(what, value, verdict, unit);
    }

    /// Less is better.
    pub(crate) fn below(&mut self, what: &str, value: f64, goal: Option<f64>, unit: &str) {
        let verdict = goal.map(|goal| (format!("<= {}", number(goal)), value <= goal));
        self.add(what, value, verdict, unit);
    }

    fn add(&mut self, what: &str, value: f64, verdict: Option<(String, bool)>, unit: &str) {
        let (goal, verdict) = match verdict {
            Some((goal, true)) => (goal, "met"),
            Some((goal, false)) => (goal, "MISSED"),
            None => (String::new(), ""),
        };
        let value = format!("{} {unit}", number(value));
        // Long runs show what they have.
        println!("{what}: {}", value.trim());
        self.0
            .push([what.to_owned(), value.trim().to_owned(), goal, verdict.to_owned()]);
    }
}

/// As precise as it is worth.
fn number(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<72} {:>12}  {:<10} ", "", "measured", "goal")?;
        for [what, value, goal, verdict] in &self.0 {
            writeln!(f, "{what:<72} {value:>12}  {goal:<10} {verdict}")?;
        }
        Ok(())
    }
}
