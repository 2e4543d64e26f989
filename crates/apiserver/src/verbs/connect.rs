//! Subresources behind which somebody else answers: a kubelet (`pods/log`, `exec`, `attach`, `portforward`,
//! `nodes/proxy`) or a pod (`pods/proxy`, `services/proxy`).
//!
//! Upstream's API server translates WebSocket requests of `exec`, `attach` and `portforward` to SPDY for
//! kubelets that do not say that they understand them. Here both are passed on as they are.

mod log;

use crate::kinds::Resource;
use crate::kubelet::address::{self, is_proxyable};
use crate::kubelet::relay::{self, Passed};
use crate::kubelet::{Endpoint, Transport};
use crate::request::query::{Query, encode};
use crate::request::{Attributes, Operation, Reader, RequestInfo, UserInfo};
use crate::state::Shared;
use axum::body::Body;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use log::LogOptions;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A request for such a subresource, permitted and with a path that is served.
pub(crate) struct Connect<'a> {
    pub(crate) server: &'a Shared,
    pub(crate) resource: &'a Resource,
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: &'a Query,
    pub(crate) user: &'a UserInfo,
    pub(crate) shutdown: Option<CancellationToken>,
}

/// Whether somebody else answers there.
pub(crate) fn is_connect(info: &RequestInfo) -> bool {
    info.group.is_empty()
        && matches!(
            (info.resource.as_str(), info.subresource.as_str()),
            ("pods", "log" | "exec" | "attach" | "portforward" | "proxy") | ("nodes" | "services", "proxy")
        )
}

/// Passes the request on to a kubelet or a pod, and its answer back.
pub(crate) async fn run(connect: Connect<'_>, parts: &mut Parts, body: Body) -> ApiResult<Response<Body>> {
    match connect.info.subresource.as_str() {
        "log" => connect.log().await,
        "proxy" => connect.proxy(parts, body).await,
        _ => connect.streams(parts).await,
    }
}

