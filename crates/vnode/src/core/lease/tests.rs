//! component-helpers' list of tests (`apimachinery/lease/controller_test.go`), and ours.
//!
//! | upstream | here |
//! |---|---|
//! | NewNodeLease: nil base without node | `without_a_node_no_lease_is_created` |
//! | NewNodeLease: nil base with node | `a_new_lease_names_its_node_as_owner` |
//! | NewNodeLease: base without owner ref, renew time updated | `a_lease_without_owner_gets_one` |
//! | NewNodeLease: base with owner ref, renew time updated | `an_owner_that_others_set_stays` |
//! | NewNodeLease: base with owner ref, duration updated | `a_changed_duration_is_written` |
//! | RetryUpdate: no errors | `a_renewal_in_the_steady_state_is_one_request` |
//! | RetryUpdate: connection errors | `five_updates_fail_then_it_is_read` |
//! | RetryUpdate: optimistic lock errors | `a_conflict_is_no_failure` |
//! | RetryUpdate: node not found errors | `a_lease_without_owner_is_not_updated_while_the_node_is_unknown` |
//! | UpdateUsingLatest: nil, create | `a_new_lease_names_its_node_as_owner` |
//! | UpdateUsingLatest: nil, create, node missing | `without_a_node_no_lease_is_created` |
//! | UpdateUsingLatest: nil, update | `a_lease_that_exists_is_read_and_updated` |
//! | UpdateUsingLatest: latest, update | `a_renewal_in_the_steady_state_is_one_request` |
//! | UpdateUsingLatest: update with latest failed | `five_updates_fail_then_it_is_read` |
//!
//! Counts are upstream's. Upstream makes the five updates without a pause; here there is one after each that
//! failed: `updates_that_fail_wait_longer_and_longer`.

use super::*;
use crate::core::Now;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use proptest::prelude::*;

const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// A machine and the world around it.
struct Bench {
    machine: Machine,
    settings: Settings,
    uid: Option<&'static str>,
    at: Duration,
    random: f64,
}

impl Bench {
    fn new() -> Self {
        Self {
            machine: Machine::new(),
            settings: Settings::default(),
            uid: Some("u1"),
            at: Duration::from_secs(100),
            random: 0.5,
        }
    }

    /// One that has written its Lease at version 1.
    fn settled() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.tick(), Some(Request::Get));
        let created = bench.answer(Answer::NotFound);
        let Some(Request::Create(mut lease)) = created else {
            panic!("{created:?}")
        };
        lease.metadata.resource_version = Some("1".into());
        assert_eq!(bench.answer(Answer::Done(lease)), None);
        bench
    }

    fn step(&mut self, input: Input) -> Option<Request> {
        let owner = Owner {
            name: "n",
            uid: self.uid,
        };
        let now = Now {
            mono: self.at,
            wall: EPOCH + self.at,
        };
        self.machine.step(&self.settings, owner, input, now, self.random)
    }

    fn tick(&mut self) -> Option<Request> {
        self.step(Input::Tick)
    }

    fn answer(&mut self, answer: Answer) -> Option<Request> {
        self.step(Input::Answered(answer))
    }

    /// Goes on to the time that the machine waits for.
    fn wait(&mut self) -> Duration {
        let due = self.machine.due().expect("no request is under way");
        let waited = due.saturating_sub(self.at);
        self.at = due;
        waited
    }

    /// The update fails; what is asked for after the pause.
    fn fail(&mut self) -> Option<Request> {
        assert_eq!(self.answer(failed()), None, "not at once");
        self.wait();
        self.tick()
    }

    fn update(&mut self, request: Option<Request>) -> Lease {
        let Some(Request::Update(lease)) = request else {
            panic!("{request:?}")
        };
        let renewed = lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap();
        assert_eq!(
            renewed.0.as_microsecond(),
            i64::try_from((EPOCH + self.at).as_micros()).unwrap()
        );
        *lease
    }
}

fn stored(version: &str, references: Vec<OwnerReference>) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some("n".into()),
            namespace: Some("kube-node-lease".into()),
            resource_version: Some(version.into()),
            owner_references: Some(references),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some("n".into()),
            lease_duration_seconds: Some(40),
            ..LeaseSpec::default()
        }),
    }
}

