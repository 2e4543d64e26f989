//! The call of a webhook: where to, TLS, connection reuse, time-out. HTTP/1.1, as many connections as there
//! are calls at once, each reused.

use super::tls;
use crate::dial;
use crate::options::PodRoutes;
use crate::request::Reader;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Answers are read up to this size, as upstream.
const MOST_BYTES: usize = 3 * 1024 * 1024;
/// Idle connections kept for one webhook.
const MOST_IDLE: usize = 16;

type Sender = SendRequest<Full<Bytes>>;

/// How one `clientConfig` is called. Dropping it closes its connections.
pub(super) struct WebhookClient {
    config: Value,
    tls: Result<Arc<ClientConfig>, String>,
    idle: Mutex<Vec<(Address, Sender)>>,
    pods: PodRoutes,
}

/// Where a call goes: who answers there, and what the certificate must say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    connect: String,
    name: String,
}

/// One call: the address, and the URL as messages show it.
struct Target {
    address: Address,
    url: Uri,
}

/// A call that brought no answer, in Go's words, which is what clients of Kubernetes see.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The configuration cannot be called.
    #[error("{0}")]
    Configuration(String),
    /// No connection, or it broke.
    #[error("Post \"{url}\": {why}")]
    Transport {
        /// The address, with the time-out as a parameter.
        url: String,
        why: String,
    },
    /// The webhook answered with an HTTP error.
    #[error("{0}")]
    Http(String),
}

impl WebhookClient {
    pub(super) fn new(config: &Value, pods: &PodRoutes) -> Self {
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let tls = match BASE64.decode(bundle) {
            Ok(bundle) => tls::config(&bundle),
            Err(error) => Err(format!("unable to load root certificates: {error}")),
        };
        Self {
            config: config.clone(),
            tls,
            idle: Mutex::default(),
            pods: pods.clone(),
        }
    }

    /// Whether this client calls as that `clientConfig` says.
    pub(super) fn is_for(&self, config: &Value) -> bool {
        self.config == *config
    }

    /// Sends a review and returns the body of the answer.
    pub(super) async fn post(
        &self,
        review: &Value,
        timeout: Duration,
        reader: &dyn Reader,
    ) -> Result<Bytes, CallError> {
        let target = self.target(timeout, reader)?;
        let url = target.url.to_string();
        let body = Bytes::from(review.to_string());
        match tokio::time::timeout(timeout, self.exchange(&target, body)).await {
            Ok(Ok((status, text, body))) => answer(status, text, body),
            Ok(Err(why)) => Err(CallError::Transport { url, why }),
            Err(_elapsed) => Err(CallError::Transport {
                url,
                why: "context deadline exceeded".to_owned(),
            }),
        }
    }

