//! Tokens: where else they may come in, and that they go nowhere.

use super::super::auth::{Attributes, Auth, Memory, Refused};
use evenkeel_testkit::log::Log;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use kube::client::Body;

/// An API server that answers everything with this.
fn answering(body: &'static str) -> Auth {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        Ok::<_, tower::BoxError>(Response::new(Body::from(body.as_bytes().to_vec())))
    });
    Auth::new(kube::Client::new(service, "default"), Memory::default())
}

async fn checked(auth: &Auth, headers: &HeaderMap) -> Result<String, Refused> {
    let attributes = Attributes {
        method: &Method::GET,
        path: "/pods",
        headers,
    };
    auth.check("n", None, &attributes)
        .await
        .map(|user| user.name.clone())
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_logged() {
    let log = Log::from(tracing::Level::TRACE);
    let auth = answering(r#"{"spec": {"token": "secret-token"}, "status": "secret-token"}"#);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer secret-token"));
    let refused = checked(&auth, &headers).await;
    assert!(matches!(refused, Err(Refused::NotAuthenticated)), "{refused:?}");
    let logged = log.lines().join("\n");
    assert!(
        logged.contains("the API server's answer to a TokenReview cannot be read"),
        "{logged}"
    );
    assert!(!logged.contains("secret"), "{logged}");
}

#[tokio::test]
async fn a_websockets_token_may_be_a_subprotocol_beside_another() {
    let auth = answering(
        r#"{"spec": {}, "status": {"authenticated": true, "allowed": true, "user": {"username": "u"}}}"#,
    );
    let mut headers = HeaderMap::new();
    headers.insert("connection", HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("websocket"));
    let token = "base64url.bearer.authorization.k8s.io.dG9rZW4";
    for (protocols, known) in [
        (token.to_owned(), false),
        (format!("{token}, v4.channel.k8s.io"), true),
    ] {
        let protocols = HeaderValue::try_from(protocols).unwrap();
        headers.insert("sec-websocket-protocol", protocols);
        assert_eq!(checked(&auth, &headers).await.is_ok(), known);
    }
}
