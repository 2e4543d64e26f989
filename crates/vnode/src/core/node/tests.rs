//! virtual-kubelet's list of tests (`node/node_test.go`), and ours.
//!
//! | virtual-kubelet | here |
//! |---|---|
//! | NodeRun with lease | `a_node_registers_after_its_first_ping_and_then_only_beats` |
//! | NodeRun without lease | none: there is always a Lease, a cluster without them is older than any that is supported |
//! | CustomUpdateStatusErrorHandler (the handler makes the Node anew) | `a_node_that_is_gone_is_registered_anew` |
//! | UpdateNodeStatus | `a_change_is_posted_at_once` |
//! | PingAfterStatusUpdate | `pings_go_on_after_a_change` |
//! | BeforeAnnotationsPreserved | `what_others_put_on_a_node_stays` in `core::merge`, `foreign_writes_survive` in `node` |
//! | ManualConditionsPreserved | the same two |
//! | NodePingSingleInflight | `there_is_one_ping_at_a_time` |

use super::*;
use crate::core::Now;
use crate::core::merge;
use crate::core::reported::FaultKind;
use k8s_openapi::api::core::v1::NodeCondition;
use proptest::prelude::*;

/// A machine and an API server as simple as can be.
struct Bench {
    machine: Machine,
    settings: Settings,
    at: Duration,
    stored: Option<Node>,
    version: u32,
    /// Of the stored Node.
    revision: u64,
    /// Answers of the provider; `None`: silence.
    health: Option<Result<NodeHealth, Fault>>,
    down: bool,
    log: Vec<String>,
    record: Vec<String>,
    /// When the machine wants to be woken.
    wake: Duration,
}

impl Bench {
    fn new() -> Self {
        Self::of(NodeTemplate::default(), None)
    }

    fn of(template: NodeTemplate, stored: Option<Node>) -> Self {
        Self {
            machine: Machine::new("n1", template),
            settings: Settings::default(),
            at: Duration::from_secs(1_700_000_000),
            stored,
            version: 1,
            revision: 0,
            health: Some(Ok(NodeHealth::default())),
            down: false,
            log: Vec::new(),
            record: Vec::new(),
            wake: Duration::MAX,
        }
    }

    fn begun() -> Self {
        let mut bench = Self::new();
        bench.step(Input::Begin(None));
        bench
    }

    /// Feeds an input and answers whatever is asked.
    fn step(&mut self, input: Input) {
        let now = Now {
            mono: self.at,
            wall: self.at,
        };
        let actions = self.machine.step(&self.settings, input, now);
        self.wake = Duration::MAX;
        let mut answers = Vec::new();
        for action in actions {
            match action {
                Action::Ping => {
                    self.log.push("ping".into());
                    answers.extend(self.health.clone().map(Input::Pinged));
                }
                Action::Register(node) => {
                    self.log.push("register".into());
                    answers.push(Input::Written(self.register(&node)));
                }
                Action::Post(patch) => {
                    self.log.push("post".into());
                    answers.push(Input::Written(self.post(&patch)));
                }
                Action::Lease(request) => {
                    self.log.push("lease".into());
                    answers.push(Input::Lease(match request {
                        _ if self.down => lease::Answer::Failed("down".into()),
                        lease::Request::Get => lease::Answer::NotFound,
                        lease::Request::Create(lease) | lease::Request::Update(lease) => {
                            lease::Answer::Done(lease)
                        }
                    }));
                }
                Action::Record(reason, _) => self.record.push(reason),
                Action::Wake(wake) => self.wake = self.at + wake,
            }
        }
        for answer in answers {
            self.step(answer);
        }
    }

