use super::*;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

/// A pod of a Deployment as an API server has it once it runs.
pub(crate) fn typical(number: usize) -> Pod {
    let uid = format!("6b1f0c5e-9a55-4f0e-8a4f-{number:012x}");
    let times = "2026-11-22T02:31:07Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": times, "observedGeneration": 1});
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("checkout-7d4b9c6f5d-{number:05x}"), "generateName": "checkout-7d4b9c6f5d-",
            "namespace": "shop", "uid": uid, "resourceVersion": (1_000_000 + number).to_string(), "generation": 1,
            "creationTimestamp": times,
            "labels": {"app.kubernetes.io/name": "checkout", "pod-template-hash": "7d4b9c6f5d"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": times},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-7d4b9c6f5d",
                "uid": "0b5a3ac4-5b9a-4c43-8d8e-2b1f6f0c7f11", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [{
                "name": "checkout", "image": "registry.example.com/shop/checkout:v1.42.0", "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "DATABASE", "value": "postgres://db.shop:5432/checkout"},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "kube-api-access-x7k2p", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            }],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": format!("virtual-{:05}", number / 10),
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "evenkeel.io/virtual", "operator": "Exists"}],
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": times, "observedGeneration": 1,
            "hostIP": "10.1.2.3", "hostIPs": [{"ip": "10.1.2.3"}],
            "podIP": format!("10.244.{}.{}", number / 250 % 250, number % 250),
            "podIPs": [{"ip": format!("10.244.{}.{}", number / 250 % 250, number % 250)}],
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{"name": "checkout", "image": "registry.example.com/shop/checkout:v1.42.0", "imageID": "",
                "containerID": format!("simulated://{uid}-checkout-0"), "ready": true, "started": true, "restartCount": 0,
                "lastState": {}, "state": {"running": {"startedAt": times}}}],
        },
    }))
    .unwrap()
}

#[test]
fn what_is_packed_comes_out_as_it_was_whatever_its_size() {
    let mut pods = vec![Pod::default(), typical(7)];
    let mut large = typical(8);
    let long: String = (0..200_000_u32)
        .map(|number| char::from(b'a' + (number.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    large.metadata.annotations = Some([("long".to_owned(), long)].into());
    pods.push(large);
    for pod in pods {
        assert_eq!(Packed::new(&pod).open().unwrap(), pod);
    }
}

#[test]
fn bytes_that_are_damaged_are_an_error_and_harm_nothing_that_comes_after() {
    let good = Packed::new(&typical(1));
    let cut = Packed::<Pod> {
        bytes: good.bytes[..good.bytes.len() / 2].into(),
        ..good.clone()
    };
    assert!(cut.open().is_err());
    assert_eq!(good.open().unwrap(), typical(1));
}

#[test]
fn a_typical_pod_takes_less_than_a_kibibyte() {
    let pod = typical(12_345);
    let packed = Packed::new(&pod);
    assert!(
        packed.len() < 1024,
        "{} bytes of {} bytes of JSON",
        packed.len(),
        packed.length
    );
}
