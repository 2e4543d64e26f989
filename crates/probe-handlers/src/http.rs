//! HTTP probes.

mod exchange;
mod reading;
mod request;
mod url;

use super::dial::{Connection, Destination};
use super::wording::{Ends, cut, quote};
use super::{port, tls};
use crate::{Compat, HttpGet, Outcome, Probe, Target, Tls, Verdict};
use bytes::Bytes;
use exchange::Exchange;
use http::{Request, StatusCode, Uri, Version, header};
use http_body::Body as _;
use http_body_util::Empty;
use request::Head;
use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::client::TlsStream;
use url::Url;

/// Longest body of a redirect that is read, in bytes (Go's `maxBodySlurpSize`).
const SKIPPED: u64 = 2 << 10;
/// Requests, the first included, before an end is made.
const REQUESTS: usize = 10;
const NO_HEAD: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
const NO_BODY: &str = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Asks once, following redirects as a kubelet does. Ends within the probe's timeout; reads 64 KiB of head
/// and [`Outcome::OUTPUT`] bytes of body at most of each answer.
pub async fn probe(get: &HttpGet, target: &Target, probe: &Probe, compat: Compat) -> Outcome {
    // Boxed: workers are many and mostly idle, and would each keep room for it.
    Box::pin(attempt(get, target, probe, compat)).await
}

/// Sends one request over an open stream and reads the head of its answer, 64 KiB at most. The error is what
/// Go's library says when there is none. The caller bounds the time.
pub async fn status<S>(stream: S, request: Request<Empty<Bytes>>, ends: Ends) -> Result<StatusCode, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = exchange::http1(stream, request).await;
    let exchange = exchange.map_err(|fault| reading::no_answer(&fault, ends))?;
    Ok(exchange.answer().status())
}

async fn attempt(get: &HttpGet, target: &Target, probe: &Probe, compat: Compat) -> Outcome {
    let port = match port::resolve(&get.port, &target.container) {
        Ok(port) => port,
        Err(error) => return Outcome::error(Verdict::Unknown, error),
    };
    let given = get.host.as_deref().filter(|host| !host.is_empty());
    let own = target.address.map(|address| address.to_string());
    let host = given.or(own.as_deref());
    let url = match Url::of_probe(get.scheme.as_str(), host.unwrap_or_default(), port, &get.path) {
        Ok(url) => url,
        Err(error) => return Outcome::error(Verdict::Unknown, error),
    };
    if host.is_none() {
        // Go dials the machine itself then, whose answer says nothing about the pod.
        let why = format!("dial tcp :{port}: the pod has no address yet");
        return Failed { url, why }.outcome();
    }
    let strict = compat == Compat::Strict;
    let trust = if strict {
        &probe.extras.tls
    } else {
        &Tls::Unverified
    };
    if let Err(error) = checked(trust) {
        return Outcome::error(Verdict::Unknown, error);
    }
    let client = Client {
        trust,
        source: target.source,
        timeout: probe.timeout,
    };
    let mut deadline = pin!(tokio::time::sleep(probe.timeout));
    let answer = match client.follow(url, &get.headers, deadline.as_mut()).await {
        Ok(answer) => answer,
        Err(failed) => return failed.outcome(),
    };
    match answer.body {
        Ok(body) => judge(answer.status, &body, probe, strict),
        // Taken for a passing trouble by a kubelet, a server that stalls here never fails.
        Err(why) if strict => Failed { url: answer.url, why }.outcome(),
        Err(error) => Outcome::error(Verdict::Failure, error),
    }
}

/// What a status means.
fn judge(status: StatusCode, body: &[u8], probe: &Probe, strict: bool) -> Outcome {
    let status = status.as_u16();
    let redirected = (300..400).contains(&status);
    if (200..300).contains(&status) {
        return Outcome::success(text(body));
    }
    if redirected && !(strict && probe.extras.fail_on_redirect) {
        let mut output = format!("Probe terminated redirects, Response body: {}", text(body));
        cut(&mut output, Outcome::OUTPUT);
        return Outcome::warning(output);
    }
    let mut output = format!("HTTP probe failed with statuscode: {status}");
    if strict && probe.extras.body_snippet > 0 && !body.is_empty() {
        output.push_str(", body: ");
        output.push_str(&snippet(body, probe.extras.body_snippet));
        cut(&mut output, Outcome::OUTPUT);
    }
    Outcome::failure(output)
}

