use super::*;
use rstest::rstest;

fn url() -> Url {
    Url::of_probe("http", "10.0.0.1", 80, "/").unwrap()
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Lines as they are sent, but for the order of names.
fn lines(wanted: &[(&str, &str)]) -> Vec<String> {
    let head = Head::new(&pairs(wanted)).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in &head.headers(&url()) {
        lines.push(format!(
            "{}: {}",
            canonical(name.as_str()),
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    lines
}

const HOST: &str = "Host: 10.0.0.1:80";
const AGENT: &str = "User-Agent: kube-probe/1.36";
const ACCEPT: &str = "Accept: */*";
const CLOSE: &str = "Connection: close";

#[rstest]
#[case::nothing(&[], &[HOST, AGENT, ACCEPT, CLOSE])]
#[case::encoding(&[("Accept-Encoding", "gzip")], &[HOST, AGENT, "Accept-Encoding: gzip", ACCEPT, CLOSE])]
#[case::unknown_encoding(&[("Accept-Encoding", "foo")], &[HOST, AGENT, "Accept-Encoding: foo", ACCEPT, CLOSE])]
#[case::empty_encoding(&[("Accept-Encoding", "")], &[HOST, AGENT, "Accept-Encoding: ", ACCEPT, CLOSE])]
#[case::own(&[("X-Muffins-Or-Cupcakes", "muffins")], &[HOST, AGENT, "X-Muffins-Or-Cupcakes: muffins", ACCEPT, CLOSE])]
#[case::agent(&[("User-Agent", "foo/1.0")], &[HOST, "User-Agent: foo/1.0", ACCEPT, CLOSE])]
#[case::agent_twice(&[("User-Agent", "a"), ("user-agent", "b")], &[HOST, "User-Agent: a", ACCEPT, CLOSE])]
#[case::no_agent(&[("User-Agent", "")], &[HOST, CLOSE, ACCEPT])]
#[case::accept(&[("accept", "text/html")], &[HOST, AGENT, "Accept: text/html", CLOSE])]
#[case::accept_and_agent(&[("User-Agent", "foo/1.0"), ("Accept", "foo/*")], &[HOST, "User-Agent: foo/1.0", "Accept: foo/*", CLOSE])]
#[case::accept_and_own(&[("X-A", "b"), ("Accept", "foo/*")], &[HOST, AGENT, "X-A: b", "Accept: foo/*", CLOSE])]
#[case::accept_twice(&[("accept", "application/json"), ("Accept", "*/*")], &[HOST, AGENT, "Accept: application/json", ACCEPT, CLOSE])]
#[case::no_accept(&[("Accept", "")], &[HOST, AGENT, CLOSE])]
#[case::first_accept_empty(&[("Accept", ""), ("Accept", "x")], &[HOST, AGENT, CLOSE])]
#[case::second_accept_empty(&[("Accept", "x"), ("Accept", "")], &[HOST, AGENT, "Accept: x", "Accept: ", CLOSE])]
#[case::neither(&[("User-Agent", "foo/1.0"), ("Accept", "")], &[HOST, "User-Agent: foo/1.0", CLOSE])]
#[case::host(&[("HOST", "example.com")], &["Host: example.com", AGENT, ACCEPT, CLOSE])]
#[case::two_hosts(&[("Host", "a"), ("Host", "b")], &["Host: a", AGENT, ACCEPT, CLOSE])]
#[case::empty_host(&[("Host", "")], &[HOST, AGENT, ACCEPT, CLOSE])]
#[case::no_host_at_all(&[("Host", "a/b")], &["Host: ", AGENT, ACCEPT, CLOSE])]
#[case::zone(&[("Host", "[fe80::1%25lo]:8")], &["Host: [fe80::1]:8", AGENT, ACCEPT, CLOSE])]
#[case::mixed_case(&[("FOO-bAR", "value")], &[HOST, AGENT, "Foo-Bar: value", ACCEPT, CLOSE])]
#[case::spaces(&[("X", " a\t")], &[HOST, AGENT, "X: a", ACCEPT, CLOSE])]
#[case::beyond_ascii(&[("X", "ä")], &[HOST, AGENT, "X: ä", ACCEPT, CLOSE])]
#[case::keep_alive(&[("Connection", "Keep-Alive")], &[HOST, AGENT, "Connection: Keep-Alive", CLOSE, ACCEPT])]
#[case::close(&[("Connection", "close")], &[HOST, AGENT, CLOSE, ACCEPT])]
#[case::upgrade(&[("Connection", "Upgrade"), ("Upgrade", "x")], &[HOST, AGENT, "Connection: Upgrade", "Upgrade: x", ACCEPT])]
#[case::length(&[("Content-Length", "5")], &[HOST, AGENT, ACCEPT, CLOSE])]
#[case::chunked(&[("Transfer-Encoding", "chunked")], &[HOST, AGENT, ACCEPT, CLOSE])]
#[case::trailer(&[("Trailer", "X")], &[HOST, AGENT, ACCEPT, CLOSE])]
fn headers_follow_the_kubelets_rules(#[case] wanted: &[(&str, &str)], #[case] expected: &[&str]) {
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let expected = expected.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(sorted(lines(wanted)), sorted(expected));
}

#[test]
fn names_are_sorted_and_keep_their_repetitions() {
    let all = lines(&[("B", "1"), ("a", "2"), ("b", "3"), ("C", "4")]);
    let own: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|line| line.len() == 4)
        .collect();
    assert_eq!(own, ["A: 2", "B: 1", "B: 3", "C: 4"]);
}

#[rstest]
#[case::space("Bad Name", "x", "name \"Bad Name\"")]
#[case::empty("", "x", "name \"\"")]
#[case::beyond_ascii("Xä", "x", "name \"Xä\"")]
#[case::injected_name("X\r\nY", "x", "name \"X\\r\\nY\"")]
#[case::injected_value("x-SECRET", "a\r\nY: b", "value for \"X-Secret\"")]
#[case::nul("X", "a\0b", "value for \"X\"")]
#[case::host("host", "a\nb", "value for \"Host\"")]
fn what_cannot_be_sent_is_an_error_that_hides_the_value(
    #[case] name: &str,
    #[case] value: &str,
    #[case] what: &str,
) {
    let error = Head::new(&pairs(&[(name, value)])).unwrap_err();
    assert_eq!(error, format!("net/http: invalid header field {what}"));
}

#[test]
fn a_redirect_tells_where_it_comes_from_and_keeps_the_host_only_if_relative() {
    let (from, to) = (url(), url().join("/next").unwrap());
    let mut head = Head::new(&pairs(&[("Host", "h.x")])).unwrap();
    head.redirect(&from, &to, false);
    let headers = head.headers(&to);
    assert_eq!(
        (&headers["host"], &headers["referer"]),
        (
            &HeaderValue::from_static("h.x"),
            &HeaderValue::from_static("http://10.0.0.1:80/")
        )
    );
    head.redirect(&to, &from, true);
    let headers = head.headers(&from);
    assert_eq!(
        (&headers["host"], &headers["referer"]),
        (
            &HeaderValue::from_static("10.0.0.1:80"),
            &HeaderValue::from_static("http://10.0.0.1:80/next")
        )
    );
}

#[test]
fn a_referer_of_the_manifest_stays_and_none_leaves_tls() {
    let (plain, secret) = (url(), Url::of_probe("https", "10.0.0.1", 80, "/").unwrap());
    let mut own = Head::new(&pairs(&[("Referer", "mine")])).unwrap();
    own.redirect(&plain, &secret, true);
    assert_eq!(own.headers(&secret)["referer"], "mine");
    let mut none = Head::new(&[]).unwrap();
    none.redirect(&secret, &plain, true);
    assert!(!none.headers(&plain).contains_key("referer"));
}

#[test]
fn more_headers_than_anybody_can_send_are_an_error() {
    for count in [MOST, MOST + 1, 40_000] {
        for distinct in [true, false] {
            let name = |number: usize| {
                if distinct {
                    format!("x-{number}")
                } else {
                    "x".to_owned()
                }
            };
            let wanted: Vec<_> = (0..count).map(|number| (name(number), "y".to_owned())).collect();
            let mut head = match Head::new(&wanted) {
                Ok(head) => head,
                Err(error) => {
                    assert!(count > MOST);
                    assert_eq!(error, "more headers than can be sent");
                    continue;
                }
            };
            head.redirect(&url(), &url(), true);
            assert!(head.headers(&url()).len() >= count);
        }
    }
}
