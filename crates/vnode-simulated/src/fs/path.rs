//! Paths. Pure.

/// A path without `.`, `..` and double slashes, from `directory` unless it is absolute.
pub(crate) fn absolute(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { directory };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// What is left of a path below a folder; `Some("")` for the folder itself.
pub(super) fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    if rest.is_empty() {
        return Some("");
    }
    rest.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("/", "a", "/a")]
    #[case("/a/b", "../c", "/a/c")]
    #[case("/a", "/b//c/./d/", "/b/c/d")]
    #[case("/a", "../../../..", "/")]
    #[case("/a", "", "/a")]
    fn paths_are_made_plain(#[case] directory: &str, #[case] path: &str, #[case] plain: &str) {
        assert_eq!(absolute(directory, path), plain);
    }

    #[test]
    fn a_neighbour_with_a_longer_name_is_not_below() {
        assert_eq!(below("/a/b", "/a"), Some("b"));
        assert_eq!(below("/a", "/a"), Some(""));
        assert_eq!(below("/ab", "/a"), None);
        assert_eq!(below("/a", "/"), Some("a"));
    }
}
