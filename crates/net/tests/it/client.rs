use crate::tls::{DEADLINE, ca, server_identity, validity};
use axum::Router;
use axum::extract::Extension;
use axum::http::HeaderMap;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::file::write_secret;
use evenkeel_net::pki::Ca;
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_https};
use std::io;
use std::net::SocketAddr;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
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

/// A server that says by which certificate it is asked, and a kubeconfig for it with the files of `user`.
async fn served(shutdown: &CancellationToken) -> (Ca, SocketAddr, TempDir, JoinHandle<io::Result<()>>) {
    let ca = ca();
    let tls = ServerTls::new(&server_identity(&ca, "api"), Some(ca.certificate_pem())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(
        |Extension(peer): Extension<PeerIdentity>, headers: HeaderMap| async move {
            let agent = headers["user-agent"].to_str().unwrap().to_owned();
            let shown = peer
                .certificate
                .map(|certificate| format!("{certificate:?}"))
                .unwrap_or_default();
            axum::Json(
                serde_json::json!({"major": "1", "minor": "36", "gitVersion": agent, "gitCommit": shown,
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            )
        },
    );
    let serving = tokio::spawn(serve_https(listener, tls, app, shutdown.clone()));
    let directory = tempfile::tempdir().unwrap();
    write_secret(&directory.path().join("ca.pem"), ca.certificate_pem().as_bytes()).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://{address}', certificate-authority: ca.pem}}}}]\n\
         users: [{{name: u, user: {{client-certificate: client.pem, client-key: client.key}}}}]\n"
    );
    write_secret(&directory.path().join("kubeconfig"), text.as_bytes()).unwrap();
    (ca, address, directory, serving)
}

/// Writes what the kubeconfig names.
fn become_user(ca: &Ca, directory: &TempDir, user: &str) {
    let user = ca.issue_client(user, &["system:masters"], validity()).unwrap();
    for (name, content) in [
        ("client.pem", &user.certificate_pem),
        ("client.key", &user.key_pem),
    ] {
        write_secret(&directory.path().join(name), content.as_bytes()).unwrap();
    }
}

/// A kubelet replaces its certificate in the file that its kubeconfig names. Certificate and key change one
/// after the other here, so that the pair is wrong in between.
#[tokio::test]
async fn a_client_certificate_that_was_replaced_is_shown_from_then_on() {
    let shutdown = CancellationToken::new();
    let (ca, _, directory, serving) = served(&shutdown).await;
    become_user(&ca, &directory, "alice");
    let args = ClientArgs {
        kubeconfig: Some(directory.path().join("kubeconfig")),
        ..ClientArgs::default()
    };
    let client = args.client("agent").await.unwrap();
    let first = client.apiserver_version().await.unwrap().git_commit;
    assert_ne!(first, "");
    std::fs::write(directory.path().join("client.pem"), "no certificate").unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_commit, first);
    become_user(&ca, &directory, "bob");
    let changed = tokio::time::timeout(DEADLINE, async {
        while client.apiserver_version().await.unwrap().git_commit == first {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    changed.await.expect("the new certificate is shown");
    drop(client);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_kubeconfig_with_a_client_certificate_reaches_its_server_under_our_name() {
    let shutdown = CancellationToken::new();
    let (ca, address, directory, serving) = served(&shutdown).await;
    become_user(&ca, &directory, "alice");
    let kubeconfig = directory.path().join("kubeconfig");
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
    assert_ne!(version.git_commit, "", "it shows a certificate");
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
