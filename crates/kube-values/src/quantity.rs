//! `resource.Quantity`: fixed-point numbers with suffixes.

use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;
/// Digits behind the point that are read exactly before a binary suffix; what follows rounds up.
const DIGITS: usize = 18;
/// So much is read of digits before the point there: more than any quantity is capped at.
const MOST_WHOLE: i128 = 100_000_000_000_000_000_000;
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

/// How a quantity was written, and therefore is written again.
#[derive(Clone, Copy, Debug)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// An amount, exact to one billionth; what is finer is rounded up, what is above 2^63 is cut, as upstream
/// does it.
///
/// Two quantities are equal when their amounts are: `1024Mi` is `1Gi`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A text is no quantity. The message is upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAQuantity;

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )
    }
}

impl std::error::Error for NotAQuantity {}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    /// Reads text such as `100m`, `1.5Gi`, `1e3`.
    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(NotAQuantity);
        }
        let (format, twos, tens) = suffix_of(suffix).ok_or(NotAQuantity)?;
        let nanos = if twos == 0 {
            decimal(whole, fraction, tens)
        } else {
            binary(whole, fraction, twos)
        };
        let nanos = nanos.min(i128::from(i64::MAX) * NANO);
        let nanos = if is_negative { -nanos } else { nanos };
        Ok(Self { nanos, format })
    }

    /// An amount in billionths, written in decimal: nanocores.
    pub fn of_nanos(nanos: u64) -> Self {
        Self {
            nanos: nanos.into(),
            format: Format::Decimal,
        }
    }

    /// An amount of whole units, written with powers of 1024: bytes.
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            nanos: i128::from(bytes) * NANO,
            format: Format::Binary,
        }
    }

    /// Billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i128 {
        ceiling(self.nanos, NANO / 1000)
    }

    /// Whole units, rounded up.
    pub fn value(self) -> i128 {
        ceiling(self.nanos, NANO)
    }

    /// The amount as a floating-point number, for figures.
    #[allow(clippy::cast_precision_loss, reason = "figures need no more than 53 bits")]
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Rounds up (away from zero) to thousandths, as upstream does in resource lists.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        let step = NANO / 1000;
        Self {
            nanos: ceiling(self.nanos.abs(), step) * step * self.nanos.signum(),
            ..self
        }
    }

    /// Both amounts together, written as the first, or as the second where the first is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let most = i128::from(i64::MAX) * NANO;
        Self {
            nanos: (self.nanos + other.nanos).clamp(-most, most),
            format,
        }
    }

    /// `true` below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// `true` if zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// `true` if there is a fraction.
    pub fn is_fractional(self) -> bool {
        self.nanos % NANO != 0
    }
}

/// Billionths of a number times ten to the power `tens`, rounded up. A suffix may be small and the number
/// long (`1000000000000000000000n` is `1T`), so the digits to keep are known only with both.
fn decimal(whole: &str, fraction: &str, tens: i32) -> i128 {
    let digits = [whole, fraction].concat();
    let power = i64::from(tens) + 9 - fraction.len() as i64;
    let finer = usize::try_from(-power).unwrap_or(0).min(digits.len());
    let (kept, rest) = digits.split_at(digits.len() - finer);
    let power = u32::try_from(power).unwrap_or(0);
    append(0, kept.bytes())
        .saturating_mul(10_i128.saturating_pow(power))
        .saturating_add(i128::from(rest.bytes().any(|byte| byte != b'0')))
}

/// Billionths of a number times two to the power `twos`, rounded up. Up to the last step it is counted in
/// units of 10^-18, of which a billionth has 10^9.
fn binary(whole: &str, fraction: &str, twos: u32) -> i128 {
    let behind = fraction.bytes().chain(std::iter::repeat(b'0')).take(DIGITS);
    let exact = append(append(0, whole.bytes()).min(MOST_WHOLE), behind);
    let scaled = exact.saturating_mul(1_i128 << twos);
    let is_finer = fraction.bytes().skip(DIGITS).any(|byte| byte != b'0') || scaled % NANO != 0;
    (scaled / NANO).saturating_add(i128::from(is_finer))
}

/// `sum` with these digits behind it.
fn append(sum: i128, digits: impl Iterator<Item = u8>) -> i128 {
    digits.fold(sum, |sum, byte| {
        sum.saturating_mul(10).saturating_add(i128::from(byte - b'0'))
    })
}

/// The canonical text: no fraction, the largest suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.abs();
        if matches!(self.format, Format::Binary) && nanos >= 1024 * NANO {
            let mut value = ceiling(nanos, NANO);
            let mut suffixes = BINARY.iter();
            let mut suffix = suffixes.next().unwrap_or(&"");
            while value % 1024 == 0
                && let Some(next) = suffixes.next()
            {
                value /= 1024;
                suffix = next;
            }
            return write!(f, "{sign}{value}{suffix}");
        }
        let (value, power) = thousands(nanos);
        if matches!(self.format, Format::Exponent) && power != 0 {
            return write!(f, "{sign}{value}e{power}");
        }
        let suffix = DECIMAL.iter().find(|(_, tens)| *tens == power);
        let suffix = suffix.filter(|_| !matches!(self.format, Format::Exponent));
        write!(f, "{sign}{value}{}", suffix.map_or("", |(suffix, _)| suffix))
    }
}

