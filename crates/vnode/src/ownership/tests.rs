use super::lock::Due;
use super::*;
use evenkeel_api::names;
use evenkeel_election::Lock as _;
use evenkeel_election::core::Record;
use evenkeel_election::gate::is_gate_closed;
use evenkeel_election::lock::{LeaseLock, LockError};
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::{ServedApi, api_server, ends, until, until_within};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

/// Who serves what, as far as all replicas of a test say, and every time that two said the same.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Entries>>);

/// Holders, and clashes.
type Entries = (BTreeMap<u16, String>, Vec<String>);

impl Book {
    fn gained(&self, who: &str, slot: u16) {
        let (held, clashes) = &mut *self.0.lock().unwrap();
        if let Some(other) = held.insert(slot, who.to_owned()) {
            clashes.push(format!("{who} gained {slot}, which {other} holds"));
        }
    }

    fn lost(&self, who: &str, slot: u16) {
        let (held, clashes) = &mut *self.0.lock().unwrap();
        if held.remove(&slot).as_deref() != Some(who) {
            clashes.push(format!("{who} lost {slot}, which it did not hold"));
        }
    }

    fn count(&self, who: &str) -> usize {
        self.0
            .lock()
            .unwrap()
            .0
            .values()
            .filter(|holder| *holder == who)
            .count()
    }

    /// Waits until each holds so many.
    async fn settles(&self, counts: &[(&str, usize)], within: Duration) {
        until_within(&format!("{counts:?}"), within, async || {
            counts.iter().all(|(who, count)| self.count(who) == *count)
        })
        .await;
        let clashes = &self.0.lock().unwrap().1;
        assert!(clashes.is_empty(), "{clashes:?}");
    }
}

struct Replica {
    stop: CancellationToken,
    task: JoinHandle<()>,
    gates: Vec<Gate>,
}

impl Replica {
    /// With a timing of its own, it tells the book.
    fn start(sharing: Sharing, client: Client, book: &Book) -> Self {
        let Sharing::Slots { election, .. } = &sharing else {
            panic!("these tests are about slots")
        };
        let who = election.identity.clone();
        let stop = CancellationToken::new();
        let mut ownership = Ownership::start(sharing, client, stop.clone());
        let gates = (0..16).filter_map(|slot| ownership.gate(slot)).collect();
        let book = book.clone();
        let task = tokio::spawn(async move {
            while let Some(change) = ownership.next().await {
                match &change {
                    Change::Gained { slot, .. } => book.gained(&who, *slot),
                    Change::Lost { slot, .. } => book.lost(&who, *slot),
                }
                drop(change);
            }
        });
        Self { stop, task, gates }
    }

    async fn stop(self) {
        self.stop.cancel();
        ends("it ends", self.task).await.unwrap();
    }
}

/// Slots with a timing for tests.
fn quick(identity: &str, count: u16) -> Sharing {
    let mut sharing = Sharing::slots("default", "fleet", identity);
    if let Sharing::Slots { slots, election, .. } = &mut sharing {
        *slots = count;
        election.lease_duration = Duration::from_secs(3);
        election.renew_deadline = Duration::from_secs(2);
        election.retry_period = Duration::from_millis(400);
    }
    sharing
}

#[rstest]
#[case("", 5)]
#[case("a", 12)]
#[case("foobar", 8)]
#[case("vnode-1", 15)]
fn the_hash_is_the_same_for_ever(#[case] node: &str, #[case] slot: u16) {
    assert_eq!(slot_of(node, 16), slot);
}

#[test]
fn nodes_spread_over_all_slots() {
    let mut counts = [0; 16];
    for node in 0..10_000 {
        counts[usize::from(slot_of(&format!("vnode-{node}"), 16))] += 1;
    }
    assert!(
        counts.iter().all(|count| (500..750).contains(count)),
        "{counts:?}"
    );
    assert_eq!(slot_of("any", 0), 0);
}

#[test]
fn what_cannot_work_is_refused() {
    assert!(Sharing::Alone.validate().is_ok());
    assert!(Sharing::slots("default", "fleet", "me").validate().is_ok());
    assert!(quick("me", 0).validate().is_err());
    assert!(quick("", 4).validate().is_err());
}

