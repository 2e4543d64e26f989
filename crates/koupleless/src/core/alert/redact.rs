//! Takes secrets out of texts.

/// What takes a secret's place.
const HIDDEN: &str = "***";
/// Names of what must not be shown wherever it stands, in lower case; what ends with one counts as well.
const SECRET: [&str; 9] = [
    "token",
    "password",
    "passwd",
    "secret",
    "signature",
    "sign",
    "apikey",
    "api_key",
    "credential",
];

/// The text without secrets: values of query parameters and user names with passwords in URLs, and the values
/// of what is named like a secret (`token=..`, `password=..`) anywhere.
pub(crate) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| !is_end(c)) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(is_end).unwrap_or(rest.len());
        word(&rest[..end], &mut out);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// What ends a word: nothing that stands unescaped in a URL, but for the comma and brackets, which texts put
/// around them.
fn is_end(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(
            c,
            '"' | '\'' | '<' | '>' | '`' | '{' | '}' | '(' | ')' | ',' | ';'
        )
}

fn word(word: &str, out: &mut String) {
    let Some((scheme, rest)) = word.split_once("://") else {
        parameters(word, out, is_secret);
        return;
    };
    out.push_str(scheme);
    out.push_str("://");
    let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(path);
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            out.push_str(HIDDEN);
            out.push('@');
            out.push_str(host);
        }
        None => out.push_str(authority),
    }
    match rest.split_once('?') {
        Some((path, query)) => {
            out.push_str(path);
            out.push('?');
            parameters(query, out, |_| true);
        }
        None => out.push_str(rest),
    }
}

/// `a=b&c=d` without the values of those that are to be hidden. What has no name may be a value as a whole.
fn parameters(text: &str, out: &mut String, hides: impl Fn(&str) -> bool) {
    for (index, part) in text.split('&').enumerate() {
        if index > 0 {
            out.push('&');
        }
        match part.split_once('=') {
            Some((name, value)) if hides(name) && !value.is_empty() => {
                out.push_str(name);
                out.push('=');
                out.push_str(HIDDEN);
            }
            None if hides(part) && !part.is_empty() && !is_secret(part) => out.push_str(HIDDEN),
            _ => out.push_str(part),
        }
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|secret| name.ends_with(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("nothing to hide", "nothing to hide")]
    #[case("http://h:80/a.jar failed", "http://h:80/a.jar failed")]
    #[case(
        "(https://h/a.jar?access_token=x&v=1), then",
        "(https://h/a.jar?access_token=***&v=***), then"
    )]
    #[case("ftp://user:pass@h/a.jar", "ftp://***@h/a.jar")]
    #[case("http://a@b@h?x", "http://***@h?***")]
    #[case("jar:file:///a.jar", "jar:file:///a.jar")]
    #[case("Access_Token=abc password=\"x\"", "Access_Token=*** password=\"x\"")]
    #[case("at a?b=c", "at a?b=c")]
    #[case("--secret=s", "--secret=***")]
    #[case("", "")]
    #[case("  \n", "  \n")]
    fn secrets_are_taken_out(#[case] text: &str, #[case] without: &str) {
        assert_eq!(redact(text), without);
    }

    proptest! {
        #[test]
        fn a_query_never_survives(before in "[a-z \\n]{0,9}", value in "[A-Z0-9]{4,20}", after in "\\PC{0,20}") {
            let text = format!("{before} https://h/p?k={value} {after}");
            let redacted = redact(&text);
            let shown = redacted.split(" https://h/p").nth(1).unwrap_or_default();
            let shown = shown.split(' ').next().unwrap_or_default();
            prop_assert_eq!(shown, "?k=***");
        }
    }
}
