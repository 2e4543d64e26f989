//! A line becomes the words of one command. What a real shell would do more with it is refused by name.

/// Words that begin or go on with a statement of several commands.
const RESERVED: [&str; 16] = [
    "!", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "then", "until",
    "while", "{", "}",
];

/// Why a line is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// A part of the shell's language.
    #[error(
        "{0:?} is not simulated: a line is one command, without pipes, lists, redirections, variables, patterns, \
         conditions and loops (quote what is meant literally)"
    )]
    Syntax(String),
    /// The quotation of this character has no end.
    #[error("{0:?} is not ended: a command has one line")]
    Unended(char),
}

/// Splits a line at blanks, with the quotes, escapes and comments of a shell.
pub(super) fn words(line: &str) -> Result<Vec<String>, Refused> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    // A name that is quoted in part is no statement and no assignment.
    let mut quoted = false;
    let mut rest = line.trim().chars();
    while let Some(char) = rest.next() {
        let refused = |more: &str| Err(Refused::Syntax(format!("{char}{more}")));
        let next = rest.clone().next();
        match char {
            ' ' | '\t' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '|' | '&' | ';' | '<' | '>' if next == Some(char) => return refused(&char.to_string()),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '\n' | '`' | '*' | '?' => return refused(""),
            '~' if word.is_none() => return refused(""),
            // `[` alone is a program.
            '[' if word.is_some() || next.is_some_and(|next| !next.is_whitespace()) => return refused(""),
            '$' => {
                expands(rest.as_str())?;
                word.get_or_insert_default().push(char);
            }
            '\\' => {
                quoted |= words.is_empty();
                let escaped = rest.next().ok_or(Refused::Unended(char))?;
                word.get_or_insert_default().push(escaped);
            }
            '\'' => {
                quoted |= words.is_empty();
                let (inside, after) = rest.as_str().split_once(char).ok_or(Refused::Unended(char))?;
                word.get_or_insert_default().push_str(inside);
                rest = after.chars();
            }
            '"' => {
                quoted |= words.is_empty();
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or(Refused::Unended(char))? {
                        '"' => break,
                        '`' => return Err(Refused::Syntax("`".to_owned())),
                        '$' => {
                            expands(rest.as_str())?;
                            word.push('$');
                        }
                        '\\' if rest.as_str().starts_with(['"', '\\', '$', '`']) => word.extend(rest.next()),
                        other => word.push(other),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if let (false, Some(first)) = (quoted, words.first()) {
        if RESERVED.contains(&first.as_str()) {
            return Err(Refused::Syntax(first.clone()));
        }
        if let Some((name, _)) = first.split_once('=').filter(|(name, _)| is_name(name)) {
            return Err(Refused::Syntax(format!("{name}=")));
        }
    }
    Ok(words)
}

/// Refuses what follows a `$` that is not just a character.
fn expands(rest: &str) -> Result<(), Refused> {
    let begins = |char: char| char.is_ascii_alphanumeric() || "_{(?#@*!$-".contains(char);
    if !rest.starts_with(begins) {
        return Ok(());
    }
    let name = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let name = match name.unwrap_or(rest.len()) {
        0 => rest.get(..1),
        end => rest.get(..end),
    };
    Err(Refused::Syntax(format!("${}", name.unwrap_or_default())))
}

fn is_name(text: &str) -> bool {
    let inner = |char: char| char.is_ascii_alphanumeric() || char == '_';
    text.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_') && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("", &[])]
    #[case("  \t\n", &[])]
    #[case("echo hello   world\n", &["echo", "hello", "world"])]
    #[case("echo 'a  b' \"c  d\" e\\ f", &["echo", "a  b", "c  d", "e f"])]
    #[case("echo '$A' \\$A \"\\$A\" ''", &["echo", "$A", "$A", "$A", ""])]
    #[case("echo inter''rupted", &["echo", "interrupted"])]
    #[case("echo # not this", &["echo"])]
    #[case("echo a#b 5$ '*' a=b", &["echo", "a#b", "5$", "*", "a=b"])]
    #[case("[ -f /tmp/x ]", &["[", "-f", "/tmp/x", "]"])]
    #[case("'if' x", &["if", "x"])]
    fn a_line_is_split_into_words(#[case] line: &str, #[case] expected: &[&str]) {
        assert_eq!(words(line).unwrap(), expected);
    }

    #[rstest]
    #[case("a | b", "|")]
    #[case("a || b", "||")]
    #[case("a && b", "&&")]
    #[case("sleep 1 &", "&")]
    #[case("a; b", ";")]
    #[case("a\nb", "\\n")]
    #[case("echo x > /tmp/y", ">")]
    #[case("echo x >> /tmp/y", ">>")]
    #[case("ls 2>&1", ">")]
    #[case("cat < /tmp/y", "<")]
    #[case("(exit 7)", "(")]
    #[case("echo $HOME/x", "$HOME")]
    #[case("echo \"$A\"", "$A")]
    #[case("echo ${A}", "${")]
    #[case("echo $(date)", "$(")]
    #[case("echo $?", "$?")]
    #[case("echo `date`", "`")]
    #[case("A=1", "A=")]
    #[case("A=1 env", "A=")]
    #[case("ls *.txt", "*")]
    #[case("ls a?", "?")]
    #[case("ls [ab]", "[")]
    #[case("cd ~", "~")]
    #[case("if true", "if")]
    #[case("while true", "while")]
    #[case("for x in 1 2", "for")]
    #[case("{ echo a", "{")]
    #[case("! true", "!")]
    fn what_is_no_single_command_is_refused_by_name(#[case] line: &str, #[case] named: &str) {
        let message = words(line).unwrap_err().to_string();
        let expected = format!("\"{named}\" is not simulated: a line is one command, ");
        assert!(message.starts_with(&expected), "{message}");
    }

    #[rstest]
    #[case("echo 'a", '\'')]
    #[case("echo \"a", '"')]
    #[case("echo a\\", '\\')]
    fn a_quotation_without_an_end_is_refused(#[case] line: &str, #[case] quote: char) {
        assert_eq!(words(line), Err(Refused::Unended(quote)));
    }

    proptest! {
        #[test]
        fn any_line_has_words_or_a_reason(line in "\\PC{0,60}|[ \\\\'\"$`|a-c=\\[~#]{0,30}") {
            let _ = words(&line);
        }

        #[test]
        fn what_is_quoted_comes_out_as_it_went_in(words in prop::collection::vec("[^']{0,12}", 1..6)) {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            prop_assert_eq!(super::words(&quoted.join(" ")).unwrap(), words);
        }
    }
}
