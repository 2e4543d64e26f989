use super::*;
use proptest::prelude::*;
use rstest::rstest;

/// Path of a manifest, URL shown, and what follows `GET`.
#[rstest]
#[case::empty("", "http://h:93", "/")]
#[case::root("/", "http://h:93/", "/")]
#[case::path("/path", "http://h:93/path", "/path")]
#[case::only_query("?foo", "http://h:93?foo", "/?foo")]
#[case::both("/path?bar", "http://h:93/path?bar", "/path?bar")]
#[case::space("/a b", "http://h:93/a%20b", "/a%20b")]
#[case::no_slash("a", "http://h:93/a", "/a")]
#[case::beyond_ascii("/ä", "http://h:93/%C3%A4", "/%C3%A4")]
#[case::no_escape("/%zz", "http://h:93/%25zz", "/%25zz")]
#[case::no_escape_with_query("/%zz?q", "http://h:93/%25zz%3Fq", "/%25zz%3Fq")]
#[case::injection("/a\r\nX: y", "http://h:93/a%0D%0AX:%20y", "/a%0D%0AX:%20y")]
#[case::nul("/\0", "http://h:93/%00", "/%00")]
#[case::foreign_authority("//foo/bar", "http://h:93/bar", "/bar")]
#[case::three_slashes("///x", "http://h:93///x", "///x")]
#[case::foreign_url("http://o/p", "http://h:93/p", "/p")]
#[case::number_and_colon("1:2", "http://h:93/1:2", "/1:2")]
#[case::leading_colon(":x", "http://h:93/:x", "/:x")]
#[case::star("*", "http://h:93/*", "/*")]
#[case::fragment("/a#f g", "http://h:93/a#f%20g", "/a")]
#[case::query_and_fragment("/a?b#c", "http://h:93/a?b#c", "/a?b")]
#[case::empty_query("/a?", "http://h:93/a?", "/a?")]
#[case::empty_fragment("#", "http://h:93", "/")]
#[case::punctuation("/!*'()[]", "http://h:93/!*'()[]", "/!*'()[]")]
#[case::quotation(
    "/!*'()[]\"<>",
    "http://h:93/%21%2A%27%28%29%5B%5D%22%3C%3E",
    "/%21%2A%27%28%29%5B%5D%22%3C%3E"
)]
#[case::escaped_slash("/a%2fb", "http://h:93/a%2fb", "/a%2fb")]
#[case::needless_escape("/%41", "http://h:93/%41", "/%41")]
#[case::dots("/a/../b", "http://h:93/a/../b", "/a/../b")]
#[case::leading_dot("./x", "http://h:93/./x", "/./x")]
#[case::bad_authority("//[bad/x", "http://h:93//%5Bbad/x", "//%5Bbad/x")]
// Go sends these as they are, which a request line does not allow.
#[case::space_in_query("/a?b c", "http://h:93/a?b c", "/a?b%20c")]
#[case::quotes_in_query("/a?x=\"<", "http://h:93/a?x=\"<", "/a?x=%22%3C")]
#[case::query_beyond_ascii("/a?ä", "http://h:93/a?ä", "/a?%C3%A4")]
fn a_path_becomes_a_url_as_in_go(#[case] path: &str, #[case] shown: &str, #[case] target: &str) {
    let url = Url::of_probe("http", "h", 93, path).unwrap();
    assert_eq!((url.to_string().as_str(), url.target().as_str()), (shown, target));
}

#[test]
fn a_path_with_a_scheme_of_its_own_has_no_host() {
    let url = Url::of_probe("http", "h", 93, "foo:bar").unwrap();
    assert_eq!(url.to_string(), "http:bar");
    assert!(url.lacks_host());
}

#[rstest]
#[case::name("example.local", Ok("https://example.local:1/"))]
#[case::address("10.0.0.1", Ok("https://10.0.0.1:1/"))]
#[case::v6("::1", Ok("https://[::1]:1/"))]
#[case::zone("fe80::1%lo", Ok("https://[fe80::1%25lo]:1/"))]
#[case::underscore("my_host", Ok("https://my_host:1/"))]
#[case::percent("a%b", Ok("https://a%25b:1/"))]
#[case::odd("<x>", Ok("https://<x>:1/"))]
#[case::beyond_ascii("ä", Ok("https://%C3%A4:1/"))]
#[case::brackets("[::1]", Err("parse \"https://[[::1]]:1/\": invalid IP-literal"))]
#[case::space("a b", Err("parse \"https://a%20b:1/\": invalid URL escape \"%20\""))]
#[case::slash("foo/bar", Err("parse \"https://foo%2Fbar:1/\": invalid URL escape \"%2F\""))]
#[case::at("x@y", Err("parse \"https://x%40y:1/\": invalid URL escape \"%40\""))]
#[case::injection("a\r\nb", Err("parse \"https://a%0D%0Ab:1/\": invalid URL escape \"%0D\""))]
fn a_host_must_be_one(#[case] host: &str, #[case] expected: Result<&str, &str>) {
    let url = Url::of_probe("https", host, 1, "/").map(|url| url.to_string());
    assert_eq!(url.as_deref().map_err(String::as_str), expected);
}

