use super::super::auth::{Auth, Memory, Mode, Rules};
use super::super::fake::{Fake, Mood};
use super::super::{Node, Settings, router};
use super::peer;
use axum::body::Body;
use evenkeel_net::serve::PeerIdentity;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, Cluster, Options, api_server_with};
use http::Request;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// A user, and what it may do with `nodes`: subresources, verbs, names.
type User = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const USERS: [User; 6] = [
    (
        "system:anonymous",
        &["nodes/metrics", "nodes/stats"],
        &["get"],
        &[],
    ),
    ("scraper", &["nodes/metrics", "nodes/stats"], &["get"], &[]),
    ("lister", &["nodes/pods"], &["get"], &[]),
    ("reader", &["nodes/proxy"], &["get"], &[]),
    ("runner", &["nodes/proxy"], &["create"], &["n"]),
    ("nobody", &[], &[], &[]),
];

/// An API server with these users. Tokens are `token-NAME`.
async fn cluster() -> ApiServer {
    let token = |name: &str| evenkeel_apiserver::StaticToken {
        token: format!("token-{name}"),
        user: name.to_owned(),
        groups: Vec::new(),
    };
    let api = api_server_with(Options {
        tokens: USERS.iter().map(|(name, ..)| token(name)).collect(),
        ..Options::default()
    });
    let cluster = Cluster::of(&api);
    for (name, resources, verbs, names) in USERS {
        if resources.is_empty() {
            continue;
        }
        let mut rule = json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        cluster.grant(name, json!([rule])).await;
    }
    api
}

/// A client of the server that counts its requests and can be made to fail.
#[derive(Clone, Default)]
struct Line {
    requests: Arc<AtomicU32>,
    cut: Arc<AtomicBool>,
}

impl Line {
    fn client(&self, api: &ApiServer) -> kube::Client {
        let (line, inner) = (self.clone(), api.client());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (line, inner) = (line.clone(), inner.clone());
            async move {
                line.requests.fetch_add(1, Ordering::Relaxed);
                // Others get their turn while this is under way.
                tokio::task::yield_now().await;
                if line.cut.load(Ordering::Relaxed) {
                    return Err(tower::BoxError::from("the line is cut"));
                }
                Ok(inner.send(request).await?)
            }
        });
        kube::Client::new(service, "default")
    }
}

/// A kubelet that asks over `line`.
struct Kubelet(axum::Router);

impl Kubelet {
    fn new(api: &ApiServer, line: &Line) -> Self {
        Self::by(api, line, Rules::default())
    }

    fn by(api: &ApiServer, line: &Line, rules: Rules) -> Self {
        let auth = Auth::new(line.client(api), Memory::default()).by(rules);
        Self(router(Fake::new(Mood::Good), Settings::default(), auth))
    }

    async fn ask(
        &self,
        node: &str,
        method: &str,
        path: &str,
        token: Option<&str>,
        peer: PeerIdentity,
    ) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Node {
            name: node.into(),
            term: crate::Term::default(),
            streams: tokio_util::task::TaskTracker::new(),
        });
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn with_token(&self, node: &str, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
        self.ask(node, method, path, token, PeerIdentity::default()).await
    }
}

#[rstest]
#[case("n", "GET", "/pods", None, 401, "Unauthorized")]
#[case("n", "GET", "/pods", Some("token-wrong"), 401, "Unauthorized")]
#[case("n", "GET", "/nothing", None, 401, "Unauthorized")]
#[case("n", "GET", "/healthz", None, 401, "Unauthorized")]
#[case("n", "GET", "/metrics/resource", Some("token-scraper"), 200, "")]
#[case("n", "GET", "/stats/summary", Some("token-scraper"), 200, "")]
#[case(
    "n",
    "POST",
    "/stats/summary",
    Some("token-scraper"),
    403,
    "Forbidden (user=scraper, verb=create, resource=nodes, subresource(s)=[stats])\n"
)]
#[case(
    "n",
    "GET",
    "/pods",
    Some("token-scraper"),
    403,
    "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
)]
#[case("n", "GET", "/pods", Some("token-lister"), 200, "")]
#[case("n", "GET", "/runningpods/", Some("token-lister"), 200, "")]
#[case(
    "n",
    "GET",
    "/healthz",
    Some("token-lister"),
    403,
    "Forbidden (user=lister, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n"
)]
#[case("n", "GET", "/pods", Some("token-reader"), 200, "")]
#[case("n", "GET", "/healthz", Some("token-reader"), 200, "")]
#[case("n", "GET", "/containerLogs/default/web/c", Some("token-reader"), 200, "")]
#[case("n", "GET", "/nothing", Some("token-reader"), 404, "404 page not found\n")]
#[case("n", "HEAD", "/healthz", Some("token-reader"), 403, "")]
#[case(
    "n",
    "GET",
    "/metrics/resource",
    Some("token-reader"),
    403,
    "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[metrics])\n"
)]
#[case(
    "n",
    "POST",
    "/run/default/web/c?cmd=ls",
    Some("token-reader"),
    403,
    "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"
)]
#[case("n", "POST", "/run/default/web/c?cmd=ls", Some("token-runner"), 200, "")]
#[case(
    "m",
    "POST",
    "/run/default/web/c?cmd=ls",
    Some("token-runner"),
    403,
    "Forbidden (user=runner, verb=create, resource=nodes, subresource(s)=[proxy])\n"
)]
#[case(
    "n",
    "GET",
    "/checkpoint/default/web/c",
    Some("token-reader"),
    403,
    "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[checkpoint])\n"
)]
#[case(
    "n",
    "GET",
    "/logs/messages",
    Some("token-nobody"),
    403,
    "Forbidden (user=nobody, verb=get, resource=nodes, subresource(s)=[log])\n"
)]
#[tokio::test]
async fn the_api_server_decides(
    #[case] node: &str,
    #[case] method: &str,
    #[case] path: &str,
    #[case] token: Option<&str>,
    #[case] status: u16,
    #[case] body: &str,
) {
    let api = cluster().await;
    let kubelet = Kubelet::new(&api, &Line::default());
    let (got, text) = kubelet.with_token(node, method, path, token).await;
    assert_eq!(got, status, "{text}");
    assert!(body.is_empty() || text == body, "{text:?}");
}