impl Connect<'_> {
    fn reader(&self) -> &dyn Reader {
        &self.server.store
    }

    fn object(&self, resource: &str, name: &str) -> ApiResult<Arc<Value>> {
        let namespace = match resource {
            "nodes" => "",
            _ => self.info.namespace.as_str(),
        };
        self.reader()
            .get("", resource, namespace, name)
            .ok_or_else(|| ApiError::not_found("", resource, name))
    }

    /// The kubelet of a node.
    fn kubelet(&self, node: &str) -> ApiResult<Endpoint> {
        let node = self.object("nodes", node)?;
        let kubelet = address::of_node(&node, &self.server.kubelets.options)?;
        Ok(Endpoint::kubelet(&kubelet))
    }

    /// Asks admission about a connection.
    async fn admit(&self, options: Value) -> ApiResult<()> {
        let kind = options["kind"].as_str().unwrap_or_default().to_owned();
        let mut attributes = Attributes {
            operation: Operation::Connect,
            gvk: Gvk {
                group: String::new(),
                version: "v1".to_owned(),
                kind,
            },
            gvr: self.resource.gvr.clone(),
            subresource: self.info.subresource.clone(),
            namespace: self.info.namespace.clone(),
            name: self.info.name.clone(),
            user: self.user.clone(),
            object: Some(options),
            old_object: None,
            options: Value::Null,
            dry_run: false,
        };
        let admission = &self.server.access.admission;
        admission.mutate(&mut attributes, self.reader(), &|_| {}).await?;
        admission.validate(&attributes, self.reader()).await?;
        Ok(())
    }

    /// Answers `pods/log`: the log of a container, as its kubelet sends it.
    async fn log(&self) -> ApiResult<Response<Body>> {
        let name = self.info.name.as_str();
        let options = LogOptions::parse(self.query)?;
        let errors = options.validate();
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "PodLogOptions", name, errors));
        }
        let pod = self.object("pods", name)?;
        let container = container(&pod, self.query.get("container").unwrap_or_default())?;
        let node = text(&pod["spec"], "nodeName");
        if node.is_empty() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        let mut endpoint = self.kubelet(node)?;
        if self.query.flag("insecureSkipTLSVerifyBackend") {
            endpoint.transport = Transport::UnverifiedKubelet;
        }
        let namespace = &self.info.namespace;
        let mut path = format!("/containerLogs/{namespace}/{name}/{container}");
        let parameters = options.parameters();
        if !parameters.is_empty() {
            path = format!("{path}?{parameters}");
        }
        let response = relay::get(&self.server.kubelets, &endpoint, &path)
            .await
            .map_err(ApiError::unforeseen)?;
        let status = response.status().as_u16();
        if !(200..=206).contains(&status) {
            let said = relay::error_text(response.into_body()).await;
            return Err(kubelet_error(status, "pods/log", name, said));
        }
        let mut answer = Response::new(relay::stream(response.into_body(), self.shutdown.clone()));
        answer
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(answer)
    }

    /// `pods/exec`, `pods/attach`, `pods/portforward`: an upgraded connection to the kubelet.
    async fn streams(&self, parts: &mut Parts) -> ApiResult<Response<Body>> {
        let (name, sub) = (self.info.name.as_str(), self.info.subresource.as_str());
        let forwards = sub == "portforward";
        self.admit(self.stream_options()).await?;
        self.may_create()?;
        let pod = self.object("pods", name)?;
        let container = if forwards {
            None
        } else {
            Some(container(&pod, self.query.get("container").unwrap_or_default())?)
        };
        let node = text(&pod["spec"], "nodeName");
        if node.is_empty() {
            return Err(ApiError::bad_request(format!(
                "pod {name} does not have a host assigned"
            )));
        }
        let endpoint = self.kubelet(node)?;
        let namespace = &self.info.namespace;
        let mut path = match &container {
            Some(container) => format!("/{sub}/{namespace}/{name}/{container}"),
            None => format!("/portForward/{namespace}/{name}"),
        };
        let parameters = self.stream_parameters();
        if !parameters.is_empty() {
            path = format!("{path}?{parameters}");
        }
        if !relay::wants_upgrade(&parts.headers) {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let passed = Passed {
            endpoint,
            path,
            prefix: "",
            shutdown: self.shutdown.clone(),
        };
        relay::upgrade(&self.server.kubelets, parts, passed).await
    }

    /// A WebSocket is a GET, and yet does what a POST does: since 1.35 it takes the right to create.
    fn may_create(&self) -> ApiResult<()> {
        if self.info.verb == "create" {
            return Ok(());
        }
        let info = RequestInfo {
            verb: "create".to_owned(),
            ..self.info.clone()
        };
        let decision = self
            .server
            .access
            .authorizer
            .authorize(self.user, &info, self.reader());
        if decision.allowed {
            Ok(())
        } else {
            Err(ApiError::forbidden(
                &info.group,
                &info.resource,
                &info.name,
                &decision.reason,
            ))
        }
    }

    /// The options as admission sees them.
    fn stream_options(&self) -> Value {
        let kind = match self.info.subresource.as_str() {
            "exec" => "PodExecOptions",
            "attach" => "PodAttachOptions",
            _ => "PodPortForwardOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "v1"});
        if kind == "PodPortForwardOptions" {
            return options;
        }
        for name in ["stdin", "stdout", "stderr", "tty"] {
            if self.query.flag(name) {
                options[name] = json!(true);
            }
        }
        if let Some(container) = self.query.get("container") {
            options["container"] = json!(container);
        }
        if kind == "PodExecOptions" {
            options["command"] = self.query.all("command").collect();
        }
        options
    }

    /// The options as kubelets read them, in the order of their names.
    fn stream_parameters(&self) -> String {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        match self.info.subresource.as_str() {
            "portforward" => {
                let ports: Vec<&str> = self
                    .query
                    .all("ports")
                    .filter(|port| port.parse::<i32>().is_ok())
                    .collect();
                return match ports.as_slice() {
                    [] => String::new(),
                    ports => encode(&[("port", &ports.join(","))]),
                };
            }
            "exec" => pairs.extend(self.query.all("command").map(|word| ("command", word))),
            _ => {}
        }
        for (ours, theirs) in [
            ("stderr", "error"),
            ("stdin", "input"),
            ("stdout", "output"),
            ("tty", "tty"),
        ] {
            if self.query.flag(ours) {
                pairs.push((theirs, "1"));
            }
        }
        encode(&pairs)
    }

    /// `nodes/proxy`, `pods/proxy`, `services/proxy`
    async fn proxy(&self, parts: &mut Parts, body: Body) -> ApiResult<Response<Body>> {
        let (prefix, below) = split_path(parts.uri.path(), self.resource.namespaced);
        let (prefix, below) = (prefix.to_owned(), below.to_owned());
        let kind = format!("{}ProxyOptions", self.resource.kind);
        let mut options = json!({"kind": kind, "apiVersion": "v1"});
        if !below.is_empty() {
            options["path"] = json!(below);
        }
        self.admit(options).await?;
        let endpoint = match self.info.resource.as_str() {
            "nodes" => self.node_endpoint().await?,
            "pods" => self.pod_endpoint()?,
            _ => self.service_endpoint()?,
        };
        let query = parts
            .uri
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let upgrades = relay::wants_upgrade(&parts.headers);
        if below.is_empty() && !upgrades && matches!(parts.method, Method::GET | Method::HEAD) {
            return redirect(&format!("{prefix}/{query}"));
        }
        let path = if below.is_empty() { "/" } else { &below };
        let passed = Passed {
            endpoint,
            path: format!("{path}{query}"),
            prefix: &prefix,
            shutdown: self.shutdown.clone(),
        };
        let kubelets = &self.server.kubelets;
        if upgrades {
            relay::upgrade(kubelets, parts, passed).await
        } else {
            relay::plain(kubelets, parts, body, passed).await
        }
    }

    fn target(&self, what: &str) -> ApiResult<address::Target<'_>> {
        let name = &self.info.name;
        address::split(name).ok_or_else(|| ApiError::bad_request(format!("invalid {what} request {name:?}")))
    }

    async fn node_endpoint(&self) -> ApiResult<Endpoint> {
        let target = self.target("node")?;
        let mut endpoint = self.kubelet(target.name)?;
        if !self.server.kubelets.options.proxy_to_any_address {
            proxyable_host(&endpoint.host).await?;
        }
        if !target.port.is_empty() && target.port != endpoint.port {
            endpoint.port = number(target.port)?;
            endpoint.transport = stranger(target.scheme);
        }
        Ok(endpoint)
    }

    fn pod_endpoint(&self) -> ApiResult<Endpoint> {
        let target = self.target("pod")?;
        let pod = self.object("pods", target.name)?;
        let port = match target.port {
            "" => pod["spec"]["containers"]
                .as_array()
                .into_iter()
                .flatten()
                .find_map(|container| container["ports"][0]["containerPort"].as_u64())
                .map(|port| port.to_string()),
            port => Some(number(port)?),
        };
        let transport = stranger(target.scheme);
        let port = port.unwrap_or_else(|| match transport {
            Transport::Tls => "443".to_owned(),
            _ => "80".to_owned(),
        });
        let ip = pod["status"]["podIPs"][0]["ip"]
            .as_str()
            .or_else(|| pod["status"]["podIP"].as_str())
            .unwrap_or_default();
        Ok(Endpoint {
            transport,
            host: self.proxyable_ip(ip)?,
            port,
        })
    }

    fn service_endpoint(&self) -> ApiResult<Endpoint> {
        let unavailable = |why: String| ApiError::new(503, "ServiceUnavailable", why);
        let target = self.target("service")?;
        let service = self.object("services", target.name)?;
        let mut port = target.port.to_owned();
        if let Ok(wanted) = target.port.parse::<u64>() {
            let ports = service["spec"]["ports"].as_array();
            port = ports
                .into_iter()
                .flatten()
                .find(|one| one["port"].as_u64() == Some(wanted))
                .map(|one| text(one, "name").to_owned())
                .ok_or_else(|| {
                    unavailable(format!(
                        "no service port {wanted} found for service {:?}",
                        target.name
                    ))
                })?;
        }
        let slices = self
            .reader()
            .list("discovery.k8s.io", "endpointslices", Some(&self.info.namespace));
        for slice in slices {
            if slice["metadata"]["labels"]["kubernetes.io/service-name"] != *target.name {
                continue;
            }
            let ports = slice["ports"].as_array();
            let number = ports
                .into_iter()
                .flatten()
                .find(|one| text(one, "name") == port)
                .and_then(|one| one["port"].as_u64());
            let address = slice["endpoints"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|endpoint| endpoint["conditions"]["ready"] != false)
                .find_map(|endpoint| endpoint["addresses"][0].as_str());
            if let (Some(number), Some(ip)) = (number, address) {
                return Ok(Endpoint {
                    transport: stranger(target.scheme),
                    host: self.proxyable_ip(ip)?,
                    port: number.to_string(),
                });
            }
        }
        Err(unavailable(format!(
            "no endpoints available for service {:?}",
            self.info.name
        )))
    }

    /// Where to connect to for the address of a pod.
    fn proxyable_ip(&self, ip: &str) -> ApiResult<String> {
        let any = self.server.kubelets.options.proxy_to_any_address;
        match ip.parse::<IpAddr>() {
            Ok(ip) if any || is_proxyable(ip) => Ok(self.server.options.pods.to(ip).to_string()),
            _ => Err(not_allowed()),
        }
    }
}