/// A quotient rounded up; `by` is above zero.
pub fn ceiling(amount: i128, by: i128) -> i128 {
    amount.div_euclid(by) + i128::from(amount.rem_euclid(by) != 0)
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

/// What a suffix says: the format, and the powers of two and of ten.
fn suffix_of(suffix: &str) -> Option<(Format, u32, i32)> {
    if let Some((_, tens)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Some((Format::Decimal, 0, *tens));
    }
    let binary = BINARY.iter().zip((0..).step_by(10));
    if let Some((_, twos)) = binary.into_iter().find(|(text, _)| **text == suffix) {
        return Some((Format::Binary, twos, 0));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Format::Exponent, 0, power))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

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
                Quantity::parse(written).unwrap().to_string(),
                canonical,
                "{written}"
            );
        }
    }

    #[test]
    fn quantities_are_read_and_rounded_up() {
        for (text, value, milli) in [
            ("0", 0, 0),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("1Ei", 1 << 60, (1 << 60) * 1000),
            ("1e3", 1000, 1_000_000),
            ("2E-3", 1, 2),
            ("3E", 3_000_000_000_000_000_000, 3_000_000_000_000_000_000_000),
            (".5", 1, 500),
            ("1.", 1, 1000),
            ("+7k", 7000, 7_000_000),
            ("1n", 1, 1),
            ("0.1Ki", 103, 102_400),
            ("1.0000000000000000000000000000000000000001", 2, 1001),
            (
                "99999999999999999999999999999999999999999999",
                i128::from(i64::MAX),
                i128::from(i64::MAX) * 1000,
            ),
            ("1e99", i128::from(i64::MAX), i128::from(i64::MAX) * 1000),
            ("1000000000000000000000n", 10_i128.pow(12), 10_i128.pow(15)),
            ("1000000000000000000000m", 10_i128.pow(18), 10_i128.pow(21)),
            ("3000000000000000000000000000000e-30", 3, 3000),
            ("-1500m", -1, -1500),
        ] {
            let quantity = Quantity::parse(text).expect(text);
            assert_eq!((quantity.value(), quantity.milli()), (value, milli), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_quantity() {
        for text in [
            "", "abc", "1x", "1 Gi", "--1", "1..2", "1GiB", "e3", ".", "-", "1e", "1e1x", "Mi", "1Zi",
        ] {
            assert_eq!(Quantity::parse(text), Err(NotAQuantity), "{text}");
        }
    }

    #[test]
    fn rounds_resource_lists_up_to_milli() {
        let quantity = Quantity::parse("0.0001").unwrap();
        assert_eq!(quantity.round_up_to_milli().to_string(), "1m");
    }

    #[rstest]
    #[case("1024Mi", "1Gi", true)]
    #[case("1000m", "1", true)]
    #[case("0.5", "500m", true)]
    #[case("1e3", "1k", true)]
    #[case("1E3", "1k", true)]
    #[case("1.50", "1500m", true)]
    #[case("+1", "1", true)]
    #[case("-1", "1", false)]
    #[case("1G", "1Gi", false)]
    #[case("110", "111", false)]
    #[case("9999999999999999999999999999999999999999Ei", "1", false)]
    #[case("1e999999999", "1", false)]
    fn amounts_are_compared_not_texts(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!(
            Quantity::parse(one).unwrap() == Quantity::parse(other).unwrap(),
            same
        );
    }

    #[rstest]
    #[case("250m", 0.25)]
    #[case("1.5", 1.5)]
    #[case("128Mi", 134_217_728.0)]
    #[case("1G", 1e9)]
    #[case("1e3", 1e3)]
    fn amounts_are_numbers(#[case] text: &str, #[case] amount: f64) {
        assert_eq!(Quantity::parse(text).ok().map(Quantity::as_f64), Some(amount));
    }

    #[rstest]
    #[case(0, "0", "0")]
    #[case(7, "7n", "7")]
    #[case(12_000, "12u", "12000")]
    #[case(250_000_000, "250m", "250000000")]
    #[case(2_000_000_000, "2", "1953125Ki")]
    #[case(3 << 20, "3145728n", "3Mi")]
    fn usage_is_written_and_read_again(#[case] number: u64, #[case] cores: &str, #[case] bytes: &str) {
        let (cpu, memory) = (Quantity::of_nanos(number), Quantity::of_bytes(number));
        assert_eq!(
            (cpu.to_string().as_str(), memory.to_string().as_str()),
            (cores, bytes)
        );
        assert_eq!(Quantity::parse(cores).unwrap().nanos(), number.into());
        assert_eq!(Quantity::parse(bytes).unwrap().value(), number.into());
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd_to_be_read_or_refused(
            text in ".{0,24}", other in "[0-9.+-]{0,50}[a-zA-Z]{0,2}[0-9-]{0,12}",
        ) {
            for text in [text, other] {
                if let Ok(quantity) = Quantity::parse(&text) {
                    prop_assert!(Quantity::parse(&quantity.to_string()).is_ok());
                }
            }
        }
    }
}
