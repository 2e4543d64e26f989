//! Kubernetes' quantities as far as figures need them.

/// Reads `250m`, `1.5`, `128Mi`, `1G`, `1e3` as a number of base units; `None` if it is none, or not a plausible amount.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let end = text
        .char_indices()
        .find(|&(_, c)| !c.is_ascii_digit() && c != '.')
        .map_or(text.len(), |(at, _)| at);
    let (number, suffix) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "Pi" => 1_125_899_906_842_624.0,
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            10f64.powi(power)
        }
    };
    let amount = number * factor;
    (amount.is_finite() && amount <= 1e18).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("250m", Some(0.25))]
    #[case("1.5", Some(1.5))]
    #[case("128Mi", Some(134_217_728.0))]
    #[case("1G", Some(1e9))]
    #[case("1e3", Some(1e3))]
    #[case("", None)]
    #[case("Mi", None)]
    #[case("-1", None)]
    #[case("1Zi", None)]
    #[case("1e400", None)]
    fn quantities_are_read(#[case] text: &str, #[case] amount: Option<f64>) {
        assert_eq!(parse(text), amount);
    }
}
