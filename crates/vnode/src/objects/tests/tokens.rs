//! Tokens by TokenRequest.

use super::*;
use crate::provider::FaultKind;
use base64::Engine as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::advance;

static API: TokenSource = TokenSource {
    audience: String::new(),
    expiration: 3600,
};

/// A server with a pod of ServiceAccount `robot`.
async fn with_pod() -> (ApiServer, PodId) {
    let server = api_server();
    let client = server.client();
    create::<ServiceAccount>(&client, json!({"metadata": {"name": "robot"}})).await;
    let pod: Pod = create(
        &client,
        json!({
            "metadata": {"name": "a"},
            "spec": {"serviceAccountName": "robot", "containers": [{"name": "main", "image": "i"}]},
        }),
    )
    .await;
    let id = PodId {
        uid: pod.metadata.uid.unwrap().into(),
        namespace: "default".into(),
        name: "a".into(),
        node: "n".into(),
    };
    (server, id)
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a JWT");
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(payload)
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn a_token_is_the_pods_and_is_asked_for_once() {
    let (server, pod) = with_pod().await;
    let (client, log) = noted(server.client());
    let objects = Objects::new(client);
    let tokens = join_all((0..50).map(|_| objects.token(&pod, "robot", &API))).await;
    let token = tokens[0].clone().unwrap();
    assert!(tokens.iter().all(|other| other.as_ref() == Ok(&token)));
    assert_eq!(
        log.lines(),
        ["POST /api/v1/namespaces/default/serviceaccounts/robot/token"]
    );
    let claims = claims(&token);
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(claims["kubernetes.io"]["pod"]["uid"], *pod.uid);
    assert_eq!(
        claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
        3600
    );
}

#[tokio::test]
async fn audiences_and_lives_have_tokens_of_their_own_until_the_pod_is_forgotten() {
    let (server, pod) = with_pod().await;
    let (client, log) = noted(server.client());
    let objects = Objects::new(client);
    let vault = TokenSource {
        audience: "vault".to_owned(),
        expiration: 600,
    };
    for _ in 0..2 {
        let token = objects.token(&pod, "robot", &vault).await.unwrap();
        assert_eq!(claims(&token)["aud"], json!(["vault"]));
        objects.token(&pod, "robot", &API).await.unwrap();
    }
    assert_eq!(log.lines().len(), 2);
    assert_eq!(objects.inner.tokens.kept(), 2);
    objects.forget(&pod);
    assert_eq!(objects.inner.tokens.kept(), 0);
    objects.token(&pod, "robot", &API).await.unwrap();
    assert_eq!(log.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_when_four_fifths_of_its_life_are_over() {
    let (server, pod) = with_pod().await;
    let objects = Objects::new(server.client());
    let token = objects.token(&pod, "robot", &API).await.unwrap();
    // Less the jitter of ten seconds.
    advance(Duration::from_secs(2860)).await;
    assert_eq!(objects.token(&pod, "robot", &API).await.unwrap(), token);
    advance(Duration::from_secs(30)).await;
    assert_ne!(objects.token(&pod, "robot", &API).await.unwrap(), token);
}

#[tokio::test(start_paused = true)]
async fn a_long_token_is_renewed_after_a_day() {
    let (server, pod) = with_pod().await;
    let objects = Objects::new(server.client());
    let week = TokenSource {
        audience: String::new(),
        expiration: 7 * 24 * 3600,
    };
    let token = objects.token(&pod, "robot", &week).await.unwrap();
    advance(Duration::from_secs(24 * 3600 - 20)).await;
    assert_eq!(objects.token(&pod, "robot", &week).await.unwrap(), token);
    advance(Duration::from_secs(30)).await;
    assert_ne!(objects.token(&pod, "robot", &week).await.unwrap(), token);
}

#[tokio::test(start_paused = true)]
async fn while_renewal_fails_the_old_token_serves_to_its_end() {
    let (server, pod) = with_pod().await;
    let broken = Arc::new(AtomicBool::new(false));
    let (client, switch) = (server.client(), broken.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, broken) = (client.clone(), switch.load(Ordering::Relaxed));
        async move {
            if broken {
                return Err(std::io::Error::other("the line is cut").into());
            }
            client.send(request).await.map_err(tower::BoxError::from)
        }
    });
    let objects = Objects::new(Client::new(service, "default"));
    let token = objects.token(&pod, "robot", &API).await.unwrap();
    broken.store(true, Ordering::Relaxed);
    advance(Duration::from_secs(3500)).await;
    assert_eq!(objects.token(&pod, "robot", &API).await.unwrap(), token);
    advance(Duration::from_secs(101)).await;
    let fault = objects.token(&pod, "robot", &API).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Later);
    assert!(
        fault
            .message
            .contains("serviceaccount default/robot for pod default/a")
            && fault.message.contains("the line is cut"),
        "{fault}"
    );
    broken.store(false, Ordering::Relaxed);
    assert_ne!(objects.token(&pod, "robot", &API).await.unwrap(), token);
}

#[tokio::test]
async fn a_token_that_is_refused_is_a_fault_that_names_account_and_pod() {
    let (server, pod) = with_pod().await;
    let objects = Objects::new(server.client());
    let missing = objects.token(&pod, "nobody", &API).await.unwrap_err();
    assert_eq!(missing.kind, FaultKind::Later, "it may appear");
    assert!(
        missing
            .message
            .starts_with("cannot get a token of serviceaccount default/nobody for pod default/a: "),
        "{missing}"
    );
    let short = TokenSource {
        audience: String::new(),
        expiration: 10,
    };
    let refused = objects.token(&pod, "robot", &short).await.unwrap_err();
    assert_eq!(refused.kind, FaultKind::Invalid, "{refused}");
    let other = PodId {
        uid: "another".into(),
        ..pod
    };
    assert!(objects.token(&other, "robot", &API).await.is_err());
    let denied = Objects::new(server.client_as("stranger", &[]));
    let denied = denied.token(&other, "robot", &API).await.unwrap_err();
    assert!(denied.message.contains("HTTP 403"), "{denied}");
}
