//! `resource.Quantity`, as far as the downward API needs it: text to a number.

const NANO: i128 = 1_000_000_000;
/// Digits behind the point that are read exactly; what follows rounds up.
const DIGITS: usize = 18;
/// So much is read of digits before the point: more than any quantity is capped at.
const MOST_WHOLE: i128 = 100_000_000_000_000_000_000;

/// An amount, exact to one billionth; what is finer is rounded up, what is above 2^63 is cut, as upstream does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
}

impl Quantity {
    /// Reads text such as `100m`, `1.5Gi`, `1e3`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (twos, tens) = scale(suffix)?;
        let digit = |byte: u8| i128::from(byte - b'0');
        let whole = whole
            .bytes()
            .fold(0, |sum: i128, byte| (sum * 10 + digit(byte)).min(MOST_WHOLE));
        let exact = fraction
            .bytes()
            .chain(std::iter::repeat(b'0'))
            .take(DIGITS)
            .fold(whole, |sum, byte| {
                sum.saturating_mul(10).saturating_add(digit(byte))
            });
        let finer = fraction.bytes().skip(DIGITS).any(|byte| byte != b'0');
        // In units of 10^-18 so far; wanted are billionths.
        let tens = tens - 9;
        let scaled = exact.saturating_mul(1_i128 << twos);
        let power = 10_i128.saturating_pow(tens.unsigned_abs());
        let (nanos, rest) = if tens >= 0 {
            (scaled.saturating_mul(power), 0)
        } else {
            (scaled / power, scaled % power)
        };
        let nanos = nanos.saturating_add(i128::from(finer || rest != 0));
        let nanos = nanos.min(i128::from(i64::MAX) * NANO);
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
        })
    }

    /// Whole units, rounded up.
    pub(crate) fn value(self) -> i128 {
        ceiling(self.nanos, NANO)
    }

    /// Thousandths, rounded up.
    pub(crate) fn milli(self) -> i128 {
        ceiling(self.nanos, NANO / 1000)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

/// A quotient rounded up; `by` is above zero.
pub(crate) fn ceiling(amount: i128, by: i128) -> i128 {
    amount.div_euclid(by) + i128::from(amount.rem_euclid(by) != 0)
}

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, twos)) = binary
        .iter()
        .zip((0..).step_by(10))
        .find(|(text, _)| **text == suffix)
    {
        return Some((twos, 0));
    }
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some((_, tens)) = decimal
        .iter()
        .zip((-9..).step_by(3))
        .find(|(text, _)| **text == suffix)
    {
        return Some((0, tens));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((0, power.clamp(-60, 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("-1500m", -1, -1500),
        ] {
            let quantity = Quantity::parse(text).expect(text);
            assert_eq!((quantity.value(), quantity.milli()), (value, milli), "{text}");
        }
        for text in [
            "", "abc", "1x", "1 Gi", "--1", "1..2", "1GiB", "e3", ".", "-", "1e", "1e1x",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
