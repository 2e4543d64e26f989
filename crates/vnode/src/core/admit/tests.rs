use super::*;
use rstest::rstest;
use serde_json::{Value, json};

fn pod(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "web", "image": "web:1"}]);
    }
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
}

#[rstest]
#[case::nothing_special(json!({}))]
#[case::host_flags_that_are_off(json!({"hostNetwork": false, "hostPID": false, "hostIPC": false}))]
#[case::a_container_port(json!({"containers": [{"name": "web", "ports": [{"containerPort": 80}]}]}))]
#[case::a_host_port_of_zero(json!({"containers": [{"name": "web", "ports": [{"containerPort": 80, "hostPort": 0}]}]}))]
#[case::linux(json!({"os": {"name": "linux"}}))]
#[case::volumes_of_text(json!({"volumes": [
    {"name": "a", "configMap": {"name": "a"}}, {"name": "b", "secret": {"secretName": "b"}},
    {"name": "c", "emptyDir": {}}, {"name": "d", "downwardAPI": {}}, {"name": "e", "projected": {"sources": []}}]}))]
fn admits(#[case] spec: Value) {
    assert_eq!(admit(&pod(&spec), &[]), Ok(()));
}

#[rstest]
#[case::host_network(json!({"hostNetwork": true}), "spec.hostNetwork: ", Feature::Host)]
#[case::host_pid(json!({"hostPID": true}), "spec.hostPID: ", Feature::Host)]
#[case::host_ipc(json!({"hostIPC": true}), "spec.hostIPC: ", Feature::Host)]
#[case::host_port(
    json!({"containers": [{"name": "web", "ports": [{"containerPort": 1}, {"containerPort": 80, "hostPort": 8080}]}]}),
    "spec.containers[0].ports[1].hostPort: there is no host with a port 8080", Feature::Host)]
#[case::host_port_of_an_init_container(
    json!({"initContainers": [{"name": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
    "spec.initContainers[0].ports[0].hostPort: ", Feature::Host)]
#[case::host_path(json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]}),
    "spec.volumes[1].hostPath: volume \"b\"", Feature::Mounts)]
#[case::claim(json!({"volumes": [{"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]}),
    "spec.volumes[0].persistentVolumeClaim: ", Feature::Mounts)]
#[case::ephemeral_claim(json!({"volumes": [{"name": "b", "ephemeral": {}}]}), "spec.volumes[0].ephemeral: ", Feature::Mounts)]
#[case::csi(json!({"volumes": [{"name": "b", "csi": {"driver": "c"}}]}), "spec.volumes[0].csi: ", Feature::Mounts)]
#[case::nfs(json!({"volumes": [{"name": "b", "nfs": {"path": "/", "server": "s"}}]}), "spec.volumes[0].nfs: ", Feature::Mounts)]
#[case::image(json!({"volumes": [{"name": "b", "image": {"reference": "r"}}]}), "spec.volumes[0].image: ", Feature::Mounts)]
#[case::block_device(
    json!({"containers": [{"name": "web", "volumeDevices": [{"name": "b", "devicePath": "/dev/b"}]}]}),
    "spec.containers[0].volumeDevices: ", Feature::Mounts)]
fn refuses_unless_the_provider_has_it(#[case] spec: Value, #[case] says: &str, #[case] feature: Feature) {
    let refusal = admit(&pod(&spec), &[]).unwrap_err();
    assert_eq!(refusal.reason, "UnsupportedPodSpec");
    assert!(refusal.message.contains(says), "{}", refusal.message);
    assert_eq!(admit(&pod(&spec), &[feature]), Ok(()));
}

#[test]
fn refuses_another_operating_system() {
    let refusal = admit(
        &pod(&json!({"os": {"name": "windows"}})),
        &[Feature::Host, Feature::Mounts],
    )
    .unwrap_err();
    assert!(
        refusal.message.contains("spec.os.name: \"windows\""),
        "{}",
        refusal.message
    );
}

#[rstest]
#[case("kubernetes.io/config.mirror", "0123", false)]
#[case("kubernetes.io/config.source", "file", false)]
#[case("kubernetes.io/config.source", "http", false)]
#[case("kubernetes.io/config.source", "api", true)]
fn refuses_static_pods(#[case] annotation: &str, #[case] value: &str, #[case] admitted: bool) {
    let mut pod = pod(&json!({}));
    pod.metadata.annotations = Some([(annotation.to_owned(), value.to_owned())].into());
    let found = admit(&pod, &[]);
    assert_eq!(found.is_ok(), admitted, "{found:?}");
    if let Err(refusal) = found {
        assert!(refusal.message.contains(annotation), "{}", refusal.message);
    }
}

#[test]
fn names_every_problem_at_once() {
    let refusal = admit(&pod(&json!({"hostNetwork": true, "hostPID": true})), &[]).unwrap_err();
    assert_eq!(
        refusal.message,
        "not possible on a virtual node: spec.hostNetwork: there is no host to share it with; \
         spec.hostPID: there is no host to share it with"
    );
}