fn reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

fn failed() -> Answer {
    Answer::Failed("connection refused".into())
}

#[test]
fn a_new_lease_names_its_node_as_owner() {
    let mut bench = Bench::new();
    assert_eq!(bench.tick(), Some(Request::Get));
    let Some(Request::Create(lease)) = bench.answer(Answer::NotFound) else {
        panic!("it is to be created")
    };
    assert_eq!(lease.metadata.owner_references, Some(vec![reference("n", "u1")]));
    assert_eq!(lease.metadata.name.as_deref(), Some("n"));
    assert_eq!(lease.metadata.namespace.as_deref(), Some("kube-node-lease"));
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("n"));
    assert_eq!(spec.lease_duration_seconds, Some(40));
    assert!(spec.renew_time.is_some());
}

/// Another process goes by that name whether it serves the node any more.
#[test]
fn a_process_that_holds_leases_in_its_own_name_takes_them_over() {
    let mut bench = Bench::new();
    bench.settings.holder = Some("replica-1".into());
    assert_eq!(bench.tick(), Some(Request::Get));
    let mut other = stored("7", vec![reference("n", "u1")]);
    other.spec.as_mut().unwrap().holder_identity = Some("replica-0".into());
    let taken = bench.answer(Answer::Done(Box::new(other)));
    let mut lease = bench.update(taken);
    let holder = |lease: &Lease| lease.spec.as_ref().unwrap().holder_identity.clone();
    assert_eq!(holder(&lease).as_deref(), Some("replica-1"));
    lease.metadata.resource_version = Some("8".into());
    assert_eq!(bench.answer(Answer::Done(Box::new(lease))), None);
    assert!(
        bench.machine.held().unwrap().is_plain(),
        "its own name is nothing to be kept"
    );
    bench.wait();
    let renewed = bench.tick();
    assert_eq!(holder(&bench.update(renewed)).as_deref(), Some("replica-1"));
}

#[test]
fn without_a_node_no_lease_is_created() {
    let mut bench = Bench::new();
    bench.uid = None;
    assert_eq!(bench.tick(), Some(Request::Get));
    assert_eq!(bench.answer(Answer::NotFound), None);
    assert!(bench.machine.held().is_none());
    assert!(bench.wait() >= bench.settings.interval);
    bench.uid = Some("u1");
    assert_eq!(bench.tick(), Some(Request::Get), "tried again");
}

#[test]
fn a_lease_without_owner_gets_one() {
    let mut bench = Bench::new();
    bench.tick();
    let request = bench.answer(Answer::Done(Box::new(stored("7", Vec::new()))));
    let lease = bench.update(request);
    assert_eq!(lease.metadata.owner_references, Some(vec![reference("n", "u1")]));
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
}

#[test]
fn a_lease_without_owner_is_not_updated_while_the_node_is_unknown() {
    let mut bench = Bench::new();
    bench.uid = None;
    bench.tick();
    assert_eq!(
        bench.answer(Answer::Done(Box::new(stored("7", Vec::new())))),
        None
    );
    assert!(bench.wait() >= bench.settings.interval);
    assert_eq!(bench.machine.renewed(), None);
}

#[test]
fn an_owner_that_others_set_stays() {
    let mut bench = Bench::new();
    bench.tick();
    let mut theirs = stored("7", vec![reference("other", "u9")]);
    theirs.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let request = bench.answer(Answer::Done(Box::new(theirs.clone())));
    let lease = bench.update(request);
    assert_eq!(lease.metadata.owner_references, theirs.metadata.owner_references);
    assert_eq!(lease.metadata.labels, theirs.metadata.labels);
    bench.answer(Answer::Done(Box::new(lease)));
    bench.wait();
    let request = bench.tick();
    assert_eq!(bench.update(request).metadata.labels, theirs.metadata.labels);
}