#[tokio::test]
async fn a_client_certificate_is_asked_about_with_its_groups() {
    let api = cluster().await;
    let kubelet = Kubelet::new(&api, &Line::default());
    let shows = |user, groups: &[&str]| {
        let identity = api.client_certificate(user, groups).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(identity.certificate_pem.as_bytes()).unwrap();
        PeerIdentity {
            certificate: Some(Arc::new(pem.contents)),
            address: None,
        }
    };
    let admin = shows("root", &["system:masters"]);
    // Groups count for verbs that have no name, too.
    assert_eq!(kubelet.ask("n", "HEAD", "/healthz", None, admin).await.0, 200);
    let (status, text) = kubelet
        .ask("n", "GET", "/pods", None, shows("jane", &["devs"]))
        .await;
    let expected = "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
    assert_eq!((status, text.as_str()), (403, expected));
    // The certificate comes first, as upstream.
    let (status, _) = kubelet
        .ask("n", "GET", "/pods", Some("token-reader"), shows("jane", &[]))
        .await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn the_same_is_not_asked_twice() {
    let api = cluster().await;
    let line = Line::default();
    let kubelet = Kubelet::new(&api, &line);
    let scrape = || kubelet.with_token("n", "GET", "/stats/summary", Some("token-scraper"));
    let answers = futures::future::join_all((0..50).map(|_| scrape())).await;
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    // One TokenReview, one SubjectAccessReview.
    assert_eq!(line.requests.load(Ordering::Relaxed), 2);
    scrape().await;
    assert_eq!(line.requests.load(Ordering::Relaxed), 2);
    // Another node is another question, about a token that is known.
    let (status, _) = kubelet
        .with_token("m", "GET", "/stats/summary", Some("token-scraper"))
        .await;
    assert_eq!((status, line.requests.load(Ordering::Relaxed)), (200, 3));
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_or_given_counts_when_the_memory_is_over() {
    let api = cluster().await;
    let kubelet = Kubelet::new(&api, &Line::default());
    let status = async |token| kubelet.with_token("n", "GET", "/pods", Some(token)).await.0;
    assert_eq!(
        (status("token-lister").await, status("token-scraper").await),
        (200, 403)
    );
    let bindings: Api<ClusterRoleBinding> = Api::all(api.client());
    let mut binding = bindings.get("lister").await.unwrap();
    let subject = &mut binding.subjects.as_mut().unwrap()[0];
    "scraper".clone_into(&mut subject.name);
    bindings
        .replace("lister", &PostParams::default(), &binding)
        .await
        .unwrap();

    tokio::time::advance(std::time::Duration::from_secs(29)).await;
    assert_eq!(
        (status("token-lister").await, status("token-scraper").await),
        (200, 403)
    );
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(
        (status("token-lister").await, status("token-scraper").await),
        (200, 200)
    );
    tokio::time::advance(std::time::Duration::from_secs(270)).await;
    assert_eq!(
        (status("token-lister").await, status("token-scraper").await),
        (403, 200)
    );
}

#[tokio::test]
async fn without_the_api_server_nobody_may_anything_and_nothing_of_it_is_remembered() {
    let api = cluster().await;
    let line = Line::default();
    let kubelet = Kubelet::new(&api, &line);
    line.cut.store(true, Ordering::Relaxed);
    let read = || kubelet.with_token("n", "GET", "/pods", Some("token-reader"));
    assert_eq!(read().await, (500, "Authentication error".to_owned()));
    line.cut.store(false, Ordering::Relaxed);
    // Now the token is known, and what it may do with the other path is not.
    assert_eq!(read().await.0, 200);
    line.cut.store(true, Ordering::Relaxed);
    assert_eq!(read().await.0, 200);
    let (status, text) = kubelet
        .with_token("n", "GET", "/healthz", Some("token-reader"))
        .await;
    let expected = "Authorization error (user=reader, verb=get, resource=nodes, subresource=healthz)";
    assert_eq!((status, text.as_str()), (500, expected));
    line.cut.store(false, Ordering::Relaxed);
    assert_eq!(
        kubelet
            .with_token("n", "GET", "/healthz", Some("token-reader"))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn a_door_knows_its_clients_by_the_published_authority() {
    use super::super::listeners::{Listeners, Settings as At};
    use super::super::tls::clients::follow_config_map;
    use evenkeel_net::serve::ServerTls;
    use evenkeel_testkit::until;
    use k8s_openapi::api::core::v1::ConfigMap;

    let api = cluster().await;
    let serving = peer::ca("serving");
    let tls = ServerTls::new(&peer::serving(&serving), None).unwrap();
    let shutdown = CancellationToken::new();
    let auth = Auth::new(api.client(), Memory::default());
    let app = router(Fake::new(Mood::Good), Settings::default(), auth);
    let at = At {
        address: "127.0.0.1".parse().unwrap(),
        first_port: 0,
    };
    let listeners = Listeners::new(at, tls.clone(), app, shutdown.clone());
    let address = listeners.open("n").unwrap();
    let status = async |credential| {
        let client = peer::client(address, &serving, credential).await;
        peer::get(&client, "/pods")
            .await
            .map(|response| response.status().as_u16())
    };
    let admin =
        || peer::Credential::Certificate(api.client_certificate("root", &["system:masters"]).unwrap());
    assert_eq!(status(peer::Credential::Token("token-reader")).await, Some(200));
    // Nobody asks for the certificate yet.
    assert_eq!(status(admin()).await, Some(401));

    tokio::spawn(follow_config_map(api.client(), tls, shutdown.clone()));
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), "kube-system");
    let map: Value = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": api.ca().certificate_pem()},
    });
    if maps
        .get_opt("extension-apiserver-authentication")
        .await
        .unwrap()
        .is_none()
    {
        let map = serde_json::from_value(map).unwrap();
        maps.add(&map).await;
    }
    until("the authority is trusted", async || {
        status(admin()).await == Some(200)
    })
    .await;
    assert_eq!(status(peer::Credential::Nothing).await, Some(401));
    shutdown.cancel();
    listeners.closed().await;
}

