use super::*;
use evenkeel_koupleless::baseline::Baseline;
use evenkeel_koupleless::core::baseline::BaselineEntry;
use evenkeel_koupleless::discovery::nodes;
use evenkeel_koupleless::discovery::token::Tokens;
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use evenkeel_net::serve::ServerTls;
use evenkeel_testkit::log::Log;
use kube::ResourceExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_makes_the_node_of_the_released_controller() {
    let (_api, client) = api().await;
    let mut replica = Replica::open(&client, Settings::default(), false).await;
    let answer = replica.beat(&heartbeat("192.0.2.2", 12380)).await;
    assert_eq!(answer, (200, "SUCCESS".to_owned()));
    let event = replica.next().await;
    assert_eq!(
        (&*event.node, event.change),
        ("vnode.192.0.2.2.dev", Change::Online)
    );
    assert_eq!(replica.fleet.wanted(), ["vnode.192.0.2.2.dev"]);
    let node = node(&client, "vnode.192.0.2.2.dev", |_| true).await;
    for (key, value) in [
        ("base.koupleless.io/name", "TO_BE_IMPLEMENTED"),
        ("base.koupleless.io/version", "1.0.0"),
        ("base.koupleless.io/cluster-name", "default"),
        ("base.koupleless.io/host-name", "web-7"),
        ("base.koupleless.io/tunnel-port", "12380"),
        ("virtual-kubelet.koupleless.io/component", "vnode"),
        ("virtual-kubelet.koupleless.io/env", "dev"),
        ("kubernetes.io/hostname", "web-7"),
        ("type", "virtual-kubelet"),
    ] {
        assert_eq!(node.labels()[key], value, "{key}");
    }
    let taints = node.spec.clone().unwrap().taints.unwrap();
    let ours = taints.iter().filter(|taint| taint.key.contains("koupleless"));
    let taints: Vec<String> = ours
        .map(|taint| {
            format!(
                "{}={}:{}",
                taint.key,
                taint.value.as_deref().unwrap(),
                taint.effect
            )
        })
        .collect();
    let expected = [
        "schedule.koupleless.io/virtual-node=True:NoExecute",
        "schedule.koupleless.io/node-env=dev:NoExecute",
    ];
    assert_eq!(taints, expected);
    let recorded = nodes::record(&node, "dev", false).unwrap();
    assert_eq!(recorded, *replica.base("192.0.2.2").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_served_here_is_left_to_the_fleet() {
    let (_api, client) = api().await;
    let mut replica = Replica::open(&client, Settings::default(), true).await;
    replica.beat(&heartbeat("a", 1238)).await;
    replica.next().await;
    let elsewhere = Replica::open(&client, Settings::default(), false).await;
    elsewhere.beat(&heartbeat("b", 1238)).await;
    // The second comes later and is created: so would the first have been.
    node(&client, "vnode.b.dev", |_| true).await;
    let nodes: Api<Node> = Api::all(client.clone());
    assert!(nodes.get_opt("vnode.a.dev").await.unwrap().is_none());
}

#[tokio::test]
async fn garbage_is_refused_with_words_and_harms_nobody() {
    let log = Log::capture();
    let (_api, client) = api().await;
    let replica = Replica::open(&client, Settings::default(), true).await;
    let deep = "[".repeat(50_000);
    for (body, words) in [
        ("", "not a heartbeat"),
        ("{", "not JSON"),
        ("[]", "baseMetadata is missing"),
        (r#"{"baseMetadata":{}}"#, "identity is missing"),
        (r#"{"baseMetadata":{"identity":"a/b"}}"#, "character '/'"),
        (r#"{"baseMetadata":7}"#, "identity is missing"),
        (r#"{"baseMetadata":{"identity":["a"]}}"#, "identity is missing"),
        ("\0\u{1}", "not JSON"),
        (&deep, "not JSON"),
    ] {
        let (status, text) = replica.beat(body).await;
        assert_eq!(status, 400, "{body}: {text}");
        assert!(text.contains(words), "{body}: {text}");
    }
    let (status, _) = replica.beat(&"x".repeat(64 * 1024 + 1)).await;
    assert_eq!(status, 413);
    let address = replica.address.unwrap();
    for (request, status) in [
        (
            "GET /heartbeat HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            405,
        ),
        (
            "PUT /queryBaseline HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            405,
        ),
        ("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404),
        ("nonsense\r\n\r\n", 400),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(&mut stream, request).await.0, status, "{request}");
    }
    // Those that say nothing more keep nobody.
    let mut slow = Vec::new();
    for request in [
        "",
        "POST /heart",
        "POST /heartbeat HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{",
    ]
    .repeat(20)
    {
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(request.as_bytes()).await.unwrap();
        slow.push(half);
    }
    assert_eq!(replica.discovery.bases().len(), 0);
    assert_eq!(replica.beat(&heartbeat("a", 1238)).await.0, 200);
    assert_eq!(replica.discovery.bases().len(), 1);
    log.says_once(&["WARN", "a heartbeat is not taken", "127.0.0.1"]);
}

#[tokio::test]
async fn who_speaks_for_another_address_is_refused() {
    let log = Log::capture();
    let (_api, client) = api().await;
    let replica = Replica::open(&client, Settings::default(), true).await;
    let forged = heartbeat("192.0.2.9", 1238).replace("127.0.0.1", "192.0.2.9");
    let (status, text) = replica.beat(&forged).await;
    assert_eq!(status, 403);
    assert!(text.contains("speaks from 127.0.0.1"), "{text}");
    assert_eq!(replica.discovery.bases().len(), 0);
    replica.beat(&forged).await;
    log.says_once(&["WARN", "base 192.0.2.9 says", "speaks from 127.0.0.1"]);
}

#[tokio::test]
async fn who_speaks_for_a_living_base_is_refused_and_the_base_stays_where_it_is() {
    let log = Log::capture();
    let (_api, client) = api().await;
    let settings = Settings {
        check_addresses: false,
        ..Settings::default()
    };
    let replica = Replica::open(&client, settings, true).await;
    assert_eq!(replica.beat(&heartbeat("shop", 1238)).await.0, 200);
    let before = replica.base("shop").unwrap();
    // Even where no address is checked.
    let forged = heartbeat("shop", 1238).replace("127.0.0.1", "192.0.2.9");
    for forged in [forged.clone(), forged.replace("activated", "deactivated")] {
        let (status, text) = replica.beat(&forged).await;
        assert_eq!(status, 403, "{text}");
        assert!(text.contains("base shop lives at 127.0.0.1"), "{text}");
    }
    assert_eq!(replica.base("shop").unwrap(), before);
    let node = replica.discovery.node_of(&before.identity).unwrap();
    assert_eq!(
        replica.discovery.life(&node),
        Some(evenkeel_koupleless::core::registry::Life::Alive)
    );
    log.says_once(&["WARN", "base shop lives at 127.0.0.1", "192.0.2.9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_node_can_have_are_cleaned_and_no_two_bases_share_one() {
    let (_api, client) = api().await;
    let replica = Replica::open(&client, Settings::default(), false).await;
    let long = "x".repeat(253);
    let identities = [
        "Shop_1", "shop_1", "shop-1", "SHOP_1", "fe80::1", "..", "-", &long,
    ];
    for identity in identities {
        let beat = heartbeat(identity, 1238)
            .replace("web-7", "Web 7.Example!")
            .replace("TO_BE_IMPLEMENTED", "Käse & more")
            .replace("1.0.0", "1.0 (beta)/2");
        assert_eq!(replica.beat(&beat).await.0, 200, "{identity}");
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let all = eventually("all have Nodes", DEADLINE, async || {
        let all = nodes.list(&Default::default()).await.unwrap().items;
        (all.len() == identities.len()).then_some(all)
    })
    .await;
    let mut recorded: Vec<String> = all
        .iter()
        .map(|node| nodes::record(node, "dev", false).unwrap().identity.to_string())
        .collect();
    let mut wanted = identities.map(str::to_owned);
    recorded.sort();
    wanted.sort();
    assert_eq!(recorded, wanted);
    for node in &all {
        let name = node.name_any();
        assert!(name.starts_with("vnode."), "{name}");
        assert_eq!(node.labels()["base.koupleless.io/version"], "1.0--beta--2");
        assert_eq!(node.labels()["base.koupleless.io/host-name"], "Web-7.Example");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_new_names_from_one_peer_ends_at_the_limit() {
    let (_api, client) = api().await;
    let settings = Settings {
        newcomers: 3,
        ..Settings::default()
    };
    let replica = Replica::open(&client, settings, true).await;
    let mut refused = 0;
    for number in 0..20 {
        let (status, _) = replica.beat(&heartbeat(&format!("base-{number}"), 1238)).await;
        refused += u32::from(status == 429);
    }
    assert_eq!((replica.discovery.bases().len(), refused), (3, 17));
    assert_eq!(replica.beat(&heartbeat("base-0", 1238)).await.0, 200);
}

#[tokio::test]
async fn a_token_is_asked_for_and_may_change() {
    let log = Log::capture();
    let (_api, client) = api().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, "one").unwrap();
    let auth = Auth {
        tokens: Some(Tokens::read(&path).unwrap()),
        certificate: false,
    };
    let sources = Sources {
        heartbeats: Some(listener(auth).await),
        ..Sources::default()
    };
    let setup = Setup {
        sources,
        ..Setup::default()
    };
    let replica = Replica::start(&client, setup);
    let beat = async |header: &str| {
        let mut stream = TcpStream::connect(replica.address.unwrap()).await.unwrap();
        exchange(&mut stream, &post("/heartbeat", header, &heartbeat("a", 1238))).await
    };
    let (status, head, _) = beat("").await;
    assert_eq!(status, 401);
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    assert_eq!(beat("authorization: Basic one\r\n").await.0, 401);
    assert_eq!(beat("authorization: Bearer two\r\n").await.0, 403);
    log.says_once(&[
        "WARN",
        "a heartbeat is not taken",
        "127.0.0.1",
        "a bearer token is needed",
    ]);
    assert_eq!(replica.discovery.bases().len(), 0);
    assert_eq!(beat("authorization: Bearer one\r\n").await.0, 200);
    std::fs::write(&path, "two\n").unwrap();
    until("the new token counts", async || {
        beat("authorization: Bearer two\r\n").await.0 == 200
    })
    .await;
    assert_eq!(beat("authorization: Bearer one\r\n").await.0, 403);
    let mut stream = TcpStream::connect(replica.address.unwrap()).await.unwrap();
    let query = post("/queryBaseline", "", r#"{"identity":"a"}"#);
    assert_eq!(exchange(&mut stream, &query).await.0, 401, "for all paths");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_will_do() {
    let (_api, client) = api().await;
    let validity = Validity {
        from: 0,
        until: 4_000_000_000,
    };
    let ca = Ca::new("bases", validity).unwrap();
    let names = ServerNames {
        ips: vec!["127.0.0.1".parse().unwrap()],
        ..ServerNames::default()
    };
    let serving = ca.issue_server("discovery", &names, validity).unwrap();
    let tls = ServerTls::new(&serving, Some(ca.certificate_pem())).unwrap();
    let auth = Auth {
        tokens: None,
        certificate: true,
    };
    let sources = Sources {
        heartbeats: Some(Listener {
            tls: Some(tls),
            ..listener(auth).await
        }),
        ..Sources::default()
    };
    let setup = Setup {
        sources,
        ..Setup::default()
    };
    let replica = Replica::start(&client, setup);

    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let holder = ca.issue_client("base", &[], validity).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(holder.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(holder.key_pem.as_bytes()).unwrap();
    let known = builder.clone().with_client_auth_cert(chain, key).unwrap();
    let unknown = builder.with_no_client_auth();
    for (config, expected) in [(unknown, 401), (known, 200)] {
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(replica.address.unwrap()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = post("/heartbeat", "", &heartbeat("a", 1238));
        assert_eq!(exchange(&mut stream, &request).await.0, expected);
    }
}

/// A module for the cluster `blue`.
struct Blue;

impl Baseline for Blue {
    fn of(&self, cluster: Option<&str>) -> Vec<BaselineEntry> {
        let entry = BaselineEntry {
            biz_name: "m".to_owned(),
            biz_version: "1".to_owned(),
            biz_url: "file:///m.jar".to_owned(),
        };
        Some(entry)
            .filter(|_| cluster == Some("blue"))
            .into_iter()
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_may_ask_what_it_should_run() {
    let (_api, client) = api().await;
    let baseline = json!([{"bizName": "m", "bizVersion": "1", "bizUrl": "file:///m.jar"}]);
    let sources = Sources {
        heartbeats: Some(Listener {
            baseline: Some(Arc::new(Blue)),
            ..listener(Auth::default()).await
        }),
        ..Sources::default()
    };
    let setup = Setup {
        sources,
        ..Setup::default()
    };
    let replica = Replica::start(&client, setup);
    let ask = async |body: &str| {
        let mut stream = TcpStream::connect(replica.address.unwrap()).await.unwrap();
        exchange(&mut stream, &post("/queryBaseline", "", body)).await
    };
    let query = r#"{"clusterName":"blue","identity":"a","name":"n","version":"1"}"#;
    let (status, _, text) = ask(query).await;
    assert_eq!(
        (status, serde_json::from_str::<Value>(&text).unwrap()),
        (200, baseline)
    );
    assert_eq!(ask(&query.replace("blue", "red")).await.2, "[]");
    assert_eq!(ask("{}").await.0, 400);
}
