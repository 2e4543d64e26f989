//! Paths that are no resources: version, health, discovery, schemas.

use super::respond::{json, text};
use crate::access::discovery;
use crate::access::tokens::TokenIssuer;
use crate::request::query::Query;
use crate::state::Shared;
use axum::body::Body;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http::request::Parts;
use http::{Method, Response};
use serde_json::{Value, json};

/// Checks that the health endpoints know; a process that answers passes them all.
const CHECKS: [&str; 4] = ["ping", "log", "store", "informer-sync"];

pub(crate) fn answer(server: &Shared, parts: &Parts, query: &Query) -> ApiResult<Response<Body>> {
    let path = parts.uri.path();
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(response) = health(path, query) {
        return Ok(response);
    }
    if let Some(document) = described(server, parts, path) {
        return Ok(document);
    }
    Ok(match path {
        "/version" | "/version/" => json(200, &version(&server.options.git_version)),
        "/.well-known/openid-configuration" => json(200, &TokenIssuer::openid_configuration()),
        "/metrics" => server.admin.metrics(),
        "/openid/v1/jwks" => json(200, &server.access.tokens.jwks()),
        _ => text(404, "404 page not found\n"),
    })
}

/// What is served, and how it looks.
fn described(server: &Shared, parts: &Parts, path: &str) -> Option<Response<Body>> {
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let accept = header(http::header::ACCEPT).unwrap_or_default();
    // HTTP/2 has no Host header.
    let host = header(http::header::HOST).or(parts.uri.authority().map(http::uri::Authority::as_str));
    let host = host.unwrap_or("localhost");
    let kinds = server.registry.snapshot();
    let document = discovery::answer(path, accept, host, &kinds).or_else(|| {
        let version = &server.options.git_version;
        server.access.openapi.answer(path, accept, version, &kinds)
    })?;
    let mut response = Response::new(Body::from(document.body));
    *response.status_mut() = document.status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(document.content_type),
    );
    Some(response)
}

fn health(path: &str, query: &Query) -> Option<Response<Body>> {
    let mut segments = path.trim_matches('/').split('/');
    let endpoint = segments.next()?;
    if !matches!(endpoint, "healthz" | "livez" | "readyz") {
        return None;
    }
    let check = segments.next();
    Some(match check {
        None if query.optional_flag("verbose").is_some() => {
            let lines = CHECKS.map(|check| format!("[+]{check} ok\n")).concat();
            text(200, format!("{lines}{endpoint} check passed\n"))
        }
        None => text(200, "ok"),
        Some(check) if CHECKS.contains(&check) => text(200, "ok"),
        Some(_) => text(404, "404 page not found\n"),
    })
}

/// `/version`: what clients compare with their own.
fn version(git_version: &str) -> Value {
    let mut numbers = git_version.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next().unwrap_or_default(),
        "minor": numbers.next().unwrap_or_default(),
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })
}

/// The architecture as Kubernetes names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_major_and_minor() {
        let version = version("v1.36.2");
        assert_eq!(
            (&version["major"], &version["minor"]),
            (&json!("1"), &json!("36"))
        );
    }

    #[test]
    fn health_knows_its_checks() {
        let status = |path: &str| health(path, &Query::default()).map(|response| response.status().as_u16());
        assert_eq!(status("/readyz"), Some(200));
        assert_eq!(status("/livez/ping"), Some(200));
        assert_eq!(status("/livez/nonsense"), Some(404));
        assert_eq!(status("/version"), None);
    }
}