/// A body for people; bytes that are no UTF-8 are replaced, a character cut in two is left out.
fn text(body: &[u8]) -> String {
    let whole = match std::str::from_utf8(body) {
        Ok(text) => return text.to_owned(),
        Err(error) if error.error_len().is_none() => &body[..error.valid_up_to()],
        Err(_) => body,
    };
    let mut text = String::from_utf8_lossy(whole).into_owned();
    cut(&mut text, Outcome::OUTPUT);
    text
}

/// The beginning of a body on one line: no control character reaches a terminal or a log.
fn snippet(body: &[u8], limit: usize) -> String {
    let mut kept = text(body);
    let whole = kept.len();
    cut(&mut kept, limit);
    let dots = if kept.len() < whole { "..." } else { "" };
    quote(kept.as_bytes()) + dots
}

/// Says what is wrong with a probe's trust before anybody is asked.
fn checked(trust: &Tls) -> Result<(), String> {
    match trust {
        Tls::Unverified => Ok(()),
        verified @ Tls::Verified { .. } => tls::settings(verified).map(drop),
    }
}

/// An answer that is the last one.
struct Answer {
    url: Url,
    status: StatusCode,
    body: Result<Vec<u8>, String>,
}

/// A request that got none.
struct Failed<U> {
    url: U,
    why: String,
}

impl<U: std::fmt::Display> Failed<U> {
    /// A failure, in so many words and no more: servers choose some of them.
    fn outcome(self) -> Outcome {
        let mut text = self.to_string();
        cut(&mut text, Outcome::OUTPUT);
        Outcome::failure(text)
    }
}

impl<U: std::fmt::Display> std::fmt::Display for Failed<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Get {}: {}", quote(self.url.to_string().as_bytes()), self.why)
    }
}

/// How requests of one probe are made.
struct Client<'a> {
    trust: &'a Tls,
    source: Option<IpAddr>,
    timeout: Duration,
}

impl Client<'_> {
    async fn follow(
        &self,
        mut url: Url,
        headers: &[(String, String)],
        mut deadline: Pin<&mut Sleep>,
    ) -> Result<Answer, Failed<String>> {
        let failed = |url: &Url, why| Failed {
            url: url.to_string(),
            why,
        };
        if url.lacks_host() {
            return Err(failed(&url, "http: no Host in request URL".to_owned()));
        }
        let mut head = Head::new(headers).map_err(|why| failed(&url, why))?;
        let first = url.host();
        for count in 1.. {
            let mut reply = match within(deadline.as_mut(), self.send(&url, &head)).await {
                Some(reply) => reply.map_err(|why| failed(&url, why))?,
                None => return Err(failed(&url, NO_HEAD.to_owned())),
            };
            if let Some(location) = reply.location() {
                let next = url.join(&location).map_err(|why| failed(&url, why))?;
                if next.host() == first {
                    if count >= REQUESTS {
                        return Err(Failed {
                            url: location,
                            why: "stopped after 10 redirects".to_owned(),
                        });
                    }
                    if !matches!(next.scheme.as_str(), "http" | "https") {
                        let why = format!("unsupported protocol scheme {}", quote(next.scheme.as_bytes()));
                        return Err(failed(&next, why));
                    }
                    if within(deadline.as_mut(), reply.skip()).await.is_none() {
                        return Err(failed(&next, NO_HEAD.to_owned()));
                    }
                    head.redirect(&url, &next, Url::is_absolute(&location));
                    url = next;
                    continue;
                }
            }
            let body = within(deadline.as_mut(), reply.body())
                .await
                .unwrap_or_else(|| Err(NO_BODY.to_owned()));
            let status = reply.status();
            return Ok(Answer { url, status, body });
        }
        Err(failed(&url, "stopped after 10 redirects".to_owned()))
    }

    /// One request on a connection of its own, up to the end of the answer's head.
    async fn send(&self, url: &Url, head: &Head) -> Result<Reply, String> {
        let host = url.host();
        let destination = Destination::new(&host, url.port()?);
        let connection = destination.open(self.source, self.timeout).await?;
        let ends = connection.ends();
        let stream = register(connection, ends)?;
        if url.scheme == "http" {
            let exchange = exchange::http1(stream, request(url, head, Version::HTTP_11)?).await;
            let exchange = exchange.map_err(|fault| reading::no_answer(&fault, ends))?;
            return Reply::new(Wire::Plain(exchange), ends);
        }
        // Boxed: few probes need that much room.
        Box::pin(self.send_over_tls(url, head, &host, stream, ends)).await
    }

    async fn send_over_tls(
        &self,
        url: &Url,
        head: &Head,
        host: &str,
        stream: TcpStream,
        ends: Ends,
    ) -> Result<Reply, String> {
        let name = tls::server_name(self.trust, host, &stream)?;
        let stream = tls::connect(stream, tls::settings(self.trust)?, name, ends).await?;
        let exchange = if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            exchange::http2(stream, request(url, head, Version::HTTP_2)?).await
        } else {
            exchange::http1(stream, request(url, head, Version::HTTP_11)?).await
        };
        let exchange = exchange.map_err(|fault| reading::no_answer(&fault, ends))?;
        Reply::new(Wire::Tls(exchange), ends)
    }
}

