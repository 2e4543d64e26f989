//! What a program says of its own build.

/// The version with what is known of the build, in one line, for `--version`. `cargo xtask image` sets the
/// variables. Cargo looks at them when it compiles the crate that calls this, which should be the program
/// itself, so that another commit compiles nothing else anew.
///
/// ```
/// assert!(evenkeel_net::version!().starts_with(env!("CARGO_PKG_VERSION")));
/// ```
#[macro_export]
macro_rules! version {
    () => {{
        static LINE: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
            $crate::version::line(
                env!("CARGO_PKG_VERSION"),
                [
                    ("commit", option_env!("EVENKEEL_COMMIT")),
                    ("target", option_env!("EVENKEEL_TARGET")),
                    ("profile", option_env!("EVENKEEL_PROFILE")),
                ],
            )
        });
        LINE.as_str()
    }};
}

/// The words of [`version!`].
#[doc(hidden)]
pub fn line(version: &str, build: [(&str, Option<&str>); 3]) -> String {
    let known = build
        .into_iter()
        .filter_map(|(name, value)| value.filter(|value| !value.is_empty()).map(|value| (name, value)));
    let known: Vec<String> = known.map(|(name, value)| format!("{name} {value}")).collect();
    if known.is_empty() {
        version.to_owned()
    } else {
        format!("{version} ({})", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn what_is_not_known_of_a_build_is_left_out() {
        let build = |commit, profile| [("commit", commit), ("target", None), ("profile", profile)];
        assert_eq!(line("1.2.3", build(None, None)), "1.2.3");
        assert_eq!(
            line("1.2.3", build(Some(""), Some("edge"))),
            "1.2.3 (profile edge)"
        );
        assert_eq!(
            line("1.2.3", build(Some("abc"), Some("edge"))),
            "1.2.3 (commit abc, profile edge)"
        );
    }
}