    fn register(&mut self, node: &Node) -> Result<Box<Node>, Refused> {
        if self.down {
            return Err(Refused::Failed("down".into()));
        }
        match &self.stored {
            None => {
                let mut node = merge::creation(node);
                node.metadata.uid = Some(format!("u{}", self.version));
                self.version += 1;
                self.log.push("create".into());
                self.stored = Some(node);
                self.change(|_| {});
            }
            Some(current) => {
                if let Some(patch) = merge::patch(current, node) {
                    self.log.push("patch".into());
                    self.apply(&patch);
                }
            }
        }
        Ok(Box::new(self.stored.clone().unwrap()))
    }

    fn post(&mut self, patch: &Value) -> Result<Box<Node>, Refused> {
        if self.down {
            return Err(Refused::Failed("down".into()));
        }
        let Some(stored) = &self.stored else {
            return Err(Refused::NotFound);
        };
        if patch["metadata"]["uid"].as_str() != stored.metadata.uid.as_deref() {
            return Err(Refused::Conflict);
        }
        self.apply(patch);
        Ok(Box::new(self.stored.clone().unwrap()))
    }

    /// Changes the stored Node.
    fn change(&mut self, change: impl FnOnce(&mut Node)) {
        self.revision += 1;
        let node = self.stored.as_mut().unwrap();
        change(node);
        node.metadata.resource_version = Some(self.revision.to_string());
    }

    /// As the node lifecycle controller has it.
    fn others_say_unknown(&mut self) {
        self.change(|node| {
            let status = node.status.as_mut().unwrap();
            for one in status.conditions.iter_mut().flatten() {
                one.status = "Unknown".into();
                one.reason = Some("NodeStatusUnknown".into());
            }
        });
    }

    fn seen(&self) -> Input {
        Input::Seen(Box::new(self.stored.clone().unwrap()))
    }

    /// Annotations, labels, and conditions by type: no more is looked at.
    fn apply(&mut self, patch: &Value) {
        let annotations = &mut self.stored.as_mut().unwrap().metadata.annotations;
        for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
            annotations
                .get_or_insert_default()
                .insert(key.clone(), value.as_str().unwrap_or_default().into());
        }
        let conditions = self.stored.as_mut().unwrap().status.as_mut().unwrap();
        let conditions = conditions.conditions.get_or_insert_default();
        for item in patch["status"]["conditions"].as_array().into_iter().flatten() {
            conditions.retain(|old| item["type"] != old.type_.as_str());
            if item.get("$patch").is_none() {
                conditions.push(serde_json::from_value(item.clone()).unwrap());
            }
        }
        let labels = &mut self.stored.as_mut().unwrap().metadata.labels;
        for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            labels.get_or_insert_default().insert(key.clone(), value.into());
        }
        self.change(|_| {});
    }

    /// Lets time pass, waking the machine as it asks.
    fn pass(&mut self, time: Duration) {
        let end = self.at + time;
        while self.wake <= end {
            self.at = self.wake;
            self.step(Input::Tick);
        }
        self.at = end;
    }

    fn count(&self, what: &str) -> usize {
        self.log.iter().filter(|entry| *entry == what).count()
    }

    fn condition(&self, kind: &str) -> NodeCondition {
        let status = self.stored.as_ref().unwrap().status.as_ref().unwrap();
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|one| one.type_ == kind).unwrap().clone()
    }

    fn ready(&self) -> String {
        self.condition("Ready").status
    }
}

