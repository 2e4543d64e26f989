//! `/healthz` and its checks: `ping`, `log`, and `syncloop`, which fails while the node is not well.

use super::{Node, Server, text};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// In the kubelet's order.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// What one check finds; `Some` is what is wrong.
fn check(server: &Server, node: &Node, name: &str) -> Option<String> {
    match name {
        "syncloop" => server.backend.ill(&node.name),
        _ => None,
    }
}

pub(super) async fn all(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let mut excluded: BTreeSet<&str> = query
        .iter()
        .filter(|(name, _)| name == "exclude")
        .map(|(_, check)| check.as_str())
        .collect();
    let (mut report, mut failed) = (String::new(), false);
    for name in CHECKS {
        let line = if excluded.remove(name) {
            format!("[+]{name} excluded: ok\n")
        } else if check(&server, &node, name).is_some() {
            failed = true;
            // Why is told by the check's own path alone, which needs permission of its own upstream.
            format!("[-]{name} failed: reason withheld\n")
        } else {
            format!("[+]{name} ok\n")
        };
        report.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(", ")
        );
    }
    if failed {
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{report}healthz check failed\n"),
        );
    }
    if query.iter().any(|(name, _)| name == "verbose") {
        return plain(StatusCode::OK, format!("{report}healthz check passed\n"));
    }
    plain(StatusCode::OK, "ok".to_owned())
}

/// One check by name.
pub(super) async fn one(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path(name): Path<String>,
) -> Response {
    if !CHECKS.contains(&name.as_str()) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    match check(&server, &node, &name) {
        None => plain(StatusCode::OK, "ok".to_owned()),
        Some(why) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {why}\n"),
        ),
    }
}

fn plain(status: StatusCode, words: String) -> Response {
    ([(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text(status, words)).into_response()
}
