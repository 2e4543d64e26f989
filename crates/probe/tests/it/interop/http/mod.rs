//! HTTP: what servers answer, and what becomes of it.

mod answers;
mod connections;
mod redirects;
mod requests;
mod tls;

use super::server::Step;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

fn ok() -> Vec<Step> {
    vec![Step::Head, send(answer("200 OK", "", "new"))]
}

fn send(text: impl Into<Vec<u8>>) -> Step {
    Step::Send(text.into())
}