const STATS: &str = "/stats/summary";
const LOGS: &str = "/containerLogs/default/web/c";

#[rstest]
// Whoever shows nothing has what RBAC gives to system:anonymous, and a wrong token is no better than before.
#[case(true, Mode::Webhook, STATS, None, "192.0.2.1", 200)]
#[case(true, Mode::Webhook, LOGS, None, "192.0.2.1", 403)]
#[case(true, Mode::Webhook, LOGS, None, "127.0.0.1", 403)]
#[case(true, Mode::Webhook, STATS, Some("token-wrong"), "192.0.2.1", 401)]
#[case(true, Mode::Webhook, LOGS, Some("token-reader"), "192.0.2.1", 200)]
#[case(false, Mode::AlwaysAllow, STATS, None, "127.0.0.1", 401)]
#[case(false, Mode::AlwaysAllow, STATS, Some("token-wrong"), "127.0.0.1", 401)]
#[case(false, Mode::AlwaysAllow, LOGS, Some("token-nobody"), "192.0.2.1", 200)]
#[case(true, Mode::AlwaysAllow, STATS, None, "192.0.2.1", 200)]
#[case(true, Mode::AlwaysAllow, "/pods", None, "192.0.2.1", 200)]
#[case(true, Mode::AlwaysAllow, LOGS, None, "192.0.2.1", 403)]
#[case(true, Mode::AlwaysAllow, "/logs/messages", None, "192.0.2.1", 403)]
#[case(
    true,
    Mode::AlwaysAllow,
    "/exec/default/web/c?command=ls",
    None,
    "192.0.2.1",
    403
)]
#[case(true, Mode::AlwaysAllow, LOGS, None, "127.0.0.1", 200)]
#[case(true, Mode::AlwaysAllow, LOGS, None, "::ffff:127.0.0.1", 200)]
#[tokio::test]
async fn who_may_without_a_credential_is_a_matter_of_flags(
    #[case] anonymous: bool,
    #[case] mode: Mode,
    #[case] path: &str,
    #[case] token: Option<&str>,
    #[case] from: &str,
    #[case] status: u16,
) {
    let api = cluster().await;
    let kubelet = Kubelet::by(&api, &Line::default(), Rules { anonymous, mode });
    let peer = PeerIdentity {
        certificate: None,
        address: Some(std::net::SocketAddr::new(from.parse().unwrap(), 40_000)),
    };
    let (found, body) = kubelet.ask("n", "GET", path, token, peer).await;
    assert_eq!(found, status, "{body}");
}