#[test]
fn the_owner_of_an_earlier_node_of_this_name_is_replaced() {
    let mut bench = Bench::settled();
    bench.uid = Some("u2");
    bench.wait();
    let request = bench.tick();
    let lease = bench.update(request);
    assert_eq!(lease.metadata.owner_references, Some(vec![reference("n", "u2")]));
    let mut bench = Bench::new();
    bench.tick();
    let request = bench.answer(Answer::Done(Box::new(stored("7", vec![reference("n", "u0")]))));
    let lease = bench.update(request);
    assert_eq!(lease.metadata.owner_references, Some(vec![reference("n", "u1")]));
}

#[test]
fn a_changed_duration_is_written() {
    let mut bench = Bench::new();
    bench.settings.duration = Duration::from_secs(60);
    bench.tick();
    let request = bench.answer(Answer::Done(Box::new(stored("7", vec![reference("n", "u1")]))));
    assert_eq!(
        bench.update(request).spec.unwrap().lease_duration_seconds,
        Some(60)
    );
}

#[test]
fn a_renewal_in_the_steady_state_is_one_request() {
    let mut bench = Bench::settled();
    assert!(
        bench.machine.held().unwrap().is_plain(),
        "only its version is kept"
    );
    bench.wait();
    for version in 1..10 {
        let request = bench.tick();
        let mut lease = bench.update(request);
        assert_eq!(lease.metadata.resource_version, Some(version.to_string()));
        lease.metadata.resource_version = Some((version + 1).to_string());
        assert_eq!(bench.answer(Answer::Done(Box::new(lease))), None);
        bench.random = f64::from(version) / 10.0;
        let waited = bench.wait();
        assert!(waited >= Duration::from_secs(10) && waited <= Duration::from_millis(10_400));
    }
    assert_eq!(bench.machine.doubts(), 0);
}

#[test]
fn nothing_is_asked_before_it_is_due_nor_while_a_request_is_under_way() {
    let mut bench = Bench::settled();
    assert_eq!(bench.tick(), None);
    bench.wait();
    assert!(bench.tick().is_some());
    assert_eq!(bench.machine.due(), None);
    bench.at += Duration::from_secs(60);
    assert_eq!(bench.tick(), None);
}

#[test]
fn the_first_renewal_comes_after_a_part_of_the_interval() {
    let mut waits = Vec::new();
    for random in [0.1, 0.5, 0.9] {
        let mut bench = Bench::new();
        bench.random = random;
        bench.tick();
        let Some(Request::Create(lease)) = bench.answer(Answer::NotFound) else {
            panic!("it is to be created")
        };
        bench.answer(Answer::Done(lease));
        waits.push(bench.wait());
    }
    assert_eq!(waits, [1, 5, 9].map(Duration::from_secs));
}

#[test]
fn five_updates_fail_then_it_is_read() {
    let mut bench = Bench::settled();
    bench.wait();
    let mut request = bench.tick();
    for _ in 0..5 {
        bench.update(request);
        request = bench.fail();
    }
    assert_eq!(request, Some(Request::Get));
    assert_eq!(
        bench.machine.doubts(),
        4,
        "the first failure is no reason to doubt"
    );
    let request = bench.answer(Answer::Done(Box::new(stored("3", vec![reference("n", "u1")]))));
    let lease = bench.update(request);
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("3"));
    bench.answer(Answer::Done(Box::new(lease)));
    assert_eq!(bench.machine.renewed(), Some(bench.at));
}

#[test]
fn five_more_failures_after_the_read_end_the_attempt_until_the_next_interval() {
    let mut bench = Bench::settled();
    bench.wait();
    let mut request = bench.tick();
    for _ in 0..5 {
        bench.update(request);
        request = bench.fail();
    }
    let mut request = bench.answer(Answer::Done(Box::new(stored("3", vec![reference("n", "u1")]))));
    for _ in 0..4 {
        bench.update(request);
        request = bench.fail();
    }
    bench.update(request);
    assert_eq!(bench.answer(failed()), None);
    assert!(bench.wait() >= bench.settings.interval);
    let request = bench.tick();
    bench.update(request);
}

