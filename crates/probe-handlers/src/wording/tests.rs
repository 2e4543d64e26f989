use super::*;
use nix::errno::Errno;
use rstest::rstest;

#[rstest]
#[case(b"plain", "\"plain\"")]
#[case(b"a\"b\\c", "\"a\\\"b\\\\c\"")]
#[case(b"\x07\x08\x0c\n\r\t\x0b", "\"\\a\\b\\f\\n\\r\\t\\v\"")]
#[case(b"\x01\x1b\x7f", "\"\\x01\\x1b\\x7f\"")]
#[case("ä\u{85}".as_bytes(), "\"ä\\u0085\"")]
#[case(b"a\xffb\xe4", "\"a\\xffb\\xe4\"")]
fn text_is_quoted_as_by_go(#[case] text: &[u8], #[case] expected: &str) {
    assert_eq!(quote(text), expected);
}

#[rstest]
#[case(Errno::ECONNREFUSED, "connection refused")]
#[case(Errno::ECONNRESET, "connection reset by peer")]
#[case(Errno::EHOSTUNREACH, "no route to host")]
#[case(Errno::ENETUNREACH, "network is unreachable")]
#[case(Errno::ETIMEDOUT, "connection timed out")]
#[case(Errno::EADDRNOTAVAIL, "cannot assign requested address")]
#[case(Errno::EMFILE, "too many open files")]
#[case(Errno::EACCES, "permission denied")]
#[case(Errno::EPERM, "operation not permitted")]
#[case(Errno::EINVAL, "invalid argument")]
fn the_systems_errors_are_spelled_as_in_go(#[case] errno: Errno, #[case] expected: &str) {
    assert_eq!(system(&errno.into()), expected);
    let address = "10.0.0.1:80".parse().unwrap();
    assert_eq!(
        dial(address, None, &DialError::Connect(errno.into())),
        format!("dial tcp 10.0.0.1:80: connect: {expected}")
    );
}

#[test]
fn broken_connections_are_told_by_how_they_broke() {
    let ends = Ends {
        local: "10.0.0.1:4711".parse().unwrap(),
        peer: "10.0.0.2:80".parse().unwrap(),
    };
    let table: [(io::Error, &str); 4] = [
        (
            Errno::ECONNRESET.into(),
            "read tcp 10.0.0.1:4711->10.0.0.2:80: read: connection reset by peer",
        ),
        (
            Errno::EPIPE.into(),
            "write tcp 10.0.0.1:4711->10.0.0.2:80: write: broken pipe",
        ),
        (io::ErrorKind::UnexpectedEof.into(), "EOF"),
        (
            io::Error::other(TlsError::AlertReceived(AlertDescription::CertificateRequired)),
            "remote error: tls: certificate required",
        ),
    ];
    for (error, expected) in table {
        assert_eq!(broken(ends, &error), expected);
    }
}

#[test]
fn a_name_is_unknown_or_the_resolver_is_in_trouble() {
    let unknown = io::Error::other("failed to lookup address information: Name or service not known");
    assert_eq!(lookup("a.b", &unknown), "dial tcp: lookup a.b: no such host");
    let trouble =
        io::Error::other("failed to lookup address information: Temporary failure in name resolution");
    assert_eq!(
        lookup("a.b", &trouble),
        "dial tcp: lookup a.b: Temporary failure in name resolution"
    );
}
