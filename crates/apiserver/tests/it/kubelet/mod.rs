//! Kubelets behind the server: a small one over TLS, and the requests that reach it.

mod identity;
mod relayed;
mod standin;
mod usage;

use evenkeel_apiserver::kubelet::KubeletOptions;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_testkit::ServedApi;
use serde_json::{Value, json};
use standin::StandIn;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tokio::process::Command;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server on a socket, with a kubelet of one node behind it.
struct World {
    server: ApiServer,
    kubelet: StandIn,
    url: String,
    kubeconfig: PathBuf,
    api: ServedApi,
    _stop: DropGuard,
}

impl World {
    async fn new() -> Self {
        Self::with(Options {
            kubelet: KubeletOptions {
                proxy_to_any_address: true,
                ..KubeletOptions::default()
            },
            ..Options::default()
        })
        .await
    }

    async fn with(options: Options) -> Self {
        let api = ServedApi::with(options).await;
        let stop = CancellationToken::new();
        let world = Self {
            server: api.server.clone(),
            kubelet: StandIn::start(api.server.ca(), stop.clone()).await,
            url: api.url(),
            kubeconfig: api.direct("admin"),
            api,
            _stop: stop.drop_guard(),
        };
        world.node("n1", world.kubelet.port).await;
        world
    }

    /// A node whose kubelet listens on that port.
    async fn node(&self, name: &str, port: u16) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "capacity": {"cpu": "4", "memory": "8Gi"},
            "allocatable": {"cpu": "4", "memory": "8Gi"},
        }});
        self.post("/api/v1/nodes", &node).await;
    }

    /// A pod with these containers; an empty node leaves it unscheduled.
    async fn pod(&self, name: &str, node: &str, containers: &[&str]) {
        let containers: Vec<Value> = containers
            .iter()
            .map(|name| json!({"name": name, "image": "x"}))
            .collect();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": containers}});
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        self.post("/api/v1/namespaces/default/pods", &pod).await;
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = http::Request::post(path).body(body.to_string().into_bytes());
        self.server
            .client()
            .request(request.expect("a request"))
            .await
            .expect("accepted")
    }

    /// The text behind a path, or code and message of the refusal. In the process, without sockets.
    async fn get(&self, path: &str) -> Result<String, (u16, String)> {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        match self.server.client().request_text(request).await {
            Ok(text) => Ok(text),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(other) => unreachable!("every answer is the server's: {other}"),
        }
    }

    /// kubectl as an administrator.
    fn kubectl(&self, program: &PathBuf, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.api.home.path().join("cache"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, program: &PathBuf, arguments: &[&str]) -> Output {
        self.kubectl(program, arguments)
            .output()
            .await
            .expect("kubectl runs")
    }
}

/// Standard output of a success.
fn out(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}
