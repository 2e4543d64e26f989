//! What a request's query asks for.

use super::handshake::refusal;
use axum::extract::Query;
use axum::response::Response;
use http::{StatusCode, Uri};

/// Channels are numbered by a byte, and each port has two.
const MOST_PORTS: usize = 128;

/// Which streams a command has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
    pub(super) command: Vec<String>,
}

impl Options {
    /// With a terminal there is no error output, asked for or not, as with the kubelet.
    pub(super) fn new(uri: &Uri) -> Result<Self, Response> {
        let query = query(uri)?;
        let first = |name: &str| query.iter().find(|(known, _)| known == name);
        let set = |name| first(name).is_some_and(|(_, value)| value == "1");
        let tty = set("tty");
        let options = Self {
            stdin: set("input"),
            stdout: set("output"),
            stderr: set("error") && !tty,
            tty,
            command: values(&query, "command"),
        };
        if options.stdin || options.stdout || options.stderr {
            Ok(options)
        } else {
            Err(refusal(
                StatusCode::BAD_REQUEST,
                "you must specify at least 1 of stdin, stdout, stderr",
            ))
        }
    }
}

/// The ports that a WebSocket is to be connected to.
pub(super) fn ports(uri: &Uri) -> Result<Vec<u16>, Response> {
    let refuse = |text: String| Err(refusal(StatusCode::BAD_REQUEST, &text));
    let lists = values(&query(uri)?, "port");
    if lists.is_empty() {
        return refuse("query parameter \"port\" is required".to_owned());
    }
    let mut ports = Vec::new();
    for list in &lists {
        if list.is_empty() {
            return refuse("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in list.split(',') {
            match parse_port(port) {
                Ok(0) => return refuse(format!("port {list:?} must be > 0")),
                Ok(port) => ports.push(port),
                Err(why) => return refuse(format!("unable to parse {list:?} as a port: {why}")),
            }
        }
    }
    if ports.len() > MOST_PORTS {
        return refuse(format!(
            "query parameter \"port\" names more than {MOST_PORTS} ports"
        ));
    }
    Ok(ports)
}

/// A port, or why it is none in Go's words.
pub(super) fn parse_port(port: &str) -> Result<u16, String> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| digits).ok_or_else(|| {
        let why = if digits {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("strconv.ParseUint: parsing {port:?}: {why}")
    })
}

fn query(uri: &Uri) -> Result<Vec<(String, String)>, Response> {
    match Query::try_from_uri(uri) {
        Ok(Query(pairs)) => Ok(pairs),
        Err(error) => Err(refusal(StatusCode::BAD_REQUEST, &error.body_text())),
    }
}

fn values(query: &[(String, String)], name: &str) -> Vec<String> {
    let named = query.iter().filter(|(known, _)| known == name);
    named.map(|(_, value)| value.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    async fn told(response: Response) -> (StatusCode, String) {
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        (
            status,
            String::from_utf8(body.to_vec()).unwrap().trim_end().to_owned(),
        )
    }

    #[test]
    fn a_query_says_which_streams_there_are() {
        let uri = "/exec?command=a&command=b%20c&input=1&output=1&error=0"
            .parse()
            .unwrap();
        let wanted = Options {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
            command: vec!["a".to_owned(), "b c".to_owned()],
        };
        assert_eq!(Options::new(&uri).unwrap(), wanted);
    }

    #[test]
    fn a_terminal_has_no_error_output() {
        let options = Options::new(&"/exec?output=1&error=1&tty=1".parse().unwrap()).unwrap();
        assert!(options.tty && options.stdout && !options.stderr);
    }

    #[rstest]
    #[case("/exec?command=a")]
    #[case("/exec?command=a&output=true")]
    #[case("/exec?error=1&tty=1")]
    #[tokio::test]
    async fn a_command_without_streams_is_refused(#[case] uri: &str) {
        let refused = told(Options::new(&uri.parse().unwrap()).unwrap_err()).await;
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        assert_eq!(refused, (StatusCode::BAD_REQUEST, text.to_owned()));
    }

    #[test]
    fn ports_come_one_by_one_or_as_lists() {
        let uri = "/portForward?port=80,443&port=8080".parse().unwrap();
        assert_eq!(ports(&uri).unwrap(), [80, 443, 8080]);
    }

    #[rstest]
    #[case("/p", r#"query parameter "port" is required"#)]
    #[case("/p?port=", r#"query parameter "port" cannot be empty"#)]
    #[case(
        "/p?port=1,x",
        r#"unable to parse "1,x" as a port: strconv.ParseUint: parsing "x": invalid syntax"#
    )]
    #[case(
        "/p?port=65536",
        r#"unable to parse "65536" as a port: strconv.ParseUint: parsing "65536": value out of range"#
    )]
    #[case(
        "/p?port=%2B1",
        r#"unable to parse "+1" as a port: strconv.ParseUint: parsing "+1": invalid syntax"#
    )]
    #[case("/p?port=0", r#"port "0" must be > 0"#)]
    #[tokio::test]
    async fn wrong_ports_are_refused_in_the_kubelets_words(#[case] uri: &str, #[case] text: &str) {
        let refused = told(ports(&uri.parse().unwrap()).unwrap_err()).await;
        assert_eq!(refused, (StatusCode::BAD_REQUEST, text.to_owned()));
    }
}
