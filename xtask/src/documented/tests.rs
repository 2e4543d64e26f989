use super::*;

const SOURCE: &str = "\
fn helper() {}

#[test]
fn plain() {}

/// A table.
#[rstest]
#[case::one(1)]
#[case::two(
    2,
)]
#[tokio::test]
async fn cases(#[case] number: u32) {}

#[cfg(test)]
mod tests {
    #[test]
    fn within() {}

    fn no_test() {}
}
";

/// A checkout with the crates `own` and `other`.
fn checkout() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("own/Cargo.toml", ""),
        (
            "own/src/lib.rs",
            "#[cfg(test)]\nmod tests {\n    #[test]\n    fn of_the_root() {}\n}\n",
        ),
        ("own/src/core/part.rs", SOURCE),
        ("own/src/core/folder/mod.rs", SOURCE),
        ("own/tests/it/main.rs", SOURCE),
        ("own/tests/it/flow.rs", SOURCE),
        ("other/Cargo.toml", ""),
        ("other/src/part.rs", SOURCE),
        ("no_crate/src/part.rs", SOURCE),
    ] {
        let path = root.path().join("crates").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn page(numbers: &'static [Numbers]) -> Page {
    Page {
        path: "docs/page.md",
        home: "own",
        least_tests: 0,
        least_rows: 0,
        numbers,
    }
}

fn problems(page: &Page, text: &str) -> Vec<String> {
    check(checkout().path(), page, text)
}

#[test]
fn tests_are_found_by_their_paths() {
    let root = checkout();
    for there in [
        "core::part::plain",
        "core::part::cases",
        "core::part::cases::one",
        "core::part::cases::two",
        "core::part::tests::within",
        "core::folder::tests::within",
        "tests::of_the_root",
        "it::plain",
        "it::flow::cases::one",
        "other::part::plain",
        "own::it::flow::plain",
    ] {
        assert!(tests_by_name::exists(root.path(), "own", there), "{there}");
    }
    for nowhere in [
        "core::part::no_such_test",
        "core::part::plain::no_such_case",
        "core::part::cases::three",
        "core::part::helper",
        "core::part::tests::no_test",
        "core::no_such_module::plain",
        "it::part::plain",
        "other::core::part::plain",
        "no_crate::part::plain",
        "no_such_folder::part::plain",
        "plain",
    ] {
        assert!(!tests_by_name::exists(root.path(), "own", nowhere), "{nowhere}");
    }
}

#[test]
fn names_stand_in_the_columns_of_tests() {
    let text = "\
# Page

| upstream | here | tests |
|---|---|---|
| a case | the `same::thing` | `core::part::plain`, `other::part::cases::one` |
| another | differs | Cannot apply: there is no such thing |

| rule | tests | change |
|---|---|---|
| a rule | **`it::flow::plain`** | `let a = |b| c::d(b)` |
| one more | *missing*: not built | |
";
    // Code in other columns than that of tests names no test; `here` is a column of tests.
    assert_eq!(problems(&page(&[]), text), [":5: there is no test same::thing"]);
}

#[test]
fn tests_that_are_gone_and_rows_without_any_are_named() {
    let text = "\
| upstream | here |
|---|---|
| a | `core::part::gone` and `core::part::plain` |
| b | the same |
| c | |
";
    assert_eq!(
        problems(&page(&[]), text),
        [
            ":3: there is no test core::part::gone",
            ":4: \"b\" has neither a test nor a reason why there is none",
            ":5: \"c\" has neither a test nor a reason why there is none",
        ]
    );
}

#[test]
fn tables_that_cannot_be_read_are_named() {
    let text = "\
| case | remark |
|---|---|

| case | tests |
|---|---|
| a | `core::part::plain` | more |
| b | `core::part::plain`
";
    assert_eq!(
        problems(&page(&[]), text),
        [
            ":1: a table without a column of tests",
            ":6: 3 cells in a table of 2 columns",
            ":7: a row of a table that does not end in |",
        ]
    );
}

#[test]
fn a_page_that_has_lost_most_of_its_rows_is_refused() {
    let page = Page {
        least_tests: 2,
        least_rows: 3,
        ..page(&[])
    };
    let text = "| case | tests |\n|---|---|\n| a | `core::part::plain` |\n";
    assert_eq!(
        problems(&page, text),
        [
            ": 1 tests, at least 2 were expected",
            ": 1 rows, at least 3 were expected"
        ]
    );
}

/// What is said of cases with these labels, of which the last should be 3.
fn numbered(labels: &[&str]) -> Vec<String> {
    let rows: Vec<String> = labels
        .iter()
        .map(|label| format!("| {label} case | `core::part::plain` |\n"))
        .collect();
    let text = format!(
        "## Other\n| case | tests |\n|---|---|\n| 7. no case of these | `core::part::plain` |\n\n\
         ## Cases\n| case | tests |\n|---|---|\n{}",
        rows.concat()
    );
    let numbers = &[Numbers::Cases {
        heading: "Cases",
        last: 3,
    }];
    problems(&page(numbers), &text)
}

#[test]
fn cases_are_numbered_without_a_gap() {
    let none: [&str; 0] = [];
    assert_eq!(numbered(&["1.", "2.", "3."]), none);
    assert_eq!(numbered(&["1a.", "1b.", "1c.", "2.", "3a.", "3b."]), none);
    assert_eq!(
        numbered(&["1.", "3."]),
        [":10: \"3. case\" is out of order"],
        "one is missing"
    );
    assert_eq!(
        numbered(&["1.", "2."]),
        [": the last case under \"Cases\" is 2, not 3"]
    );
    assert_eq!(
        numbered(&["1.", "2a.", "3."]),
        [":10: \"2a. case\" is the only part of its case"]
    );
    assert_eq!(
        numbered(&["1a.", "1c.", "2.", "3."]),
        [
            ":9: \"1a. case\" is the only part of its case",
            ":10: \"1c. case\" is out of order",
        ],
        "a part is missing"
    );
    assert_eq!(
        numbered(&["1.", "1.", "2.", "3."]),
        [":10: \"1. case\" is out of order"],
        "one is there twice"
    );
    assert_eq!(
        numbered(&["1.", "x.", "2.", "3."]),
        [":10: \"x. case\" has no number"]
    );
    assert_eq!(numbered(&[]), [": the last case under \"Cases\" is 0, not 3"]);
}

#[test]
fn scenarios_hazards_and_rows_that_are_missing_are_named() {
    let text = "\
## Bad input
| scenario | hazard | tests |
|---|---|---|
| S1 and S3 | 7 | `core::part::plain` |
| S22 | 8 | `core::part::plain` |
";
    let numbers = &[
        Numbers::Scenarios { last: 3 },
        Numbers::Column {
            heading: "hazard",
            values: &["7", "doubt"],
        },
        Numbers::Rows {
            heading: "Bad input",
            least: 3,
        },
    ];
    assert_eq!(
        problems(&page(numbers), text),
        [
            ": scenario S2 is missing",
            ": hazard doubt is missing",
            ": 2 rows under \"Bad input\", at least 3 were expected",
        ]
    );
}
