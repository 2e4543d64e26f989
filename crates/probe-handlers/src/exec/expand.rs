//! `$(NAME)` in commands.

use std::collections::HashMap;

/// Most bytes of arguments, or of an environment, that come out: more than Linux starts a program with (three
/// quarters of 8 MiB for both). Values refer to values, so that a page of manifest could mean more than any
/// memory holds.
pub const MOST_EXPANDED: usize = 6 << 20;

/// References make a command, or an environment, longer than any program can be started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "with its references like $(NAME) replaced it is longer than {MOST_EXPANDED} bytes, and no system starts that"
)]
pub struct TooLong;

/// Arguments with `$(NAME)` replaced by the literal values of the container's environment, of which the last
/// of a name counts. Unknown names stay as they are, `$$` is one `$` (so `$$(NAME)` escapes), and values are
/// not looked into again. What is no reference stays, an open `$(` as well. The rules of Kubernetes' own
/// expansion.
///
/// # Errors
///
/// 6 MiB in all is the most.
pub fn expand(command: &[String], env: &[(String, String)]) -> Result<Vec<String>, TooLong> {
    let values: HashMap<&str, &str> = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut room = MOST_EXPANDED;
    command
        .iter()
        .map(|argument| expand_with(argument, |name| values.get(name).copied(), &mut room))
        .collect()
}

/// An environment whose values may refer to earlier ones.
pub(super) fn environment(env: &[(String, String)]) -> Result<Vec<(String, String)>, TooLong> {
    let mut known: HashMap<&str, String> = HashMap::new();
    let mut room = MOST_EXPANDED;
    env.iter()
        .map(|(name, value)| {
            let value = expand_with(value, |name| known.get(name).map(String::as_str), &mut room)?;
            known.insert(name, value.clone());
            Ok((name.clone(), value))
        })
        .collect()
}

/// One text with `$(NAME)` replaced by what `value` knows, by the rules of [`expand`].
///
/// # Errors
///
/// `room` is how many bytes there may still be, of all texts that belong together: [`MOST_EXPANDED`] to begin
/// with.
pub fn expand_with<'a>(
    argument: &str,
    value: impl Fn(&str) -> Option<&'a str>,
    room: &mut usize,
) -> Result<String, TooLong> {
    let mut expanded = String::with_capacity(argument.len());
    let mut push = |text: &str| {
        *room = room.checked_sub(text.len()).ok_or(TooLong)?;
        expanded.push_str(text);
        Ok(())
    };
    let mut rest = argument;
    // Looked for once only: a text of nothing but open references would be searched to its end for each.
    let last = argument.rfind(')');
    while let Some(at) = rest.find('$') {
        push(&rest[..at])?;
        rest = &rest[at + 1..];
        let begun = argument.len() - rest.len();
        if let Some(after) = rest.strip_prefix('$') {
            push("$")?;
            rest = after;
        } else if let Some((name, after)) = rest
            .strip_prefix('(')
            .filter(|_| last.is_some_and(|last| last > begun))
            .and_then(|inside| inside.split_once(')'))
        {
            match value(name) {
                Some(value) => push(value)?,
                None => ["$(", name, ")"].into_iter().try_for_each(&mut push)?,
            }
            rest = after;
        } else {
            push("$")?;
        }
    }
    push(rest)?;
    Ok(expanded)
}
