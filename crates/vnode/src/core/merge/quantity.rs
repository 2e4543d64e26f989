//! Whether two quantities are one amount: the API server rewrites `1024Mi` to `1Gi`.

/// Whether both say the same. What cannot be read is the same as its own text alone.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || matches!((nanos(one), nanos(other)), (Some(one), Some(other)) if one == other)
}

/// In billionths; `None` for what is no quantity, is finer, or does not fit.
fn nanos(text: &str) -> Option<i128> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa: i128 = 0;
    for digit in whole.chars().chain(fraction.chars()) {
        mantissa = mantissa
            .checked_mul(10)?
            .checked_add(i128::from(digit.to_digit(10)?))?;
    }
    let exponent = 9_i32.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let (factor, power): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let mut amount = mantissa.checked_mul(factor)?;
    let exponent = exponent.checked_add(power)?;
    let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        amount = amount.checked_mul(scale)?;
    } else if amount % scale == 0 {
        amount /= scale;
    } else {
        return None;
    }
    Some(if is_negative { -amount } else { amount })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

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
    #[case("a lot", "a lot", true)]
    #[case("a lot", "1", false)]
    #[case("", "0", false)]
    #[case(".", "0", false)]
    #[case("9999999999999999999999999999999999999999Ei", "1", false)]
    #[case("1e999999999", "1", false)]
    fn amounts_are_compared_not_texts(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!(is_same(one, other), same);
    }

    proptest! {
        #[test]
        fn any_text_is_the_same_as_itself(text in ".{0,24}", other in "[0-9.+-]{0,50}[a-zA-Z]{0,2}[0-9-]{0,12}") {
            prop_assert!(is_same(&text, &text));
            let _ = nanos(&other);
        }
    }
}
