//! What a pod costs while nothing happens to it, and while it waits for its turn.

use super::Seen;
use super::entry::{Call, Entry};
use super::packed::tests::typical;
use super::perform::Errand;
use crate::core::Now;
use crate::core::pod::{Action, Input, Machine, Posted, Settings};
use crate::provider::{ContainerId, Doing, Observed, PodId, PodState, Sandbox};
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

fn settings() -> Settings {
    Settings {
        runtime: "simulated".to_owned(),
        host_addresses: vec!["10.1.2.3".parse().unwrap()],
        back_off: Duration::from_secs(10),
        back_off_max: Duration::from_secs(300),
        reconcile: Duration::from_secs(10),
        conditions: Vec::new(),
        fail_refused: false,
    }
}

/// What a provider says of a typical pod that an earlier process ran.
fn running(pod: &Pod) -> PodState {
    let status = pod.status.as_ref().unwrap();
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let since = status.start_time.as_ref().unwrap().0;
    let observed = Observed {
        id: ContainerId(container.container_id.as_deref().unwrap().into()),
        doing: Doing::Running { since },
    };
    PodState {
        sandbox: Sandbox {
            addresses: vec![status.pod_ip.as_deref().unwrap().parse().unwrap()],
        },
        containers: [(container.name.clone(), observed)].into(),
    }
}

/// An adopted pod of which nothing is to be done any more.
fn settled(number: usize, namespace: &Arc<str>, node: &Arc<str>) -> Box<Entry> {
    let pod = typical(number);
    let settings = settings();
    let now = Now {
        mono: Duration::from_secs(100),
        wall: Duration::from_secs(1_800_000_000),
    };
    let uid: Arc<str> = pod.metadata.uid.as_deref().unwrap().into();
    let id = PodId {
        uid,
        namespace: namespace.clone(),
        name: pod.metadata.name.as_deref().unwrap().into(),
        node: node.clone(),
    };
    let seen = Seen {
        pod,
        rules: Vec::new(),
    };
    let machine = Machine::new(&seen.pod);
    let mut entry = Box::new(Entry::new(id, 1, 1, machine, &seen));
    let mut inputs = vec![Input::Seen, Input::Adopted(Ok(Some(running(&seen.pod))))];
    while let Some(input) = (!inputs.is_empty()).then(|| inputs.remove(0)) {
        for action in entry.machine.step(&settings, &seen.pod, input, now) {
            if let Action::Post(_) = action {
                inputs.push(Input::Posted(Posted::Done("9999999".to_owned())));
            }
        }
    }
    assert!(entry.machine.is_settled());
    entry
}

/// Bytes of what a function's future holds.
fn future_of<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}

/// When many pods start at once, there is such a task for each of them.
#[test]
fn a_call_that_waits_for_its_turn_takes_little() {
    let bytes = future_of(|(errand, call): (Errand, &'static Call)| errand.run(call));
    assert!(bytes <= 2048, "{bytes} bytes");
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split_whitespace().nth(1).unwrap();
    resident.parse::<usize>().unwrap() * 4096
}

/// 100,000 pods are to fit into 512 MiB together with their nodes; the target is 3 KiB each, all in.
#[test]
#[ignore = "measures the memory of the process, and so must run alone"]
fn a_settled_pod_takes_less_than_three_kibibytes() {
    const PODS: usize = 20_000;
    let (namespace, node): (Arc<str>, Arc<str>) = ("shop".into(), "virtual-1".into());
    let mut pods: HashMap<Arc<str>, Box<Entry>> = HashMap::new();
    // What is set up once for all.
    settled(0, &namespace, &node);
    let before = resident();
    for number in 0..PODS {
        let entry = settled(number, &namespace, &node);
        pods.insert(entry.id.uid.clone(), entry);
    }
    let each = (resident() - before) / PODS;
    println!(
        "{each} bytes a pod: entry {}, machine {} of it, packed object {}",
        size_of::<Entry>(),
        size_of::<Machine>(),
        pods.values().next().unwrap().packed.len()
    );
    assert!(each < 3 * 1024, "{each} bytes a pod");
}
