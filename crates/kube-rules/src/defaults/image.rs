//! References of images.

use regex::Regex;
use std::sync::LazyLock;

/// A name with an optional tag and digest, its registry written out.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let domain = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    Regex::new(&format!(
        r"^(?<name>{domain}/{part}(?:/{part})*)(?::(?<tag>\w[\w.-]{{0,127}}))?(?:@(?<digest>{digest}))?$"
    ))
    .expect("the pattern is written here")
});

/// When an image is pulled unless somebody says so: `Always` for the tag `latest` or none, as `latest` moves;
/// not for what is no reference at all.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn is_latest(image: &str) -> bool {
    // An identifier is no name.
    if image.len() == 64
        && image
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return false;
    }
    let is_domain =
        |text: &str| text.contains(['.', ':']) || text == "localhost" || text.to_lowercase() != text;
    let full = match image.split_once('/') {
        Some((domain, _)) if is_domain(domain) => image.to_owned(),
        _ => format!("docker.io/library/{image}"),
    };
    let Some(found) = REFERENCE.captures(&full) else {
        return false;
    };
    let too_long = found["name"].len() > 255;
    let bad_digest = found.name("digest").is_some_and(|digest| {
        let (algorithm, hex) = digest.as_str().split_once(':').unwrap_or_default();
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => 0,
        };
        hex.len() != length || hex.bytes().any(|byte| byte.is_ascii_uppercase())
    });
    if too_long || bad_digest {
        return false;
    }
    match found.name("tag") {
        Some(tag) => tag.as_str() == "latest",
        None => found.name("digest").is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("nginx", "Always")]
    #[case("nginx:latest", "Always")]
    #[case("a/b/c", "Always")]
    #[case("localhost:5000/x", "Always")]
    #[case("nginx:1.27", "IfNotPresent")]
    #[case("registry.k8s.io/pause:3.10", "IfNotPresent")]
    #[case("", "IfNotPresent")]
    #[case("A_b", "IfNotPresent")]
    #[case(" nginx", "IfNotPresent")]
    #[case(
        "x@sha256:0123456789012345678901234567890123456789012345678901234567890123",
        "IfNotPresent"
    )]
    #[case(
        "x:latest@sha256:0123456789012345678901234567890123456789012345678901234567890123",
        "Always"
    )]
    #[case("x:latest@sha256:01234567890123456789012345678901", "IfNotPresent")]
    #[case(
        "0123456789012345678901234567890123456789012345678901234567890123",
        "IfNotPresent"
    )]
    fn what_moves_is_pulled_always(#[case] image: &str, #[case] policy: &str) {
        assert_eq!(pull_policy(image), policy);
    }
}
