//! `resource.Quantity`: fixed-point numbers with suffixes.

use std::cmp::Ordering;

/// Upstream's error for text that is no quantity.
pub(crate) const FORMAT_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// How a quantity was written, and therefore is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity, exact to one billionth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Quantity {
    /// Parses text such as `100m`, `1.5Gi`, `1e3`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let split = text
            .char_indices()
            .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && (*c == '+' || *c == '-'))))
            .map_or(text.len(), |(at, _)| at);
        let (number, suffix) = text.split_at(split);
        let negative = number.starts_with('-');
        let digits = number.trim_start_matches(['+', '-']);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(FORMAT_ERROR);
        }
        let (format, base, power) = suffix_of(suffix).ok_or(FORMAT_ERROR)?;
        let mut mantissa: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa
                .saturating_mul(10)
                .saturating_add(i128::from(digit - b'0'));
        }
        // value = mantissa * base^power / 10^fraction, in billionths, rounded away from zero
        let mut nanos = mantissa;
        let mut divisor: i128 = 1;
        let ten_power = 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX - 9).min(60);
        let (twos, tens) = if base == 2 {
            (power, ten_power)
        } else {
            (0, ten_power + power)
        };
        nanos = nanos.saturating_mul(1_i128.checked_shl(twos.cast_unsigned()).unwrap_or(i128::MAX));
        if tens >= 0 {
            nanos = nanos.saturating_mul(10_i128.saturating_pow(tens.cast_unsigned()));
        } else {
            divisor = 10_i128.saturating_pow(tens.unsigned_abs());
        }
        nanos = nanos / divisor + i128::from(nanos % divisor != 0);
        // Upstream caps at the largest int64.
        nanos = nanos.min(i128::from(i64::MAX) * NANO);
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    /// Rounds up (away from zero) to thousandths, as upstream does in resource lists.
    pub(crate) fn round_up_to_milli(self) -> Self {
        let step = NANO / 1000;
        let rounded = (self.nanos.abs() + step - 1) / step * step;
        Self {
            nanos: rounded * self.nanos.signum(),
            ..self
        }
    }

    /// `true` below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// `true` if zero.
    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// `true` if there is a fraction.
    pub(crate) fn is_fractional(self) -> bool {
        self.nanos % NANO != 0
    }

    /// Order by value.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// The canonical text: no fraction, the largest suffix.
    pub(crate) fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.abs();
        match self.format {
            Format::Binary if nanos >= 1024 * NANO => {
                let mut value = nanos / NANO + i128::from(nanos % NANO != 0);
                let mut suffix = 0;
                while value % 1024 == 0 && suffix + 1 < BINARY.len() {
                    value /= 1024;
                    suffix += 1;
                }
                format!("{sign}{value}{}", BINARY[suffix])
            }
            Format::Exponent => {
                let (value, power) = thousands(nanos);
                if power == 0 {
                    format!("{sign}{value}")
                } else {
                    format!("{sign}{value}e{power}")
                }
            }
            _ => {
                let (value, power) = thousands(nanos);
                let suffix = DECIMAL
                    .iter()
                    .find(|(_, p)| *p == power)
                    .map_or("", |(suffix, _)| suffix);
                format!("{sign}{value}{suffix}")
            }
        }
    }
}

/// Splits off powers of a thousand, up to exa.
fn thousands(nanos: i128) -> (i128, i32) {
    let (mut value, mut power) = (nanos, -9);
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    (value, power)
}

/// Format, base and power of a suffix.
fn suffix_of(suffix: &str) -> Option<(Format, u8, i32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Some((Format::Decimal, 10, *power));
    }
    if let Some(index) = BINARY.iter().position(|text| *text == suffix) {
        return Some((Format::Binary, 2, i32::try_from(index).ok()? * 10));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = exponent.parse().ok()?;
    (-60..=60)
        .contains(&power)
        .then_some((Format::Exponent, 10, power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_has_no_fraction_and_the_largest_suffix() {
        for (written, canonical) in [
            ("1", "1"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("100Mi", "100Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("2048Ki", "2Mi"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1e3", "1e3"),
            ("100e1", "1e3"),
            ("12e6", "12e6"),
            ("-1", "-1"),
            ("-0.5", "-500m"),
            ("+2", "2"),
            ("0.1Ki", "102400m"),
            ("1.", "1"),
            (".5", "500m"),
            ("0.0000000001", "1n"),
            ("5G", "5G"),
            ("1000Ki", "1000Ki"),
            ("100000000000000000000", "9223372036854775807"),
            ("1536", "1536"),
            ("128974848", "128974848"),
        ] {
            assert_eq!(
                Quantity::parse(written).unwrap().canonical(),
                canonical,
                "{written}"
            );
        }
    }

    #[test]
    fn rejects_what_is_no_quantity() {
        for text in ["", "abc", "1x", "1 Gi", "--1", "1..2", "1GiB", "e3"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rounds_resource_lists_up_to_milli() {
        assert_eq!(
            Quantity::parse("0.0001").unwrap().round_up_to_milli().canonical(),
            "1m"
        );
    }
}
