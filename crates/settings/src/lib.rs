//! Settings of a program from several sources.
//!
//! A setting is an argument of a clap struct, whoever gives it: its parser, range and default stand there and
//! nowhere else. [`Configured`] lets flags, variables and a file give them, in this order:
//!
//! ```
//! use clap::{Args, Parser};
//! use evenkeel_settings::{Configured, Settings};
//!
//! #[derive(Clone, Debug, Args)]
//! struct Pump {
//!     /// Litres per minute.
//!     #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
//!     flow_rate: u16,
//! }
//!
//! impl Settings for Pump {
//!     const KIND: &str = "PumpConfiguration";
//! }
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     pump: Configured<Pump>,
//! }
//!
//! // The same: EVENKEEL_FLOW_RATE=7, or a file with `flowRate: 7`.
//! let cli = Cli::try_parse_from(["pump", "--flow-rate", "7"])?;
//! let (pump, _) = cli.pump.read_with(std::iter::empty())?;
//! assert_eq!(pump.flow_rate, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`layers`] | which source wins, and what each setting takes |
//! | [`mod@file`] | one YAML document whose fields are the flags in camelCase |
//! | `names` | names that are like one that does not exist |
//! | `configured` | a program's own sources, and the file of a running program |

mod configured;
pub mod file;
pub mod layers;
mod names;

pub use configured::{Change, Changes, Configured, Settings, SettingsError, Source};
