use super::*;
use rstest::rstest;

#[rstest]
#[case(b"garbage", Some("malformed HTTP response \"garbage\""))]
#[case(b"", Some("malformed HTTP response \"\""))]
#[case(b"HTTP/1.1  200 OK\r\n\r\n", None)]
#[case(b"HTTP/1.1 ", Some("malformed HTTP status code \"\""))]
#[case(b"HTTP/1.1 2\xff0 x\r\n", Some("malformed HTTP status code \"2\\xff0\""))]
#[case(b"HTTP/x.1 200\r\n", Some("malformed HTTP version \"HTTP/x.1\""))]
#[case(
    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nD\r\n\r\n",
    Some("malformed MIME header: missing colon: \"D\"")
)]
#[case(
    b"HTTP/1.1 200 OK\r\nbad\r\nunfinish",
    Some("malformed MIME header: missing colon: \"bad\"")
)]
#[case(b"HTTP/1.1 200 OK\r\nA: b\r\nunfinish", None)]
#[case(b"HTTP/1.1 200 OK\r\n\r\nbody", None)]
fn the_fault_in_a_head_is_found(#[case] head: &[u8], #[case] expected: Option<&str>) {
    assert_eq!(complaint(head).as_deref(), expected);
}