fn not_allowed() -> ApiError {
    ApiError::bad_request("address not allowed")
}

/// Refuses a name of which one address may not be proxied to.
async fn proxyable_host(host: &str) -> ApiResult<()> {
    let addresses = tokio::net::lookup_host((host, 0))
        .await
        .map_err(|error| ApiError::bad_request(format!("lookup {host}: {error}")))?;
    let mut any = false;
    for address in addresses {
        any = true;
        if !is_proxyable(address.ip()) {
            return Err(not_allowed());
        }
    }
    if any {
        Ok(())
    } else {
        Err(ApiError::bad_request("no addresses for hostname"))
    }
}

fn stranger(scheme: &str) -> Transport {
    if scheme == "https" {
        Transport::Tls
    } else {
        Transport::Plain
    }
}

fn number(port: &str) -> ApiResult<String> {
    match port.parse::<u16>() {
        Ok(number) => Ok(number.to_string()),
        Err(_) => Err(ApiError::bad_request(format!("invalid port {port:?}"))),
    }
}

fn redirect(to: &str) -> ApiResult<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_str(to)
        .map_err(|error| ApiError::bad_request(format!("cannot redirect to {to:?}: {error}")))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Path of the proxy without final slash, and what follows: empty, or with a slash at its beginning.
fn split_path(path: &str, namespaced: bool) -> (&str, &str) {
    // api, v1, (namespaces, NAMESPACE,) resource, NAME, proxy
    let mut wanted = if namespaced { 7 } else { 5 };
    let mut inside = false;
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            if wanted == 0 {
                return path.split_at(at);
            }
            inside = false;
        } else if !inside {
            inside = true;
            wanted -= 1;
        }
    }
    (path, "")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The container that is meant, if the pod has it.
