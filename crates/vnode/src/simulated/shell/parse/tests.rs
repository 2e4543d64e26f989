use super::*;
use proptest::prelude::*;
use rstest::rstest;

#[rstest]
#[case("if true")]
#[case("if true; then")]
#[case("while true; do echo")]
#[case("for x in a b")]
#[case("echo 'a")]
#[case("echo \"a $(date")]
#[case("echo $((1 + ")]
#[case("echo ${A")]
#[case("{ echo")]
#[case("( echo")]
#[case("a &&")]
#[case("a |")]
#[case("echo \\")]
#[case("cat <")]
fn what_may_go_on_is_unfinished(#[case] text: &str) {
    assert!(
        matches!(parse(text), Err(Wrong::Unfinished(_))),
        "{:?}",
        parse(text)
    );
}

#[rstest]
#[case(")")]
#[case("; a")]
#[case("fi")]
#[case("if true; fi")]
#[case("a & b")]
#[case("a ;; b")]
#[case("echo ${A%x}")]
#[case("cat << EOF")]
#[case("a 7> b")]
#[case("a > > b")]
#[case("f() { a; }")]
fn what_is_no_script_is_refused(#[case] text: &str) {
    assert!(matches!(parse(text), Err(Wrong::Syntax(_))), "{:?}", parse(text));
}

#[test]
fn depth_and_length_have_an_end() {
    for nested in ["(", "{ ", "if ", "\"$(", "$((", "${a:-", "while "] {
        assert!(parse(&nested.repeat(5_000)).is_err());
    }
    assert!(parse(&"a;".repeat(LONGEST)).is_err());
    assert!(parse(&"a;".repeat(1_000)).is_ok());
}

#[test]
fn pipelines_have_an_end() {
    let pipeline = |stages: usize| parse(&vec!["a"; stages].join(" | "));
    assert!(pipeline(32).is_ok());
    assert!(matches!(pipeline(33), Err(Wrong::Syntax(_))));
}

#[test]
fn nothing_is_a_script_too() {
    for text in ["", " ", "\n\n", "# comment", "  # comment\n"] {
        assert_eq!(parse(text), Ok(Script::default()), "{text:?}");
    }
}

fn piece() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "in", "{", "}", "(", ")",
        "!", "a", "A=1", "$A", "${A:-b}", "${", "$(", "$((", "))", "`", "'", "\"", "\\", ";", "&", "&&", "|",
        "||", "<", ">", ">>", "2>&1", "\n", " ", "#", "=", "*", "é",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_pieces_of_scripts_are_read_without_a_panic(pieces in proptest::collection::vec(piece(), 0..60)) {
        let _ = parse(&pieces.concat());
        let _ = parse(&pieces.join(" "));
    }
}
