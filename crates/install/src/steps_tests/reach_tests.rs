//! Whether the API server reaches the webhook, against scripted answers of its proxy.

use crate::install::reached;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use rstest::rstest;
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An API server that fails to reach the Service for so long, for this reason, and is then answered.
fn server(reason: &'static str, fails_for: Duration) -> Client {
    let begun = Instant::now();
    let answer = move |_: Request<Body>| async move {
        let response = if begun.elapsed() < fails_for {
            let status = json!({"kind": "Status", "code": 503, "message": reason});
            let response = Response::builder()
                .status(503)
                .header("content-type", "application/json");
            response.body(Body::from(status.to_string().into_bytes()))
        } else {
            Response::builder().body(Body::from(b"ok".to_vec()))
        };
        Ok::<_, Infallible>(response.unwrap())
    };
    Client::new(tower::service_fn(answer), "default")
}

const SILENT: &str = "error trying to reach service: dial tcp 10.1.0.7:9443: i/o timeout";

#[rstest]
#[case::it_answers("", 0, None)]
#[case::it_answers_soon(SILENT, 5, None)]
#[case::it_never_answers(
    SILENT,
    600,
    Some("dial tcp 10.1.0.7:9443: i/o timeout. Let the API server's hosts")
)]
#[case::whom_nobody_serves_holds_nobody_up(
    "no endpoints available for service \"evenkeel-webhook\"",
    600,
    None
)]
#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_not_reached_is_refused(
    #[case] reason: &'static str,
    #[case] fails_for: u64,
    #[case] refused: Option<&str>,
) {
    let client = server(reason, Duration::from_secs(fails_for));
    let outcome = reached(&client, "evenkeel-system", &CancellationToken::new()).await;
    let said = outcome.err().map(|error| error.to_string());
    match refused {
        None => assert_eq!(said, None),
        Some(words) => assert!(said.as_ref().is_some_and(|said| said.contains(words)), "{said:?}"),
    }
}
