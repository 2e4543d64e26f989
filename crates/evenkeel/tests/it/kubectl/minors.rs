//! What users do with kubectl, with every minor version on the machine.

use super::shows;
use crate::support::Lab;
use evenkeel_testkit::kubectl::{Kubectl, text};
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio::sync::Mutex;

const TEST: &str = "every_kubectl_does_what_users_do";

/// One version in a namespace of its own, called `app`, where its Deployment, budget and pods lie.
struct User<'a> {
    lab: &'a Lab,
    kubectl: &'a Kubectl,
    app: String,
}

impl User<'_> {
    /// The standard output of a command line in the namespace, which must succeed.
    async fn does(&self, line: &str) -> String {
        let arguments: Vec<&str> = ["-n", &self.app].into_iter().chain(line.split(' ')).collect();
        self.kubectl.succeeds(&arguments).await
    }

    /// The same of one that must fail with this exit code: all that it says.
    async fn fails(&self, code: i32, line: &str) -> String {
        let arguments: Vec<&str> = ["-n", &self.app].into_iter().chain(line.split(' ')).collect();
        let output = self.kubectl.output(&arguments).await;
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}: {line}: {said}",
            self.kubectl
        );
        said
    }

    async fn is(&self, what: &str, path: &str, wanted: &str) {
        let found = self.does(&format!("get {what} -o jsonpath={{{path}}}")).await;
        assert_eq!(found, wanted, "{}: {what} {path}", self.kubectl);
    }

    fn file(&self, name: &str, object: &Value) -> PathBuf {
        self.lab
            .file(&format!("{}-{name}", self.app), &object.to_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kubectl_does_what_users_do() {
    let lab = Lab::start(3, 48).await;
    let mut every = Kubectl::all(TEST, &lab.dir().join("kubeconfig"), &[]);
    // Nothing here has streams of which it could choose the protocol.
    every.retain(|kubectl| !kubectl.websockets);
    // One cordons a node at a time, so that the others still have two.
    let one_drains = Mutex::new(());
    let users = every.iter().map(async |kubectl| {
        let name = kubectl.program.file_name().expect("a file").to_string_lossy();
        let user = User {
            lab: &lab,
            kubectl,
            app: name.replace('.', "-"),
        };
        creates(&user).await;
        applies(&user).await;
        rolls_out(&user).await;
        looks(&user).await;
        asks_for_access(&user).await;
        debugs(&user).await;
        let alone = one_drains.lock().await;
        drains(&user).await;
        drop(alone);
        deletes(&user).await;
    });
    futures::future::join_all(users).await;
}

async fn creates(user: &User<'_>) {
    let app = &user.app;
    user.does(&format!("create namespace {app}")).await;
    let created = user
        .does("create deployment site --image=nginx:1 --replicas=2")
        .await;
    shows(&created, &["deployment.apps/site created"]);
    user.does("create configmap settings --from-literal=a=b").await;
    user.does("create secret generic keys --from-literal=a=b").await;
    user.does("create serviceaccount robot").await;
    user.does("create role reader --verb=get,list --resource=pods")
        .await;
    user.does(&format!(
        "create rolebinding reader --role=reader --serviceaccount={app}:robot"
    ))
    .await;
    user.does("create service clusterip site --tcp=80:80").await;
    user.does("create ingress site --rule=example.com/*=site:80")
        .await;
    user.does("create poddisruptionbudget site --selector=app=site --min-available=2")
        .await;
    user.does("create cronjob nightly --image=busybox --schedule=@daily -- true")
        .await;
    let again = user
        .fails(1, "create configmap settings --from-literal=a=b")
        .await;
    shows(&again, &["\"settings\" already exists"]);
    let shown = user.does("run dry --image=nginx --dry-run=server -o yaml").await;
    shows(
        &shown,
        &[
            "serviceAccountName: default",
            "preemptionPolicy: PreemptLowerPriority",
        ],
    );
}

async fn applies(user: &User<'_>) {
    let settings = |value: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": value},
        });
        user.file("settings.json", &object).display().to_string()
    };
    let file = settings("1");
    let (client, server) = (
        format!("apply -f {file}"),
        format!("apply --server-side -f {file}"),
    );
    shows(&user.does(&client).await, &["configmap/applied created"]);
    shows(&user.does(&client).await, &["configmap/applied unchanged"]);
    user.does(&format!("diff -f {file}")).await;
    settings("2");
    let differs = user.fails(1, &format!("diff -f {file}")).await;
    shows(&differs, &["-  k: \"1\"", "+  k: \"2\""]);
    shows(&user.does(&client).await, &["configmap/applied configured"]);
    // What the client applied becomes the server's to apply.
    shows(
        &user.does(&server).await,
        &["configmap/applied serverside-applied"],
    );
    settings("3");
    let differs = user.fails(1, &format!("diff --server-side -f {file}")).await;
    shows(&differs, &["+  k: \"3\""]);
    let other = format!("{server} --field-manager=other");
    let conflict = user.fails(1, &other).await;
    shows(&conflict, &["Apply failed with 1 conflict", ".data.k"]);
    user.does(&format!("{other} --force-conflicts")).await;
    user.is("configmap/applied", ".data.k", "3").await;
}

