//! Compiling and evaluating expressions in CEL, which recurse over what clients wrote, on a stack that is
//! large enough for them.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};

/// How many brackets and conditions may lie within each other. Upstream takes 250.
const MOST_NESTED: usize = 50;
/// How many operators, members and items an expression may have: a chain of them is as deep as it is long.
const MOST_PARTS: usize = 1_000;
/// For the parser, which takes some 130 KiB for a bracket in a build without optimisation.
const STACK: usize = 64 << 20;
/// For evaluating one level, which takes more than 30 KiB likewise, and for what is not recursion.
const STACK_OF_LEVEL: usize = 64 << 10;
const STACK_OF_REST: usize = 256 << 10;

/// Compiles an expression, or says why it cannot.
///
/// # Errors
/// The reason, in the words of the parser where it is the parser's.
pub fn compile(text: &str) -> Result<Program, String> {
    check(text)?;
    // Lines of the text are shown as Go's library shows them, behind a blank.
    let program =
        compiling(|| Program::compile(text)).map_err(|error| error.to_string().replace("\n| ", "\n | "))?;
    // No type has a name here, and the evaluation would end in a panic.
    match compiling(|| message(program.expression()).map(str::to_owned)) {
        Some(name) => Err(format!("undeclared reference to '{name}' (in container '')")),
        None => Ok(program),
    }
}

/// The type of a message that the expression makes, as in `Name{field: 1}`.
fn message(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Struct(made) => Some(&made.type_name),
        Expr::Call(call) => call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .find_map(message),
        Expr::Comprehension(of) => [
            &of.iter_range,
            &of.accu_init,
            &of.loop_cond,
            &of.loop_step,
            &of.result,
        ]
        .into_iter()
        .find_map(message),
        Expr::List(list) => list.elements.iter().find_map(message),
        Expr::Map(map) => map.entries.iter().find_map(message_of_entry),
        Expr::Select(select) => message(&select.operand),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => None,
    }
}

fn message_of_entry(entry: &IdedEntryExpr) -> Option<&str> {
    match &entry.expr {
        EntryExpr::StructField(_) => None,
        EntryExpr::MapEntry(entry) => message(&entry.key).or_else(|| message(&entry.value)),
    }
}

/// Whether an expression is no deeper than the parser bears.
fn check(text: &str) -> Result<(), String> {
    let (mut open, mut deepest, mut conditions, mut parts) = (0_usize, 0, 0, 0);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        rest = match next {
            '"' | '\'' => {
                let before = text.get(..text.len() - rest.len()).unwrap_or_default();
                after_string(rest, next, before.ends_with(['r', 'R']))
            }
            _ => rest.get(next.len_utf8()..).unwrap_or_default(),
        };
        match next {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '?' => conditions += 1,
            _ => {}
        }
        deepest = deepest.max(open);
        // Words are operators, too: `in`.
        parts += usize::from(!next.is_alphanumeric() && next != '_');
    }
    if deepest + conditions > MOST_NESTED {
        return Err(format!("expression recursion limit exceeded: {MOST_NESTED}"));
    }
    if parts > MOST_PARTS {
        return Err(format!(
            "expression has more than {MOST_PARTS} operators, blanks and separators"
        ));
    }
    Ok(())
}

/// What follows a string, of a text that begins with one. One without an end reaches to the end.
fn after_string(text: &str, quote: char, is_raw: bool) -> &str {
    let three = quote.to_string().repeat(3);
    let end = if text.starts_with(&three) {
        three
    } else {
        quote.to_string()
    };
    let mut rest = text.get(end.len()..).unwrap_or_default();
    while !rest.is_empty() && !rest.starts_with(&end) {
        let mut characters = rest.chars();
        if characters.next() == Some('\\') && !is_raw {
            characters.next();
        }
        rest = characters.as_str();
    }
    rest.get(end.len()..).unwrap_or_default()
}

/// Runs a parser of expressions that [`check`] finds good.
pub(crate) fn compiling<T>(run: impl FnOnce() -> T) -> T {
    stacker::grow(STACK, run)
}

/// Evaluates compiled expressions. `depth`: how many parts of the deepest lie within each other.
pub fn evaluating<T>(depth: usize, run: impl FnOnce() -> T) -> T {
    let needed = depth.saturating_mul(STACK_OF_LEVEL) + STACK_OF_REST;
    stacker::maybe_grow(needed, needed.max(STACK), run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use rstest::rstest;

    #[rstest]
    #[case::alone("Object{a: 1}")]
    #[case::in_a_list("[1, Object{}]")]
    #[case::in_a_map("{'a': {'b': Object{}}}")]
    #[case::as_a_key("{Object{}: 1}")]
    #[case::as_an_argument("size(Object{})")]
    #[case::as_a_target("Object{}.size()")]
    #[case::of_which_a_member_is_read("Object{a: 1}.a")]
    #[case::in_a_loop("[1].all(x, Object{}.a)")]
    fn messages_are_refused(#[case] text: &str) {
        assert_eq!(
            compile(text).unwrap_err(),
            "undeclared reference to 'Object' (in container '')"
        );
    }

    #[rstest]
    #[case::brackets("(".repeat(50) + "1" + &")".repeat(50), true)]
    #[case::too_many_brackets("(".repeat(51) + "1" + &")".repeat(51), false)]
    #[case::lists("[".repeat(51) + &"]".repeat(51), false)]
    #[case::never_closed("[".repeat(4_000), false)]
    #[case::one_after_the_other("(1)+".repeat(60) + "1", true)]
    #[case::in_strings(format!("'{}' + \"\\\"{}\" + r'{}' + '''{}'{}'''", "(".repeat(60), "(".repeat(60), "(".repeat(60), "(".repeat(60), "(".repeat(60)), true)]
    #[case::behind_strings("(')'+".repeat(60) + "''" + &")".repeat(60), false)]
    #[case::behind_raw_strings(format!("r'\\'+{}1{}", "(".repeat(60), ")".repeat(60)), false)]
    #[case::conditions("true ? 1 : ".repeat(50) + "1", true)]
    #[case::too_many_conditions("true ? 1 : ".repeat(51) + "1", false)]
    #[case::a_chain("1+".repeat(1_000) + "1", true)]
    #[case::too_long_a_chain("1+".repeat(1_001) + "1", false)]
    #[case::a_short_chain("1+".repeat(25) + "1", true)]
    #[case::loops("[1].all(x, ".repeat(7) + "true" + &")".repeat(7), true)]
    #[case::many_loops("[1].all(x, ".repeat(49) + "true" + &")".repeat(49), true)]
    #[case::members("a".to_owned() + &".a".repeat(1_000), true)]
    #[case::signs("!".repeat(1_000) + "true", true)]
    #[case::a_string_without_end("'((((((".to_owned(), true)]
    fn depth_is_bounded(#[case] text: String, #[case] passes: bool) {
        assert_eq!(check(&text).is_ok(), passes);
        // It is borne, whether it is an expression or not.
        let compiled = compile(&text);
        if let Ok(program) = &compiled {
            let cost = Cost::of(program);
            let context = kube_cel::cel::Context::default();
            let _ = evaluating(cost.depth(), || program.execute(&context));
        }
        assert!(passes || compiled.is_err());
    }
}