    async fn exchange(&self, target: &Target, body: Bytes) -> Result<(StatusCode, bool, Bytes), String> {
        // A kept connection may have been closed meanwhile; then the request was not sent, and a new one
        // serves.
        while let Some(mut sender) = self.take(&target.address) {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request(target, body.clone())?).await {
                Ok(response) => return self.read(target, sender, response).await,
                Err(mut error) => {
                    if error.take_message().is_none() {
                        return Err(error.into_error().to_string());
                    }
                }
            }
        }
        let mut sender = self.connect(&target.address).await?;
        let response = sender
            .send_request(request(target, body)?)
            .await
            .map_err(|error| error.to_string())?;
        self.read(target, sender, response).await
    }

    async fn read(
        &self,
        target: &Target,
        sender: Sender,
        response: http::Response<Incoming>,
    ) -> Result<(StatusCode, bool, Bytes), String> {
        let status = response.status();
        let text = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("text/"));
        let body = Limited::new(response.into_body(), MOST_BYTES)
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        self.keep(target.address.clone(), sender);
        Ok((status, text, body))
    }

    async fn connect(&self, address: &Address) -> Result<Sender, String> {
        let tls = self.tls.clone()?;
        let stream = dial::open(&address.connect, &address.name, Some(tls)).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // Ends by itself when the sender is dropped or the peer closes.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a webhook ended");
            }
        });
        Ok(sender)
    }

    fn take(&self, address: &Address) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().position(|(kept, _)| kept == address)?;
        Some(idle.swap_remove(at).1)
    }

    fn keep(&self, address: Address, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push((address, sender));
        }
    }

    fn target(&self, timeout: Duration, reader: &dyn Reader) -> Result<Target, CallError> {
        let seconds = timeout.as_secs();
        let service = &self.config["service"];
        let (base, connect) = match self.config["url"].as_str() {
            Some(url) => (url.to_owned(), None),
            None if service.is_object() => {
                let text = |key: &str| service[key].as_str().unwrap_or_default();
                let port = service["port"].as_u64().unwrap_or(443);
                let (namespace, name) = (text("namespace"), text("name"));
                let path = text("path");
                let connect =
                    resolve(namespace, name, port, reader, &self.pods).map_err(CallError::Configuration)?;
                (
                    format!("https://{name}.{namespace}.svc:{port}{}", joined(path)),
                    Some(connect),
                )
            }
            None => {
                return Err(CallError::Configuration(
                    "webhook has neither url nor service".to_owned(),
                ));
            }
        };
        let unparsable =
            |error: http::uri::InvalidUri| CallError::Configuration(format!("parse \"{base}\": {error}"));
        let named: Uri = base.parse().map_err(unparsable)?;
        let (Some(host), Some("https"), Some(authority)) =
            (named.host(), named.scheme_str(), named.authority())
        else {
            return Err(CallError::Configuration(format!(
                "\"{base}\" is not an https URL with a host"
            )));
        };
        let text = format!("https://{authority}{}?timeout={seconds}s", joined(named.path()));
        let url: Uri = text.parse().map_err(unparsable)?;
        let connect = connect.unwrap_or_else(|| format!("{host}:{}", url.port_u16().unwrap_or(443)));
        let address = Address {
            connect,
            name: host.trim_matches(['[', ']']).to_owned(),
        };
        Ok(Target { address, url })
    }
}

/// A path as Kubernetes' client asks for it, without empty segments and without a slash at its end. Webhooks
/// rely on it: Go's servers redirect from `//path`, which envtest writes.
fn joined(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    format!("/{}", segments.join("/"))
}

fn request(target: &Target, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let path = target
        .url
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let host = target.url.authority().map_or("", http::uri::Authority::as_str);
    Request::post(path)
        .header(http::header::HOST, host)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json, */*")
        .header(http::header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(body))
        .map_err(|error| error.to_string())
}

/// An address behind a Service: a ready endpoint, else the cluster address.
fn resolve(
    namespace: &str,
    name: &str,
    port: u64,
    reader: &dyn Reader,
    pods: &PodRoutes,
) -> Result<String, String> {
    let service = reader
        .get("", "services", namespace, name)
        .ok_or_else(|| format!("service \"{name}\" not found"))?;
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let port_name = array(&service["spec"]["ports"])
        .iter()
        .find(|one| one["port"].as_u64() == Some(port))
        .map(|one| one["name"].as_str().unwrap_or_default().to_owned())
        .ok_or_else(|| format!("no service port {port} found for service \"{name}\""))?;
    for slice in reader.list("discovery.k8s.io", "endpointslices", Some(namespace)) {
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let target = array(&slice["ports"])
            .iter()
            .find(|one| one["name"].as_str().unwrap_or_default() == port_name)
            .and_then(|one| one["port"].as_u64());
        let ready = array(&slice["endpoints"])
            .iter()
            .find(|endpoint| endpoint["conditions"]["ready"] != false)
            .and_then(|endpoint| endpoint["addresses"][0].as_str().map(str::to_owned));
        if let (Some(port), Some(address)) = (target, ready) {
            let address = match address.parse() {
                Ok(ip) => pods.to(ip).to_string(),
                Err(_) => address,
            };
            return Ok(join(&address, port));
        }
    }
    match service["spec"]["clusterIP"].as_str() {
        Some(address) if !matches!(address, "" | "None") => Ok(join(address, port)),
        _ => Err(format!("no endpoints available for service \"{name}\"")),
    }
}

fn join(address: &str, port: u64) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// What an HTTP status says; `text`: the body is for people.
fn answer(status: StatusCode, text: bool, body: Bytes) -> Result<Bytes, CallError> {
    if status == StatusCode::OK {
        return Ok(body);
    }
    let said = String::from_utf8_lossy(&body);
    let said = said.trim();
    let said = if text && !said.is_empty() { said } else { "unknown" };
    Err(CallError::Http(match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => said.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => format!("an error on the server (\"{said}\") has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }))
}
