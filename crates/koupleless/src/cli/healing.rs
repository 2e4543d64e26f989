//! Flags of `--heal`: when a base is overloaded, how long the steps may take, and how many bases are healed
//! at a time.

use crate::core::budget::Limit;
use crate::core::heal::{Measure, Settings};
use clap::value_parser;
use evenkeel_net::duration;
use std::time::Duration;

/// When and how bases are healed. Defaults are those of [`Settings`] and `Limit`.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_field_names,
    reason = "clap makes the names of flags from them"
)]
pub struct HealingArgs {
    /// koupleless: share of the metaspace's limit in percent from which on a base is overloaded.
    #[arg(long, value_name = "PERCENT", default_value_t = Settings::default().high, value_parser = value_parser!(u8).range(1..=100))]
    pub heal_high_threshold: u8,
    /// koupleless: share in percent below which it is well again; less than --heal-high-threshold.
    #[arg(long, value_name = "PERCENT", default_value_t = Settings::default().low, value_parser = value_parser!(u8).range(1..=100))]
    pub heal_low_threshold: u8,
    /// koupleless: so many readings in a row decide, of which there is one each 10 s.
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().readings, value_parser = value_parser!(u32).range(1..=1000))]
    pub heal_readings: u32,
    /// koupleless: what is held against the limit: `used`, what classes take, or `committed`, what the JVM
    /// took for them.
    #[arg(long, value_name = "FIGURE", default_value = "used", value_parser = measure)]
    pub heal_measure: Measure,
    /// koupleless: how many bases are healed at a time, over all replicas: a number, or a share of all bases
    /// as in `25%`.
    #[arg(long, value_name = "LIMIT", default_value_t = Limit::default())]
    pub heal_max_unavailable: Limit,
    /// koupleless: for how long pods may take to leave a base; then the taint is taken off again.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub heal_drain_timeout: Duration,
    /// koupleless: for how long an empty base may show that its metaspace is back, before its pod is evicted.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub heal_settle: Duration,
    /// koupleless: for how long a base is left alone after it was healed.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub heal_cooldown: Duration,
}

impl HealingArgs {
    /// What they say, unjudged.
    pub fn settings(&self) -> Settings {
        Settings {
            high: self.heal_high_threshold,
            low: self.heal_low_threshold,
            readings: self.heal_readings,
            measure: self.heal_measure,
            drain: self.heal_drain_timeout,
            settle: self.heal_settle,
            pause: self.heal_cooldown,
            ..Settings::default()
        }
    }
}

fn measure(text: &str) -> Result<Measure, String> {
    match text {
        "used" => Ok(Measure::Used),
        "committed" => Ok(Measure::Committed),
        _ => Err("possible are used and committed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::KouplelessArgs;
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        koupleless: KouplelessArgs,
    }

    fn read(line: &str) -> Result<HealingArgs, String> {
        let words = std::iter::once("evenkeel").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(cli.koupleless.healing)
    }

    #[test]
    fn without_flags_the_documented_defaults_count() {
        let args = read("--heal").unwrap();
        assert_eq!(args.settings(), Settings::default());
        assert_eq!(args.heal_max_unavailable, Limit::default());
    }

    #[test]
    fn each_flag_has_its_effect() {
        let line = "--heal --heal-high-threshold 90 --heal-low-threshold 60 --heal-readings 5 --heal-measure committed \
            --heal-max-unavailable 25% --heal-drain-timeout 1m --heal-settle 10s --heal-cooldown 0";
        let args = read(line).unwrap();
        let expected = Settings {
            high: 90,
            low: 60,
            readings: 5,
            measure: Measure::Committed,
            drain: Duration::from_secs(60),
            settle: Duration::from_secs(10),
            pause: Duration::ZERO,
            ..Settings::default()
        };
        assert_eq!(args.settings(), expected);
        assert_eq!(args.heal_max_unavailable, Limit::Percent(25));
    }

    #[rstest]
    #[case("--heal --heal-high-threshold 101", "--heal-high-threshold")]
    #[case("--heal --heal-low-threshold 0", "--heal-low-threshold")]
    #[case("--heal --heal-readings 0", "--heal-readings")]
    #[case("--heal --heal-measure max", "used and committed")]
    #[case("--heal --heal-max-unavailable 0", "1 or more")]
    #[case("--heal --heal-max-unavailable 101%", "1% to 100%")]
    #[case("--heal --heal-settle soon", "--heal-settle")]
    fn what_cannot_work_is_refused_by_the_name_of_its_flag(#[case] line: &str, #[case] words: &str) {
        let error = read(line).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