#[test]
fn updates_that_fail_wait_longer_and_longer() {
    for (random, expected) in [
        (0.0, [200, 400, 800, 1600, 3200]),
        (1.0, [300, 600, 1200, 2400, 4800]),
    ] {
        let mut bench = Bench::settled();
        bench.wait();
        bench.random = random;
        let mut request = bench.tick();
        let mut waits = Vec::new();
        for _ in 0..5 {
            bench.update(request);
            assert_eq!(bench.answer(failed()), None);
            assert_eq!(bench.tick(), None, "not before its time");
            waits.push(bench.wait().as_millis());
            request = bench.tick();
        }
        assert_eq!(request, Some(Request::Get));
        assert_eq!(waits, expected);
    }
}

#[test]
fn a_conflict_is_no_failure() {
    let mut bench = Bench::settled();
    bench.wait();
    let request = bench.tick();
    bench.update(request);
    let request = bench.fail();
    bench.update(request);
    assert_eq!(bench.answer(Answer::Conflict), Some(Request::Get));
    let request = bench.answer(Answer::Done(Box::new(stored("4", vec![reference("n", "u1")]))));
    let lease = bench.update(request);
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("4"));
    assert_eq!(bench.answer(Answer::Done(Box::new(lease))), None);
    assert_eq!(bench.machine.doubts(), 0);
}

#[test]
fn conflicts_without_end_end_the_burst() {
    let mut bench = Bench::settled();
    bench.wait();
    let mut request = bench.tick();
    let mut updates = 0;
    while matches!(request, Some(Request::Update(_))) && updates < 100 {
        updates += 1;
        assert_eq!(bench.answer(Answer::Conflict), Some(Request::Get));
        request = bench.answer(Answer::Done(Box::new(stored("4", vec![reference("n", "u1")]))));
    }
    // The optimistic burst, and, read once more, another.
    assert_eq!((updates, request), (5, Some(Request::Get)));
}

#[test]
fn a_lease_that_exists_is_read_and_updated() {
    let mut bench = Bench::new();
    assert_eq!(bench.tick(), Some(Request::Get));
    let request = bench.answer(Answer::Done(Box::new(stored("7", vec![reference("n", "u1")]))));
    assert_eq!(
        bench.update(request).metadata.resource_version.as_deref(),
        Some("7")
    );
}

#[test]
fn a_lease_that_was_deleted_is_created_at_once() {
    let mut bench = Bench::settled();
    bench.wait();
    let request = bench.tick();
    bench.update(request);
    assert_eq!(bench.answer(Answer::NotFound), Some(Request::Get));
    assert!(matches!(bench.answer(Answer::NotFound), Some(Request::Create(_))));
}

#[test]
fn reads_back_off_from_200_ms_to_7_s() {
    let mut bench = Bench::new();
    bench.random = 0.0;
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(bench.tick(), Some(Request::Get));
        assert_eq!(bench.answer(failed()), None);
        waits.push(bench.wait().as_millis());
    }
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
    bench.random = 1.0;
    bench.tick();
    bench.answer(failed());
    assert_eq!(bench.wait().as_millis(), 10_500, "spread by a half");
}

fn answers() -> impl Strategy<Value = Option<Answer>> {
    prop_oneof![
        Just(None),
        Just(Some(Answer::NotFound)),
        Just(Some(Answer::Conflict)),
        Just(Some(Answer::Failed("x".into()))),
        any::<bool>().prop_map(|owned| {
            let references = if owned {
                vec![reference("n", "u1")]
            } else {
                Vec::new()
            };
            Some(Answer::Done(Box::new(stored("1", references))))
        }),
        Just(Some(Answer::Done(Box::default()))),
    ]
}

proptest! {
    #[test]
    fn whatever_is_answered_there_is_one_request_or_a_time_to_come_back(
        script in prop::collection::vec((answers(), 0u64..20_000, any::<f64>(), any::<bool>()), 0..60)
    ) {
        let mut bench = Bench::new();
        for (answer, later, random, known) in script {
            bench.at += Duration::from_millis(later);
            bench.random = random;
            bench.uid = known.then_some("u1");
            let was_under_way = bench.machine.due().is_none();
            let request = if let Some(answer) = answer {
                bench.answer(answer)
            } else {
                let request = bench.tick();
                prop_assert!(!(was_under_way && request.is_some()));
                request
            };
            if request.is_some() {
                prop_assert_eq!(bench.machine.due(), None);
            }
        }
    }
}