#[tokio::test]
async fn who_is_alone_serves_all_until_the_shutdown() {
    let server = api_server();
    let stop = CancellationToken::new();
    let mut ownership = Ownership::start(Sharing::Alone, server.client(), stop.clone());
    assert!(matches!(
        ownership.next().await,
        Some(Change::Gained { slot: 0, .. })
    ));
    assert_eq!(ownership.slot("any"), 0);
    assert!(ownership.gate(0).is_none());
    stop.cancel();
    assert!(ownership.next().await.is_none());
    let leases: Api<Lease> = Api::all(server.client());
    assert!(
        leases
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_fairly_as_they_come_and_go() {
    let (server, book) = (api_server(), Book::default());
    let start = |name: &str| Replica::start(quick(name, 7), server.client(), &book);
    let a = start("a");
    book.settles(&[("a", 7)], LONG).await;
    let b = start("b");
    book.settles(&[("a", 4), ("b", 3)], LONG).await;
    let c = start("c");
    until("three shares", async || {
        let counts = ["a", "b", "c"].map(|who| book.count(who));
        counts.iter().sum::<usize>() == 7 && counts.iter().all(|count| (2..=3).contains(count))
    })
    .await;
    a.stop().await;
    book.settles(&[("a", 0)], LONG).await;
    until("two shares", async || {
        let counts = ["b", "c"].map(|who| book.count(who));
        counts.iter().sum::<usize>() == 7 && counts.iter().all(|count| (3..=4).contains(count))
    })
    .await;
    b.stop().await;
    book.settles(&[("c", 7)], LONG).await;
    c.stop().await;
    book.settles(&[("c", 0)], LONG).await;
    let leases: Api<Lease> = Api::namespaced(server.client(), "default");
    let ours = ListParams::default().labels(&format!("{}=fleet", names::vnode::OWNERSHIP_LABEL));
    let left = leases.list(&ours).await.unwrap().items;
    assert_eq!(left.len(), 7, "announcements are gone, slots stay");
    let held = |lease: &Lease| {
        lease
            .spec
            .as_ref()?
            .holder_identity
            .clone()
            .filter(|holder| !holder.is_empty())
    };
    assert!(
        left.iter().all(|lease| held(lease).is_none()),
        "all were given back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_count_differently_serve_nothing_until_one_is_gone() {
    let (server, book) = (api_server(), Book::default());
    let a = Replica::start(quick("a", 7), server.client(), &book);
    book.settles(&[("a", 7)], LONG).await;
    // It would hold a slot that no other counts, and serve nodes of those that another holds.
    let elsewhere = Book::default();
    let b = Replica::start(quick("b", 9), server.client(), &elsewhere);
    book.settles(&[("a", 0)], LONG).await;
    assert_eq!(elsewhere.count("b"), 0);
    b.stop().await;
    assert!(elsewhere.0.lock().unwrap().0.is_empty());
    book.settles(&[("a", 7)], LONG).await;
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_not_given_back_before_its_work_has_ended() {
    let (server, book) = (api_server(), Book::default());
    let stop = CancellationToken::new();
    let mut slow = Ownership::start(quick("slow", 1), server.client(), stop.clone());
    let Some(Change::Gained { slot: 0, client }) = slow.next().await else {
        panic!("it is alone")
    };
    let other = Replica::start(quick("other", 1), server.client(), &book);
    stop.cancel();
    let lost = slow.next().await;
    assert!(matches!(
        &lost,
        Some(Change::Lost {
            slot: 0,
            done: Some(_)
        })
    ));
    let lease: Api<Lease> = Api::namespaced(server.client(), "default");
    let holder = lease.get("fleet-0").await.unwrap().spec.unwrap().holder_identity;
    assert_eq!((holder.as_deref(), book.count("other")), (Some("slow"), 0));
    drop(lost);
    assert!(slow.next().await.is_none());
    book.settles(&[("other", 1)], LONG).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let refused = maps.create(&PostParams::default(), &ConfigMap::default()).await;
    assert!(is_gate_closed(&refused.unwrap_err()));
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_cut_off_is_relieved_and_has_stopped_before() {
    let (api, book) = (ServedApi::start().await, Book::default());
    let mut replicas = Vec::new();
    let mut links = Vec::new();
    for who in ["a", "b"] {
        let link = api.link(who).await;
        let args = ClientArgs {
            kubeconfig: Some(link.kubeconfig().to_owned()),
            ..ClientArgs::default()
        };
        let client = args.client("test").await.unwrap();
        let mut sharing = Sharing::slots("default", "fleet", who);
        if let Sharing::Slots { slots, .. } = &mut sharing {
            *slots = 4;
        }
        replicas.push(Replica::start(sharing, client, &book));
        links.push(link);
    }
    book.settles(&[("a", 2), ("b", 2)], LONG).await;
    links[0].cut();
    book.settles(&[("a", 0), ("b", 4)], LONG).await;
    assert!(replicas[0].gates.iter().all(|gate| !gate.is_open()));
    links[0].mend();
    book.settles(&[("a", 2), ("b", 2)], LONG).await;
    for replica in replicas {
        replica.stop().await;
    }
}

/// A record of its own name that a process did not write is that of a predecessor, and is taken as any
/// other's.
#[tokio::test]
async fn what_a_predecessor_of_its_name_held_is_taken_only_when_it_is_due() {
    let server = api_server();
    let inner = LeaseLock::new(server.client(), "default", "fleet-0").unwrap();
    let record = Record {
        holder: "a".to_owned(),
        lease_duration_seconds: 3,
        ..Record::default()
    };
    inner.create(record.clone()).await.unwrap();
    let (decide, wanted) = watch::channel(BTreeSet::new());
    let due = Due {
        inner,
        slot: 0,
        me: "a".into(),
        wanted,
        look: Arc::default(),
        patience: Duration::from_millis(10),
        held: Arc::default(),
    };
    let write = async || {
        let found = due.get().await.unwrap().unwrap();
        due.update(record.clone(), found.version).await
    };
    assert!(matches!(write().await, Err(LockError::Conflict)));
    decide.send_replace([0].into());
    write().await.expect("it is due");
    decide.send_replace(BTreeSet::new());
    write()
        .await
        .expect("what this process holds is renewed in any case");
}
