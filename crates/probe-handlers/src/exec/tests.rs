//! Rows of upstream's `pkg/probe/exec/exec_test.go`, of its exec wrapper and of its expansion.

use super::{Ran, TooLong, expand, outcome, text, timed_out};
use crate::{Outcome, Verdict};
use std::time::Duration;

fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

#[test]
fn the_end_of_a_command_means_what_it_means_to_a_kubelet() {
    let exited = |code: i32, output: &str| Ran::Exited {
        code,
        output: output.into(),
    };
    let kib = "logs-123".repeat(128);
    let rows = [
        (exited(0, ""), Outcome::success("")),
        (exited(0, "OK"), Outcome::success("OK")),
        (exited(0, &kib.repeat(11)), Outcome::success(kib.repeat(10))),
        (
            Ran::Failed {
                error: "test error".to_owned(),
            },
            Outcome::error(Verdict::Unknown, "test error"),
        ),
        (exited(1, "Fail"), Outcome::failure("Fail")),
        (exited(137, ""), Outcome::failure("")),
        (
            timed_out(&strings(["testcmd"]), Duration::from_secs(1)),
            Outcome::failure("command timed out: \"testcmd\" timed out after 1s"),
        ),
        (
            timed_out(
                &strings(["sh", "-c", "echo \"a\"; sleep 9"]),
                Duration::from_millis(1_500),
            ),
            Outcome::failure("command timed out: \"sh -c echo \\\"a\\\"; sleep 9\" timed out after 1.5s"),
        ),
    ];
    for (ran, expected) in rows {
        assert_eq!(outcome(ran), expected);
    }
}

#[test]
fn output_that_is_no_text_is_made_text_within_the_cap() {
    for (bytes, expected) in [
        (b"a\xffb".to_vec(), "a\u{fffd}b".to_owned()),
        (b"caf\xc3".to_vec(), "caf\u{fffd}".to_owned()),
        (vec![0xff; 20_000], "\u{fffd}".repeat(Outcome::OUTPUT / 3)),
        ("é".repeat(20_000).into_bytes(), "é".repeat(Outcome::OUTPUT / 2)),
        // One byte shifted, the cap cuts a character in two.
        (
            format!("x{}", "é".repeat(20_000)).into_bytes(),
            format!("x{}", "é".repeat(Outcome::OUTPUT / 2 - 1)),
        ),
        (
            "x".repeat(Outcome::OUTPUT).into_bytes(),
            "x".repeat(Outcome::OUTPUT),
        ),
    ] {
        let text = text(&bytes);
        assert!(text.len() <= Outcome::OUTPUT);
        assert!(
            text == expected,
            "{} bytes instead of {}",
            text.len(),
            expected.len()
        );
    }
}

#[test]
fn a_valid_character_after_replaced_ones_never_passes_the_cap() {
    for bad in 0..40 {
        let mut bytes = vec![0xff; bad];
        bytes.extend("y".repeat(Outcome::OUTPUT).bytes());
        let text = text(&bytes);
        assert_eq!(text.len(), Outcome::OUTPUT, "{bad}");
        assert!(text.ends_with('y'), "{bad}");
    }
}

#[test]
fn references_are_replaced_as_kubernetes_does() {
    let env: Vec<(String, String)> = [
        ("VAR_A", "A"),
        ("VAR_B", "first"),
        ("VAR_B", "B"),
        ("VAR_REF", "$(VAR_A)"),
        ("VAR_EMPTY", ""),
        ("VAR A", "spaced"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    for (argument, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)$(VAR_B)", "AB"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("$(VAR A)", "spaced"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$()", "$()"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$$", "$"),
        ("$", "$"),
        ("a$", "a$"),
        ("$VAR_A", "$VAR_A"),
        ("${VAR_A}", "${VAR_A}"),
        ("$(VAR_A", "$(VAR_A"),
        ("$(VAR_$(VAR_A))", "$(VAR_$(VAR_A))"),
        ("$é$(VAR_A)", "$éA"),
        ("$( $$(VAR_A)", "$( $$(VAR_A)"),
        ("\n$(VAR_A)\n", "\nA\n"),
    ] {
        assert_eq!(
            expand(&strings([argument]), &env).unwrap(),
            [expected],
            "{argument:?}"
        );
    }
    assert_eq!(expand(&[], &env).unwrap(), Vec::<String>::new());
    // Without an environment all stay, but for the escapes.
    assert_eq!(
        expand(&strings(["$(A) $(B) $$(C)"]), &[]).unwrap(),
        ["$(A) $(B) $(C)"]
    );
}

#[test]
fn references_that_multiply_are_refused_before_memory_is_full() {
    // Ten of the one before, thirty times: 10^30 bytes.
    let doubling: Vec<(String, String)> = (0..30)
        .map(|number| {
            let value = format!("$(V{})", number - 1).repeat(10);
            (
                format!("V{number}"),
                if number == 0 {
                    "0123456789".to_owned()
                } else {
                    value
                },
            )
        })
        .collect();
    assert_eq!(super::expand::environment(&doubling), Err(TooLong));
    let long = [("A".to_owned(), "x".repeat(1 << 20))];
    assert_eq!(
        expand(&strings(["$(A)".repeat(100_000).as_str()]), &long),
        Err(TooLong)
    );
    let many = vec!["$(A)".to_owned(); 100_000];
    assert_eq!(expand(&many, &long), Err(TooLong));
    let four = vec!["$(A)".to_owned(); 4];
    assert_eq!(expand(&four, &long).unwrap(), vec!["x".repeat(1 << 20); 4]);
}

/// Searching to the end for each would take minutes.
#[test]
fn a_text_of_open_references_is_read_once() {
    let begun = std::time::Instant::now();
    let open = "$(".repeat(1 << 20);
    assert_eq!(
        expand(std::slice::from_ref(&open), &[]).unwrap(),
        std::slice::from_ref(&open)
    );
    let closed_before = format!(")$(A){open}");
    assert_eq!(
        expand(std::slice::from_ref(&closed_before), &[]).unwrap(),
        std::slice::from_ref(&closed_before)
    );
    assert!(begun.elapsed() < std::time::Duration::from_secs(20));
}

proptest::proptest! {
    #[test]
    fn any_bytes_become_text_within_the_cap(seed: Vec<u8>, times in 1_usize..400) {
        let bytes = seed.repeat(times);
        let text = text(&bytes);
        proptest::prop_assert!(text.len() <= Outcome::OUTPUT);
        let whole = String::from_utf8_lossy(&bytes);
        if whole.len() <= Outcome::OUTPUT && bytes.len() < Outcome::OUTPUT {
            proptest::prop_assert_eq!(text, whole);
        } else {
            proptest::prop_assert!(whole.starts_with(&text));
        }
    }

    #[test]
    fn expansion_takes_any_text(argument: String, name: String, value: String) {
        let env = [(name, value)];
        expand(std::slice::from_ref(&argument), &env).unwrap();
        proptest::prop_assert_eq!(expand(&[argument.replace('$', "")], &env).unwrap(), [argument.replace('$', "")]);
    }
}