async fn rolls_out(user: &User<'_>) {
    shows(
        &user.does("rollout status deployment/site --timeout=60s").await,
        &["successfully rolled out"],
    );
    user.does("wait --for=condition=Available deployment/site --timeout=60s")
        .await;
    user.does("set image deployment/site nginx=nginx:2").await;
    user.does("rollout status deployment/site --timeout=60s").await;
    shows(
        &user.does("rollout history deployment/site").await,
        &["REVISION", "1 ", "2 "],
    );
    user.does("rollout undo deployment/site").await;
    user.does("rollout status deployment/site --timeout=60s").await;
    user.is(
        "deployment/site",
        ".spec.template.spec.containers[0].image",
        "nginx:1",
    )
    .await;
    user.does("scale deployment/site --replicas=3").await;
    user.does("wait --for=jsonpath={.status.readyReplicas}=3 deployment/site --timeout=60s")
        .await;
    user.does("autoscale deployment/site --min=2 --max=5 --cpu-percent=50")
        .await;
    shows(
        &user.does("get hpa").await,
        &["REFERENCE", "Deployment/site", "cpu: <unknown>/50%"],
    );
}

async fn looks(user: &User<'_>) {
    shows(
        &user.does("describe deployment site").await,
        &["StrategyType:           RollingUpdate", "NewReplicaSet:   site-"],
    );
    shows(
        &user.does("describe pod -l app=site").await,
        &[
            "Controlled By:  ReplicaSet/site-",
            "QoS Class:                   BestEffort",
        ],
    );
    shows(&user.does("describe pdb site").await, &["Min available:  2"]);
    shows(
        &user.does("explain deployment.spec.strategy").await,
        &["rollingUpdate", "DeploymentStrategy"],
    );
    // Of a custom resource, too.
    shows(&user.does("explain zonehealth.spec").await, &["signedRoster"]);
    shows(
        &user.does("api-resources --api-group=apps").await,
        &["deployments", "statefulsets", "deploy"],
    );
    shows(
        &user.does("get all").await,
        &["deployment.apps/site", "cronjob.batch/nightly"],
    );
    shows(&user.does("version").await, &["v1.36.2"]);
}

