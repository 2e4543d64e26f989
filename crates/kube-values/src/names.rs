//! The syntax of names and labels, by the rules of the API server. Who also has to say what is wrong has
//! words of their own for it.

/// Bytes that the name of a namespace has at most, and the value of a label.
pub const LABEL_LIMIT: usize = 63;
/// Bytes that the name of most objects has at most.
pub const SUBDOMAIN_LIMIT: usize = 253;

/// Lower-case letters, digits and inner hyphens, of any length: a part of a subdomain, of which only the sum
/// of the parts is limited.
pub fn is_part(text: &str) -> bool {
    bounded(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), b"-")
}

/// A DNS label (RFC 1123), which the name of a namespace is.
pub fn is_label(text: &str) -> bool {
    text.len() <= LABEL_LIMIT && is_part(text)
}

/// A DNS subdomain (RFC 1123), which the names of most objects are. It has no `/`, which would lead a request
/// elsewhere.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LIMIT && text.split('.').all(is_part)
}

/// Letters, digits and inner hyphens, underscores and dots, of any length: the key of a label after its
/// domain, and its value where it has one.
pub fn is_label_text(text: &str) -> bool {
    bounded(text, u8::is_ascii_alphanumeric, b"-_.")
}

/// The value of a label, which may be empty.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || text.len() <= LABEL_LIMIT && is_label_text(text)
}

/// The key of a label or annotation: `name`, or `example.com/name`.
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    name.len() <= LABEL_LIMIT && is_label_text(name) && domain.is_none_or(is_subdomain)
}

/// Whether `text` is not empty, begins and ends with an `outer` byte, and has between them such bytes and
/// `inner` ones.
fn bounded(text: &str, outer: fn(&u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
        && bytes.iter().all(|byte| outer(byte) || inner.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("jobs-1", true, true, true, true)]
    #[case::one_sign("a", true, true, true, true)]
    #[case::dots("a.b-1.c", false, true, true, true)]
    #[case::capitals("Jobs", false, false, true, true)]
    #[case::underscore("a_b", false, false, true, true)]
    #[case::empty("", false, false, true, false)]
    #[case::hyphen_first("-a", false, false, false, false)]
    #[case::hyphen_last("a-", false, false, false, false)]
    #[case::hyphen_before_a_dot("a-.b", false, false, true, true)]
    #[case::two_dots("a..b", false, false, true, true)]
    #[case::with_domain("example.com/a", false, false, false, true)]
    #[case::without_domain("/a", false, false, false, false)]
    #[case::without_name("example.com/", false, false, false, false)]
    #[case::two_slashes("a/b/c", false, false, false, false)]
    #[case::upwards("../secrets", false, false, false, false)]
    #[case::not_ascii("zürich", false, false, false, false)]
    #[case::line_end("a\n", false, false, false, false)]
    fn names_are_told_by_their_signs(
        #[case] text: &str,
        #[case] label: bool,
        #[case] subdomain: bool,
        #[case] value: bool,
        #[case] key: bool,
    ) {
        let found = [
            is_label(text),
            is_subdomain(text),
            is_label_value(text),
            is_label_key(text),
        ];
        assert_eq!(found, [label, subdomain, value, key]);
    }

    #[test]
    fn names_are_told_by_their_lengths() {
        let (fits, long) = ("a".repeat(63), "a".repeat(64));
        assert!(is_label(&fits) && is_label_value(&fits) && is_label_key(&format!("x.io/{fits}")));
        assert!(!is_label(&long) && !is_label_value(&long) && !is_label_key(&format!("x.io/{long}")));
        // A part of a subdomain is limited by the whole alone.
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
    }
}