fn fault(message: &str) -> Fault {
    Fault::new(FaultKind::Later, "Broken", message)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[test]
fn a_node_registers_after_its_first_ping_and_then_only_beats() {
    let mut bench = Bench::begun();
    assert_eq!(bench.log, ["ping", "register", "create", "lease", "lease"]);
    assert!(bench.machine.is_ready());
    assert_eq!(bench.machine.uid(), Some("u1"));
    bench.pass(minutes(10));
    bench.log.clear();
    bench.pass(minutes(100));
    assert!(
        (576..=600).contains(&bench.count("lease")),
        "{}",
        bench.count("lease")
    );
    assert_eq!(bench.count("post"), 20);
    assert_eq!(bench.count("ping"), 600);
    assert_eq!(
        bench.log.len(),
        bench.count("lease") + 620,
        "nothing else is asked"
    );
}

#[test]
fn the_label_of_virtual_nodes_may_have_another_value_or_be_left_away() {
    let label = |value: &str| {
        let mut bench = Bench::of(NodeTemplate::default(), None);
        bench.settings.type_label = value.to_owned();
        bench.step(Input::Begin(None));
        bench.stored.unwrap().metadata.labels.unwrap().remove("type")
    };
    assert_eq!(label("edge").as_deref(), Some("edge"));
    assert_eq!(label(""), None);
}

#[test]
fn a_registered_node_has_what_a_kubelets_has() {
    let template = NodeTemplate {
        taints: vec![(
            "virtual-kubelet.io/provider".into(),
            "sim".into(),
            "NoSchedule".into(),
        )],
        capacity: [("pods".to_owned(), "110".to_owned())].into(),
        labels: [("kubernetes.io/hostname".to_owned(), "other".to_owned())].into(),
        ..NodeTemplate::default()
    };
    let mut bench = Bench::of(template, None);
    bench.settings.labels = [("fleet".to_owned(), "f".to_owned())].into();
    bench.step(Input::Begin(Some("10.1.2.3:10250".parse().unwrap())));
    let node = bench.stored.unwrap();
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [
        ("type", "virtual-kubelet"),
        ("kubernetes.io/role", "agent"),
        ("kubernetes.io/hostname", "other"),
        ("kubernetes.io/os", "linux"),
        ("fleet", "f"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(labels.contains_key("kubernetes.io/arch"));
    assert_eq!(node.spec.unwrap().taints.unwrap().len(), 1);
    let status = node.status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    assert_eq!(port, 10250);
    assert_eq!(status.capacity, status.allocatable);
    // Whatever type of address the API server prefers, it finds this one.
    let addresses = status.addresses.unwrap();
    assert_eq!(addresses.len(), 1);
    assert_eq!(
        (addresses[0].type_.as_str(), addresses[0].address.as_str()),
        ("InternalIP", "10.1.2.3")
    );
    let reasons: Vec<_> = status
        .conditions
        .unwrap()
        .into_iter()
        .filter_map(|one| one.reason)
        .collect();
    assert_eq!(
        reasons,
        [
            "RouteCreated",
            "KubeletHasSufficientMemory",
            "KubeletHasNoDiskPressure",
            "KubeletHasSufficientPID",
            "KubeletReady"
        ]
    );
}

#[test]
fn a_failed_ping_makes_a_node_not_ready_while_its_lease_goes_on() {
    let mut bench = Bench::begun();
    bench.pass(minutes(1));
    bench.health = Some(Err(fault("the base is gone")));
    bench.log.clear();
    bench.pass(minutes(1));
    let ready = bench.condition("Ready");
    assert_eq!(ready.status, "False");
    assert_eq!(ready.reason.as_deref(), Some("ProviderUnwell"));
    assert_eq!(ready.message.as_deref(), Some("the base is gone"));
    assert!(!bench.machine.is_ready());
    assert!(bench.count("lease") >= 5);
    assert_eq!(bench.count("post"), 1);
    let others = bench.condition("DiskPressure");
    assert!(others.last_transition_time < ready.last_transition_time);
    bench.health = Some(Ok(NodeHealth::default()));
    bench.pass(minutes(1));
    assert_eq!(bench.ready(), "True");
    assert!(bench.machine.is_ready());
    assert_eq!(bench.record, ["NodeNotReady", "NodeReady"]);
}

#[test]
fn there_is_one_ping_at_a_time() {
    let mut bench = Bench::begun();
    bench.pass(minutes(1));
    bench.health = None;
    bench.log.clear();
    bench.pass(minutes(5));
    bench.step(Input::Stirred);
    assert_eq!(bench.count("ping"), 1);
    assert_eq!(bench.ready(), "False", "silence is an answer");
    let message = bench.condition("Ready").message.unwrap();
    assert!(
        message.contains("has not answered a ping within 10s"),
        "{message}"
    );
    bench.health = Some(Ok(NodeHealth::default()));
    bench.step(Input::Pinged(Ok(NodeHealth::default())));
    assert_eq!(
        bench.count("ping"),
        2,
        "asked again, for something may have changed"
    );
    assert_eq!(bench.ready(), "True");
}

#[test]
fn a_node_whose_first_ping_is_not_answered_registers_not_ready() {
    let mut bench = Bench::new();
    bench.health = None;
    bench.step(Input::Begin(None));
    assert_eq!(bench.log, ["ping"]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.ready(), "False");
}

#[test]
fn a_change_is_posted_at_once() {
    let mut bench = Bench::begun();
    bench.pass(minutes(1));
    bench.log.clear();
    let pressure = NodeCondition {
        type_: "MemoryPressure".into(),
        status: "True".into(),
        reason: Some("Metaspace".into()),
        ..NodeCondition::default()
    };
    bench.health = Some(Ok(NodeHealth {
        conditions: vec![pressure],
        ..NodeHealth::default()
    }));
    bench.step(Input::Stirred);
    assert_eq!(bench.log, ["ping", "post"]);
    assert_eq!(
        bench.condition("MemoryPressure").reason.as_deref(),
        Some("Metaspace")
    );
}

#[test]
fn pings_go_on_after_a_change() {
    let mut bench = Bench::begun();
    let own = NodeCondition {
        type_: "Own".into(),
        status: "True".into(),
        ..NodeCondition::default()
    };
    bench.health = Some(Ok(NodeHealth {
        conditions: vec![own],
        ..NodeHealth::default()
    }));
    bench.step(Input::Stirred);
    assert_eq!(bench.count("patch"), 1, "a new key is written down");
    bench.log.clear();
    bench.pass(minutes(1));
    assert!(bench.count("ping") >= 5);
    bench.health = Some(Ok(NodeHealth::default()));
    bench.step(Input::Stirred);
    let status = bench.stored.as_ref().unwrap().status.as_ref().unwrap();
    assert_eq!(
        status.conditions.as_ref().unwrap().len(),
        5,
        "what was ours is removed"
    );
}

#[test]
fn a_new_template_is_merged() {
    let mut bench = Bench::begun();
    bench.log.clear();
    let template = NodeTemplate {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ..NodeTemplate::default()
    };
    bench.step(Input::Template(Box::new(template.clone()), None));
    assert_eq!(bench.log, ["register", "patch"]);
    bench.step(Input::Template(Box::new(template), None));
    assert_eq!(bench.log.len(), 2, "the same again is nothing new");
}

#[test]
fn a_node_that_is_gone_is_registered_anew() {
    let mut bench = Bench::begun();
    bench.pass(minutes(1));
    bench.stored = None;
    bench.log.clear();
    bench.step(Input::Gone);
    assert_eq!(bench.log[..2], ["register", "create"]);
    assert_eq!(bench.machine.uid(), Some("u2"));
    // The same, noticed by a write.
    bench.stored = None;
    bench.pass(minutes(6));
    assert_eq!(bench.machine.uid(), Some("u3"));
    assert_eq!(bench.ready(), "True");
}

#[test]
fn a_restart_adopts_the_node_without_a_write() {
    let mut bench = Bench::begun();
    bench.pass(minutes(3));
    let before = bench.stored.clone().unwrap();
    let mut next = Bench::of(NodeTemplate::default(), Some(before.clone()));
    next.at = bench.at + Duration::from_secs(20);
    next.step(Input::Begin(None));
    assert_eq!(next.log, ["ping", "register", "lease", "lease"]);
    assert_eq!(next.stored.as_ref(), Some(&before));
    assert!(next.record.is_empty(), "nothing has flipped");
    next.pass(minutes(5));
    assert_eq!(next.count("post"), 1);
    let (old, new) = (&before.status.unwrap(), next.condition("Ready"));
    let old = old
        .conditions
        .iter()
        .flatten()
        .find(|one| one.type_ == "Ready")
        .unwrap();
    assert_eq!(old.last_transition_time, new.last_transition_time);
    assert!(old.last_heartbeat_time < new.last_heartbeat_time);
}

#[test]
fn after_an_outage_what_others_wrote_meanwhile_is_put_right() {
    let mut bench = Bench::begun();
    bench.pass(minutes(2));
    bench.down = true;
    bench.pass(minutes(1));
    let status = bench.stored.as_mut().unwrap().status.as_mut().unwrap();
    for one in status.conditions.as_mut().unwrap() {
        if one.type_ == "Ready" {
            one.status = "Unknown".into();
        }
    }
    bench.down = false;
    bench.pass(minutes(1));
    assert_eq!(bench.ready(), "True");
}

#[test]
fn what_others_write_is_put_right_at_once() {
    let mut bench = Bench::begun();
    bench.pass(minutes(2));
    bench.others_say_unknown();
    bench.step(bench.seen());
    assert_eq!(bench.ready(), "True");
    let registered = bench.count("register");
    bench.step(bench.seen());
    assert_eq!(bench.count("register"), registered, "its own write is no news");
    bench.pass(minutes(2));
    assert_eq!(bench.count("register"), registered);
}

#[test]
fn what_somebody_writes_again_and_again_is_put_right_ever_later() {
    let mut bench = Bench::begun();
    let before = bench.count("register");
    for _ in 0..3_600 {
        bench.pass(Duration::from_secs(1));
        if bench.ready() == "True" {
            bench.others_say_unknown();
            bench.step(bench.seen());
        }
    }
    let corrections = bench.count("register") - before;
    assert!((10..25).contains(&corrections), "{corrections}");
}

#[test]
fn a_label_that_others_change_during_a_report_is_put_right_after_it() {
    let mut bench = Bench::begun();
    let wrong = |node: &mut Node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/hostname".to_owned(), "other".to_owned());
    };
    let name = |bench: &Bench| {
        let labels = bench.stored.as_ref().unwrap().metadata.labels.as_ref();
        labels.unwrap()["kubernetes.io/hostname"].clone()
    };
    assert_eq!(name(&bench), "n1");
    bench.change(wrong);
    // No watch tells of it: the answer to the next report does.
    bench.pass(minutes(6));
    assert_eq!(name(&bench), "n1");
}

#[test]
fn an_older_node_and_another_of_its_name_say_nothing() {
    let mut bench = Bench::begun();
    let mut old = bench.stored.clone().unwrap();
    old.metadata.labels = None;
    let mut other = old.clone();
    other.metadata.uid = Some("other".to_owned());
    other.metadata.resource_version = Some("1000".to_owned());
    let before = bench.count("register");
    for node in [old, other] {
        bench.step(Input::Seen(Box::new(node)));
    }
    assert_eq!(bench.count("register"), before);
}

#[test]
fn a_write_that_fails_is_tried_again_ever_more_rarely() {
    let mut bench = Bench::new();
    bench.down = true;
    bench.step(Input::Begin(None));
    bench.pass(minutes(1));
    let tries = bench.count("register");
    assert!((11..16).contains(&tries), "{tries}");
    bench.down = false;
    bench.pass(Duration::from_secs(9));
    assert!(bench.machine.is_ready());
}

#[test]
fn nodes_that_begin_together_beat_apart() {
    let mut seconds = std::collections::BTreeSet::new();
    for index in 0..50 {
        let mut bench = Bench::new();
        bench.machine = Machine::new(&format!("n{index}"), NodeTemplate::default());
        bench.step(Input::Begin(None));
        let begun = bench.at;
        bench.log.clear();
        while bench.count("lease") == 0 {
            bench.pass(Duration::from_millis(500));
        }
        seconds.insert(bench.at.saturating_sub(begun).as_secs());
    }
    assert!(seconds.len() >= 8, "{seconds:?}");
}

#[test]
fn a_node_takes_less_than_two_kibibytes() {
    let amounts = [
        ("cpu", "64"),
        ("memory", "262144Mi"),
        ("pods", "110"),
        ("ephemeral-storage", "100Gi"),
    ];
    let template = NodeTemplate {
        labels: (0..8)
            .map(|n| (format!("base.example.com/label-{n}"), format!("value-{n}")))
            .collect(),
        taints: vec![(
            "virtual-kubelet.io/provider".into(),
            "simulated".into(),
            "NoSchedule".into(),
        )],
        capacity: amounts
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        addresses: vec![
            ("InternalIP".into(), "10.0.0.1".into()),
            ("Hostname".into(), "n1".into()),
        ],
        ..NodeTemplate::default()
    };
    let mut bench = Bench::of(template, None);
    bench.step(Input::Begin(Some("10.0.0.1:10250".parse().unwrap())));
    let weight = bench.machine.weight();
    assert!(weight <= 1536, "{weight} bytes");
}

fn inputs() -> impl Strategy<Value = Input> {
    let node = |uid: &str| {
        let mut node = Node::default();
        node.metadata.uid = Some(uid.to_owned());
        Input::Written(Ok(Box::new(node)))
    };
    prop_oneof![
        4 => Just(Input::Tick),
        1 => Just(Input::Begin(None)),
        1 => Just(Input::Begin(Some("[::1]:1".parse().unwrap()))),
        2 => Just(Input::Pinged(Ok(NodeHealth::default()))),
        1 => ".{0,300}".prop_map(|text| Input::Pinged(Err(fault(&text)))),
        2 => Just(node("a")),
        1 => Just(node("b")),
        1 => Just(Input::Written(Ok(Box::default()))),
        1 => Just(Input::Written(Err(Refused::NotFound))),
        1 => Just(Input::Written(Err(Refused::Conflict))),
        1 => Just(Input::Written(Err(Refused::Failed("x".into())))),
        1 => Just(Input::Lease(lease::Answer::Done(Box::default()))),
        1 => Just(Input::Lease(lease::Answer::NotFound)),
        1 => Just(Input::Lease(lease::Answer::Failed("x".into()))),
        1 => Just(Input::Gone),
        1 => (0u64..9).prop_map(|version| {
            let mut node = Node::default();
            node.metadata.uid = Some("a".to_owned());
            node.metadata.resource_version = Some(version.to_string());
            Input::Seen(Box::new(node))
        }),
        1 => Just(Input::Stirred),
        1 => ".{0,9}".prop_map(|text| Input::Template(Box::new(NodeTemplate {
            boot_id: text.clone(),
            capacity: [(text.clone(), text)].into(),
            ..NodeTemplate::default()
        }), None)),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_there_is_one_request_of_a_kind_at_a_time(
        script in prop::collection::vec((inputs(), 0u64..400_000), 0..80)
    ) {
        let settings = Settings::default();
        let mut machine = Machine::new("n", NodeTemplate::default());
        let mut at = Duration::ZERO;
        let (mut writing, mut pinging, mut leasing) = (false, false, false);
        for (input, later) in script {
            at += Duration::from_millis(later);
            match &input {
                Input::Written(_) => writing = false,
                Input::Pinged(_) => pinging = false,
                Input::Lease(_) => leasing = false,
                _ => {}
            }
            for action in machine.step(&settings, input, Now { mono: at, wall: at }) {
                let under_way = match action {
                    Action::Ping => &mut pinging,
                    Action::Register(_) | Action::Post(_) => &mut writing,
                    Action::Lease(_) => &mut leasing,
                    Action::Record(..) | Action::Wake(_) => continue,
                };
                prop_assert!(!std::mem::replace(under_way, true));
            }
        }
    }
}