fn container<'a>(pod: &'a Value, asked: &'a str) -> ApiResult<&'a str> {
    let name = text(&pod["metadata"], "name");
    let spec = &pod["spec"];
    let all: Vec<&str> = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .map(|container| text(container, "name"))
        .collect();
    if !asked.is_empty() {
        return if all.contains(&asked) {
            Ok(asked)
        } else {
            Err(ApiError::bad_request(format!(
                "container {asked} is not valid for pod {name}"
            )))
        };
    }
    match spec["containers"].as_array().map_or(&[][..], Vec::as_slice) {
        [only] => Ok(text(only, "name")),
        [] => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}

/// What a kubelet's refusal becomes.
fn kubelet_error(status: u16, resource: &str, name: &str, said: String) -> ApiError {
    let (reason, message) = match status {
        400 => return ApiError::bad_request(said),
        500 => {
            let mut error = ApiError::internal(format!("Internal error occurred: {said}"));
            error.details = json!({"causes": [{"message": said}]});
            return error;
        }
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".to_owned(),
        ),
        403 => ("Forbidden", said),
        404 => (
            "NotFound",
            "the server could not find the requested resource".to_owned(),
        ),
        405 => (
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        code if code >= 500 => (
            "InternalError",
            format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        ),
        code => (
            "",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    ApiError {
        details: json!({"name": name, "kind": resource}),
        ..ApiError::new(status, reason, format!("{message} ( {resource} {name})"))
    }
}