#[rstest]
#[case::plain("http://h:8/x", "h", Ok(8))]
#[case::default_port("http://h/x", "h", Ok(80))]
#[case::default_tls_port("https://h", "h", Ok(443))]
#[case::v6("http://[::1]:8/", "::1", Ok(8))]
#[case::v6_default("http://[::1]/", "::1", Ok(80))]
#[case::zone("http://[fe80::1%25lo]:8/", "fe80::1%lo", Ok(8))]
#[case::empty_port("http://h:/", "h", Ok(80))]
#[case::great_port("http://h:99999/", "h", Err("dial tcp: address 99999: invalid port"))]
fn host_and_port_are_found(#[case] text: &str, #[case] host: &str, #[case] port: Result<u16, &str>) {
    let base = Url::of_probe("http", "base", 1, "/").unwrap();
    let url = base.join(text).unwrap();
    assert_eq!(
        (url.host().as_str(), url.port().as_ref().map_err(String::as_str)),
        (host, port.as_ref().map_err(|e| *e))
    );
}

/// RFC 3986, section 5.4, by way of Go's own table.
#[rstest]
#[case("g", "http://a:1/b/c/g")]
#[case("./g", "http://a:1/b/c/g")]
#[case("g/", "http://a:1/b/c/g/")]
#[case("/g", "http://a:1/g")]
#[case("//g", "http://g")]
#[case("?y", "http://a:1/b/c/d?y")]
#[case("g?y", "http://a:1/b/c/g?y")]
#[case("#s", "http://a:1/b/c/d?q#s")]
#[case("g#s", "http://a:1/b/c/g#s")]
#[case("", "http://a:1/b/c/d?q")]
#[case(".", "http://a:1/b/c/")]
#[case("./", "http://a:1/b/c/")]
#[case("..", "http://a:1/b/")]
#[case("../g", "http://a:1/b/g")]
#[case("../../../../g", "http://a:1/g")]
#[case("/./g", "http://a:1/g")]
#[case("g.", "http://a:1/b/c/g.")]
#[case("g;x=1/./y", "http://a:1/b/c/g;x=1/y")]
#[case("https://o:2/../x?y", "https://o:2/x?y")]
#[case("HTTP://o", "http://o")]
#[case("mailto:x", "mailto:x")]
#[case("http:opaque", "http:opaque")]
#[case("/ä b", "http://a:1/%C3%A4%20b")]
fn a_location_is_resolved_against_its_request(#[case] location: &str, #[case] expected: &str) {
    let base = Url::of_probe("http", "a", 1, "/b/c/d?q").unwrap();
    assert_eq!(base.join(location).unwrap().to_string(), expected);
}

#[rstest]
#[case("http://[bad/", "missing ']' in host")]
#[case("/%zz", "invalid URL escape \"%zz\"")]
#[case("http://h:x/", "invalid port \":x\" after host")]
#[case(":x", "missing protocol scheme")]
#[case("a b:c", "first path segment in URL cannot contain colon")]
#[case("http://a b/", "invalid character \" \" in host name")]
fn a_location_that_is_none_is_an_error_in_gos_words(#[case] location: &str, #[case] why: &str) {
    let base = Url::of_probe("http", "a", 1, "/").unwrap();
    assert_eq!(
        base.join(location).unwrap_err(),
        format!("failed to parse Location header \"{location}\": parse \"{location}\": {why}")
    );
}

#[rstest]
#[case("http://h/", true)]
#[case("x:y", true)]
#[case("/a", false)]
#[case("//h/a", false)]
#[case("a:b c", true)]
#[case("", false)]
#[case(":", false)]
fn only_a_scheme_makes_a_location_absolute(#[case] location: &str, #[case] expected: bool) {
    assert_eq!(Url::is_absolute(location), expected);
}

proptest! {
    /// Whatever a manifest or a server says: one request line, no panic, and the URL reads back as itself.
    #[test]
    fn no_text_breaks_the_request_line(host in "\\PC{0,12}|.{0,4}", path in "(?s).{0,40}", location in "(?s).{0,40}") {
        let Ok(url) = Url::of_probe("http", &host, 80, &path) else { return Ok(()); };
        prop_assert!(url.target().bytes().all(|byte| byte.is_ascii_graphic()), "{url:?}");
        prop_assert!(url.target().starts_with('/'));
        if let Ok(next) = url.join(&location) {
            prop_assert!(next.target().bytes().all(|byte| byte.is_ascii_graphic()), "{next:?}");
            let (_, _) = (next.host(), next.port());
        }
    }
}
