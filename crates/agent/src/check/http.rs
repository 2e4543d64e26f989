//! The HTTP check: does anything answer a request? It proves no identity.

use super::outcome::{Failure, Outcome};
use super::parameters::Parameters;
use super::plugin::{Attempt, Plugin, Suspect};
use bytes::Bytes;
use evenkeel_probe_handlers::http::status;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Empty;
use std::net::SocketAddr;
use std::time::Duration;

/// `port`, and `path` (`/healthz` if not given).
#[derive(Debug)]
pub(super) struct Http {
    port: u16,
    path: Uri,
}

impl Http {
    pub(super) fn new(parameters: &mut Parameters) -> Result<Self, String> {
        let port = parameters
            .port()?
            .ok_or("it needs a port: port=10248 is a kubelet's")?;
        let path = parameters.take("path").unwrap_or_else(|| "/healthz".to_owned());
        let refuse = || format!("path={path}: give a path, as in /healthz");
        let uri = Some(&path).filter(|path| path.starts_with('/'));
        let path = uri.and_then(|path| path.parse().ok()).ok_or_else(refuse)?;
        Ok(Self { port, path })
    }

    async fn ask(&self, suspect: &Suspect) -> Outcome {
        let asked = async {
            let connection = suspect.dial(Some(self.port)).open().await?;
            let ends = connection.ends();
            let stream = connection.into_stream();
            let stream = stream.map_err(|error| Failure::Local(error.to_string()))?;
            let request = head(Method::HEAD, self.path.clone(), ends.peer);
            let request = request.map_err(Failure::Local)?;
            status(stream, request, ends).await.map_err(Failure::Broken)
        };
        match asked.await {
            Ok(_status) => Outcome::Alive { identity: false },
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

impl Plugin for Http {
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a> {
        Box::pin(async move {
            let asked = tokio::time::timeout(within, self.ask(suspect)).await;
            asked.unwrap_or(Outcome::Failed(Failure::Timeout))
        })
    }
}

/// A request that is its head alone.
pub(super) fn head(method: Method, uri: Uri, peer: SocketAddr) -> Result<Request<Empty<Bytes>>, String> {
    let host = HeaderValue::try_from(peer.to_string()).map_err(|error| error.to_string())?;
    let agent = HeaderValue::from_static(concat!("evenkeel-probe/", env!("CARGO_PKG_VERSION")));
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = HeaderMap::from_iter([
        (HOST, host),
        (USER_AGENT, agent),
        (ACCEPT, HeaderValue::from_static("*/*")),
        (CONNECTION, HeaderValue::from_static("close")),
    ]);
    Ok(request)
}