fn register(connection: Connection, ends: Ends) -> Result<TcpStream, String> {
    connection
        .into_stream()
        .map_err(|error| super::wording::broken(ends, &error))
}

fn request(url: &Url, head: &Head, version: Version) -> Result<Request<Empty<Bytes>>, String> {
    let mut headers = head.headers(url);
    let target = url.target();
    let uri = if version == Version::HTTP_2 {
        // What HTTP/2 knows as the authority; what it has no connection headers for.
        let host = headers.remove(header::HOST);
        let host = host
            .as_ref()
            .and_then(|host| host.to_str().ok())
            .filter(|host| !host.is_empty());
        for name in [header::CONNECTION, header::UPGRADE, header::TE] {
            headers.remove(name);
        }
        Uri::builder()
            .scheme("https")
            .authority(host.unwrap_or(&url.authority))
            .path_and_query(target)
            .build()
            .map_err(|error| error.to_string())
    } else {
        Uri::try_from(target).map_err(|error| error.to_string())
    };
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri?;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    Ok(request)
}

/// An answer whose body is yet to be read.
struct Reply {
    wire: Wire,
    ends: Ends,
}

enum Wire {
    Plain(Exchange<TcpStream>),
    Tls(Exchange<TlsStream<tls::RecordedStream>>),
}

impl Reply {
    fn new(wire: Wire, ends: Ends) -> Result<Self, String> {
        let reply = Self { wire, ends };
        match reading::unsupported(reply.answer()) {
            None => Ok(reply),
            Some(why) => Err(why),
        }
    }

    fn answer(&self) -> &http::Response<hyper::body::Incoming> {
        match &self.wire {
            Wire::Plain(exchange) => exchange.answer(),
            Wire::Tls(exchange) => exchange.answer(),
        }
    }

    fn status(&self) -> StatusCode {
        self.answer().status()
    }

    /// Where a redirect leads. Some answers of 300 to 399 lead nowhere; those are taken as they are.
    fn location(&self) -> Option<String> {
        let redirect = matches!(self.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = self
            .answer()
            .headers()
            .get(header::LOCATION)
            .filter(|_| redirect)?;
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        Some(location).filter(|location| !location.is_empty())
    }

    async fn body(&mut self) -> Result<Vec<u8>, String> {
        let body = self.read(Outcome::OUTPUT).await;
        body.map_err(|error| reading::no_body(&error, self.ends))
    }

    /// Reads a short body of a redirect, as Go does before it goes on. How it ends does not matter.
    async fn skip(&mut self) {
        let length = self.answer().body().size_hint().exact();
        if length.is_none_or(|length| length <= SKIPPED) {
            let _ended = self.read(SKIPPED as usize).await;
        }
    }

    async fn read(&mut self, limit: usize) -> Result<Vec<u8>, hyper::Error> {
        match &mut self.wire {
            Wire::Plain(exchange) => exchange.body(limit).await,
            Wire::Tls(exchange) => exchange.body(limit).await,
        }
    }
}

/// What `work` comes to, `None` after the deadline. The clock is looked at first: a peer that sends and sends
/// must not use up the turn of which looking needs a part.
async fn within<T>(deadline: Pin<&mut Sleep>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = deadline => None,
        done = work => Some(done),
    }
}

#[cfg(test)]
pub(crate) mod tests;
