use crate::tls::{DEADLINE, ca, server_identity, validity};
use axum::Router;
use axum::extract::Extension;
use axum::http::HeaderMap;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::file::write_secret;
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_https};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Ticks (1/100 s) until the kernel asks the server at `port` whether it is still there: proc(5),
/// `/proc/net/tcp`.
fn keepalive_timer(port: u16) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let suffix = format!(":{port:04X}");
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (kind, ticks) = fields[5].split_once(':')?;
        (fields[2].ends_with(&suffix) && kind == "02").then(|| u64::from_str_radix(ticks, 16).unwrap())
    })
}

#[tokio::test]
async fn a_kubeconfig_with_a_client_certificate_reaches_its_server_under_our_name() {
    let ca = ca();
    let tls = ServerTls::new(&server_identity(&ca, "api"), Some(ca.certificate_pem())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let app = Router::new().fallback(|Extension(peer): Extension<PeerIdentity>, headers: HeaderMap| async move {
        let agent = headers["user-agent"].to_str().unwrap().to_owned();
        let known = peer.certificate.is_some();
        axum::Json(serde_json::json!({"major": "1", "minor": "36", "gitVersion": agent, "gitCommit": known.to_string(),
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}))
    });
    let serving = tokio::spawn(serve_https(listener, tls, app, shutdown.clone()));

    let directory = tempfile::tempdir().unwrap();
    let alice = ca.issue_client("alice", &["system:masters"], validity()).unwrap();
    for (name, content) in [
        ("ca.pem", ca.certificate_pem()),
        ("client.pem", &*alice.certificate_pem),
        ("client.key", &*alice.key_pem),
    ] {
        write_secret(&directory.path().join(name), content.as_bytes()).unwrap();
    }
    let kubeconfig = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://{address}', certificate-authority: ca.pem}}}}]\n\
         users: [{{name: u, user: {{client-certificate: client.pem, client-key: client.key}}}}]\n"
    );
    write_secret(&kubeconfig, text.as_bytes()).unwrap();

    let args = ClientArgs {
        kubeconfig: Some(kubeconfig),
        ..ClientArgs::default()
    };
    let client = args.client("agent").await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(
        version.git_version,
        format!("evenkeel-agent/{}", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(version.git_commit, "true");
    // While bytes are under way the kernel's timer is another one.
    let timer = tokio::time::timeout(DEADLINE, async {
        loop {
            match keepalive_timer(address.port()) {
                Some(ticks) => return ticks,
                None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    });
    let timer = timer.await.ok();
    assert!(timer.is_some_and(|ticks| ticks <= 1_000), "{timer:?}");
    drop(client);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