async fn asks_for_access(user: &User<'_>) {
    let robot = format!("--as=system:serviceaccount:{}:robot", user.app);
    assert_eq!(user.does(&format!("auth can-i list pods {robot}")).await, "yes\n");
    let no = user.fails(1, &format!("auth can-i delete pods {robot}")).await;
    shows(&no, &["no"]);
    shows(
        &user.does(&format!("auth can-i --list {robot}")).await,
        &[
            "pods",
            "[get list]",
            "selfsubjectaccessreviews.authorization.k8s.io",
        ],
    );
    let token = user.does("create token robot --duration=10m").await;
    let with_token = format!("--token={}", token.trim());
    // A certificate of the kubeconfig would count first.
    let mut anonymous = Kubeconfig::read_from(user.lab.dir().join("kubeconfig")).expect("the lab's");
    for named in &mut anonymous.auth_infos {
        named.auth_info = Some(AuthInfo::default());
    }
    let anonymous = user.file("anonymous.json", &json!(anonymous));
    let by_token = format!("--kubeconfig={} {with_token}", anonymous.display());
    shows(&user.does(&format!("{by_token} get pods")).await, &["site-"]);
    let refused = user.fails(1, &format!("{by_token} get secrets")).await;
    shows(&refused, &["Forbidden", "robot"]);
}

/// Ephemeral containers.
async fn debugs(user: &User<'_>) {
    let pod = user
        .does("get pods -l app=site -o jsonpath={.items[0].metadata.name}")
        .await;
    user.does(&format!(
        "debug {pod} --image=busybox --container=helper --target=nginx -- sh"
    ))
    .await;
    let running = "jsonpath={.status.ephemeralContainerStatuses[0].state.running.startedAt}";
    evenkeel_testkit::until("the ephemeral container runs", async || {
        !user.does(&format!("get pod {pod} -o {running}")).await.is_empty()
    })
    .await;
    user.is(
        &format!("pod/{pod}"),
        ".spec.ephemeralContainers[0].targetContainerName",
        "nginx",
    )
    .await;
    user.does(&format!(
        "debug {pod} --image=busybox --copy-to=copy --container=helper -- sh"
    ))
    .await;
    user.does("wait --for=condition=Ready pod/copy --timeout=60s")
        .await;
    user.does("delete pod copy --now").await;
}

/// A drain waits for a budget that has nothing to give, and goes on when it has.
async fn drains(user: &User<'_>) {
    user.does("wait --for=jsonpath={.status.disruptionsAllowed}=1 pdb/site --timeout=60s")
        .await;
    user.does("patch pdb site -p {\"spec\":{\"minAvailable\":3}}")
        .await;
    user.does("wait --for=jsonpath={.status.disruptionsAllowed}=0 pdb/site --timeout=60s")
        .await;
    let node = user
        .does("get pods -l app=site -o jsonpath={.items[0].spec.nodeName}")
        .await;
    let drain = format!("drain {node} --ignore-daemonsets --force --pod-selector=app=site --timeout");
    // Long enough for an answer on a busy machine; kubectl asks again after 5 s.
    let blocked = user.fails(1, &format!("{drain}=4s")).await;
    shows(
        &blocked,
        &["Cannot evict pod as it would violate the pod's disruption budget"],
    );
    user.does("patch pdb site -p {\"spec\":{\"minAvailable\":1}}")
        .await;
    user.does("wait --for=jsonpath={.status.disruptionsAllowed}=2 pdb/site --timeout=60s")
        .await;
    shows(&user.does(&format!("{drain}=60s")).await, &["drained"]);
    let left = user
        .does(&format!(
            "get pods -l app=site --field-selector=spec.nodeName={node} -o name"
        ))
        .await;
    assert_eq!(left, "", "{}", user.kubectl);
    shows(
        &user.does(&format!("get node {node}")).await,
        &["SchedulingDisabled"],
    );
    user.does(&format!("uncordon {node}")).await;
}

async fn deletes(user: &User<'_>) {
    user.does("delete deployment,cronjob,ingress,hpa --all").await;
    user.does("wait --for=delete pod -l app=site --timeout=60s").await;
    user.does(&format!("delete namespace {} --timeout=60s", user.app))
        .await;
}
