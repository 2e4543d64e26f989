//! Ports by number and by name.

use super::wording::quote;
use crate::{Container, Port};

/// The port that a manifest means. `Err` is upstream's text: `invalid port number: 0`.
pub fn resolve(port: &Port, container: &Container) -> Result<u16, String> {
    let number = match port {
        Port::Number(number) => *number,
        Port::Name(name) => match container.ports.iter().find(|(named, _)| named == name) {
            Some((_, number)) => i64::from(*number),
            // Numbers stored as text, as upstream lets them be.
            None => parse(name)?,
        },
    };
    u16::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

/// Go's `strconv.Atoi`, errors included.
fn parse(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", quote(text.as_bytes()))
    })
}

#[cfg(test)]
mod tests;
