//! The samples for Koupleless, as a reader would use them, with the rights of the manifest.

use super::world::{Vnode, World};
use evenkeel_testkit::koupleless::{self, JavaBase, Setup};
use evenkeel_testkit::skipped;
use hyper::http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// For what takes a base, a controller and a node's Lease their time.
const LONG: Duration = Duration::from_secs(120);
const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/koupleless");
const DEPLOYMENT: &str = include_str!("../../../../../samples/koupleless/deployment.yaml");

fn sample() -> Value {
    serde_saphyr::from_str(DEPLOYMENT).expect("the sample is YAML")
}

/// Creates an object; a field that there is not is an error.
async fn create(world: &World, object: &Value) -> Value {
    let group = match object["apiVersion"].as_str() {
        Some("v1") => "/api/v1".to_owned(),
        version => format!("/apis/{}", version.expect("it has a version")),
    };
    let kind = object["kind"]
        .as_str()
        .expect("it has a kind")
        .to_ascii_lowercase();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let uri = format!("{group}/namespaces/{namespace}/{kind}s?fieldValidation=Strict");
    let request = Request::post(uri).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).expect("a request");
    let created = world.client.request(request).await;
    created.expect("the object is valid")
}

/// The pod of a template, under a name.
fn pod_of(deployment: &Value, name: &str) -> Value {
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = deployment["metadata"]["namespace"].clone();
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_are_valid_in_every_field_and_so_are_their_pods() {
    let world = World::start().await;
    world.apply_file("koupleless.yaml").await;
    let process = include_str!("../../../../../samples/koupleless/process.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(process).expect("the sample is YAML");
    objects.push(sample());
    for object in &objects {
        let created = create(&world, object).await;
        assert_eq!(created["metadata"]["name"], object["metadata"]["name"]);
        if object["kind"] == "Deployment" {
            create(&world, &pod_of(object, "one")).await;
        }
    }
}

/// The sample's jar, built as its README says; `None` if the machine cannot.
fn jar(test: &str, out: &Path) -> Option<String> {
    let mvn = std::env::var_os("EVENKEEL_MVN").unwrap_or_else(|| "mvn".into());
    let mut maven = Command::new(mvn);
    maven.args(["-q", "-B", "-Dstyle.color=never", "-f"]);
    maven.arg(Path::new(SAMPLES).join("module/pom.xml"));
    maven.arg(format!("-Dout={}", out.display())).arg("package");
    let output = maven
        .output()
        .expect("Maven is there: the base was built with it");
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("Could not transfer") {
        skipped(test, "the package registry cannot be reached");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let jar = out.join("biz1-1.0.0-ark-biz.jar");
    assert!(jar.is_file(), "{said}");
    Some(format!("file://{}", jar.display()))
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether pods of the template may run on the node, by its taints and labels.
fn suits(template: &Value, node: &Node) {
    let spec = &template["spec"];
    let tolerations = spec["tolerations"].as_array().expect("it tolerates something");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    for taint in taints.filter(|taint| taint.key.starts_with("schedule.koupleless.io/")) {
        let tolerated = tolerations.iter().any(|toleration| {
            toleration["key"] == taint.key.as_str()
                && toleration["value"].as_str() == taint.value.as_deref()
                && toleration["effect"] == taint.effect.as_str()
        });
        assert!(tolerated, "{taint:?}");
    }
    let labels = node.metadata.labels.as_ref().expect("it has labels");
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    for expression in required["nodeSelectorTerms"][0]["matchExpressions"]
        .as_array()
        .expect("a term")
    {
        let label = labels.get(expression["key"].as_str().unwrap_or_default());
        let label = label.map(String::as_str).unwrap_or_default();
        assert!(strings(&expression["values"]).contains(&label), "{expression}");
    }
}

/// A process that is set up by a file and by the released controller's variables.
async fn serve(world: &World, port: u16) -> Vnode {
    world.apply_file("koupleless.yaml").await;
    let account = world.account("evenkeel-system", "evenkeel-koupleless").await;
    let file = world.home().join("vnode.yaml");
    let text = format!(
        "apiVersion: evenkeel.io/v1alpha1\nkind: VnodeConfiguration\nkubeconfig: {}\nheartbeat: 127.0.0.1:{port}\n\
         heartbeatFromAnywhere: true\nheal: true\n",
        account.display()
    );
    std::fs::write(&file, text).expect("the directory is writable");
    let variables = [
        ("ENV", "dev"),
        ("ENABLE_HTTP_TUNNEL", "true"),
        ("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE", "true"),
        ("VNODE_WORKER_NUM", "8"),
    ];
    let config = file.display().to_string();
    world.serve_in(&variables, "sample", "koupleless", &["--config", &config])
}

async fn is_activated(base: &JavaBase, module: &str) {
    let answer = base.post("queryAllBiz", &json!({})).await;
    let modules = answer["data"].as_array().expect("a list");
    let mut states = modules.iter().filter(|found| found["bizName"] == module);
    let state = states.next().and_then(|found| found["bizState"].as_str());
    assert_eq!(
        state.map(str::to_ascii_lowercase).as_deref(),
        Some("activated"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_module_runs_by_the_sample_deployment_on_a_real_base() {
    let test = "the_sample_module_runs_by_the_sample_deployment_on_a_real_base";
    let built = match koupleless::build() {
        Ok(built) => built,
        Err(why) => return skipped(test, &why.to_string()),
    };
    let world = World::start().await;
    let out = world.home().join("module");
    let Some(jar) = jar(test, &out) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let process = serve(&world, port).await;
    let setup = Setup {
        heartbeat: Some(format!("http://127.0.0.1:{port}")),
        name: "shop".to_owned(),
        ..Setup::default()
    };
    let base = built.start(setup).await;
    let cluster = world.within(LONG);
    let name = "vnode.base-1.dev";
    let node: Node = cluster.ready(name).await;

    let mut deployment = sample();
    deployment["spec"]["replicas"] = json!(0);
    let container = "/spec/template/spec/containers/0";
    let sample = deployment.pointer_mut(container).expect("it has a container");
    sample["image"] = json!(jar);
    sample["readinessProbe"]["tcpSocket"]["port"] = json!(base.address().port());
    create(&world, &deployment).await;
    let one = |deployment: &Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(1);
    cluster.until("biz1", "has a replica for the base", one).await;

    // What its ReplicaSet and the scheduler would do.
    suits(&deployment["spec"]["template"], &node);
    let mut pod = pod_of(&deployment, "biz1-0");
    pod["spec"]["nodeName"] = json!(name);
    create(&world, &pod).await;
    cluster.ready::<Pod>("biz1-0").await;
    is_activated(&base, "biz1").await;
    let said = base.output();
    assert!(
        said.contains("[biz=biz1] started with [--greeting=hello]"),
        "{said}"
    );

    let log = std::fs::read_to_string(&process.log).expect("it was written");
    assert!(
        log.contains("VNODE_WORKER_NUM") && !log.to_lowercase().contains("forbidden"),
        "{log}"
    );
}
