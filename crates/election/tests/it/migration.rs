//! Work that moves from one component to another, at the embedded API server.

use crate::rivals::config;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::migration::{ControllerLeader, Migrating, Migration, MigrationConfig, MigrationLock};
use evenkeel_election::{Config, Elector, OnLoss, StopReason};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{SOON, api_server, ends, eventually, until};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const MIGRATION: &str = "the-migration";
const MOVING: &str = "route";
const STAYING: &str = "deployment";

/// Who does which piece of work. Two at once fail the test.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    doing: BTreeMap<(String, String), String>,
    doubles: Vec<String>,
}

impl Board {
    /// `place` keeps apart the work that two components do by right.
    fn begin(&self, place: &str, work: &str, who: &str) {
        let mut state = self.0.lock().unwrap();
        let key = (place.to_owned(), work.to_owned());
        if let Some(other) = state.doing.insert(key, who.to_owned()) {
            state.doubles.push(format!("{work}: {other} and {who}"));
        }
    }

    fn end(&self, place: &str, work: &str) {
        self.0
            .lock()
            .unwrap()
            .doing
            .remove(&(place.to_owned(), work.to_owned()));
    }

    fn doing(&self, place: &str, work: &str) -> Option<String> {
        self.0
            .lock()
            .unwrap()
            .doing
            .get(&(place.to_owned(), work.to_owned()))
            .cloned()
    }

    async fn until(&self, place: &str, work: &str, who: Option<&str>) {
        until(&format!("{work} is done by {who:?}"), async || {
            self.doing(place, work).as_deref() == who
        })
        .await;
    }

    fn assert_never_twice(&self) {
        assert_eq!(self.0.lock().unwrap().doubles, [""; 0]);
    }
}

fn migration_to(owner: &str) -> MigrationConfig {
    MigrationConfig {
        leader_name: MIGRATION.to_owned(),
        controller_leaders: vec![ControllerLeader {
            name: MOVING.to_owned(),
            component: owner.to_owned(),
        }],
        ..MigrationConfig::default()
    }
}

/// A replica of a component that does the moving work and some of its own.
struct Replica {
    elections: Arc<Migrating>,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

fn replica(client: &Client, board: &Board, component: &str, name: &str, file: &MigrationConfig) -> Replica {
    replica_with(client, board, component, file, config(name))
}

fn replica_with(
    client: &Client,
    board: &Board,
    component: &str,
    file: &MigrationConfig,
    config: Config,
) -> Replica {
    let stop = CancellationToken::new();
    let migration = Migration::new(file, component).unwrap();
    let own = LeaseLock::new(client.clone(), "default", component).unwrap();
    let moving = LeaseLock::new(client.clone(), "default", migration.lease()).unwrap();
    let name = config.identity.clone();
    let own = Elector::new(own, config.clone()).unwrap();
    let elections = Migrating::start(migration, own, MigrationLock::new(moving, config), &stop).unwrap();
    let elections = Arc::new(elections);
    let tasks = [MOVING, STAYING].map(|work| {
        let (elections, board, name) = (Arc::clone(&elections), board.clone(), name.clone());
        // The moving work is one for all; each component has its own that stays.
        let place = if work == MOVING { "" } else { component }.to_owned();
        tokio::spawn(async move {
            while let Some(share) = elections.lead(work).await {
                board.begin(&place, work, &name);
                share.stopped().await;
                board.end(&place, work);
            }
        })
    });
    Replica {
        elections,
        stop,
        tasks: tasks.into(),
    }
}

impl Replica {
    async fn stop(self) -> Option<StopReason> {
        self.stop.cancel();
        self.ended().await
    }

    async fn ended(self) -> Option<StopReason> {
        for task in self.tasks {
            ends("work ends", task).await.unwrap();
        }
        let elections = Arc::into_inner(self.elections).expect("all work has ended");
        elections.stopped().await
    }
}

async fn holder(client: &Client, lease: &str) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get_opt(lease).await.unwrap()?.spec?.holder_identity
}

#[tokio::test]
async fn work_moves_from_one_lease_to_another_and_never_runs_under_both() {
    let (client, board) = (api_server().client(), Board::default());
    let (nothing, old, new) = (
        MigrationConfig::default(),
        migration_to("old"),
        migration_to("new"),
    );

    // Before: all work under the old component's own Lease.
    let o0 = replica(&client, &board, "old", "o0", &nothing);
    board.until("", MOVING, Some("o0")).await;
    // Step 1: its replicas learn of the migration, one by one.
    let o1 = replica(&client, &board, "old", "o1", &old);
    o0.stop().await;
    board.until("", MOVING, Some("o1")).await;
    board.until("old", STAYING, Some("o1")).await;
    assert_eq!(holder(&client, MIGRATION).await.as_deref(), Some("o1"));
    // Step 2: the new component starts, and waits for the moving work.
    let n1 = replica(&client, &board, "new", "n1", &new);
    board.until("new", STAYING, Some("n1")).await;
    assert_eq!(board.doing("", MOVING).as_deref(), Some("o1"));
    // Step 3: the old component's replicas give it up.
    let o2 = replica(&client, &board, "old", "o2", &new);
    o1.stop().await;
    board.until("", MOVING, Some("n1")).await;
    board.until("old", STAYING, Some("o2")).await;
    assert_eq!(holder(&client, MIGRATION).await.as_deref(), Some("n1"));
    // Step 4: without the migration again, under the new component's own Lease.
    let n2 = replica(&client, &board, "new", "n2", &nothing);
    n1.stop().await;
    board.until("", MOVING, Some("n2")).await;
    assert_eq!(holder(&client, MIGRATION).await.as_deref(), Some(""));

    for replica in [o2, n2] {
        assert_eq!(
            replica.stop().await,
            Some(StopReason::Cancelled { drained: true })
        );
    }
    board.assert_never_twice();
}

#[tokio::test]
async fn the_migration_lease_is_taken_only_after_the_own_one_and_given_back_before() {
    let (client, board) = (api_server().client(), Board::default());
    let file = migration_to("old");
    let o1 = replica(&client, &board, "old", "o1", &file);
    board.until("", MOVING, Some("o1")).await;
    let standby = replica(&client, &board, "old", "o2", &file);
    // Somebody takes the own Lease away: the moving work must not go on under the migration Lease alone.
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let thief = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}});
    leases.merge("old", thief).await;
    board.until("old", STAYING, None).await;
    board.until("", MOVING, None).await;
    until("the migration Lease is given back", async || {
        holder(&client, MIGRATION).await.as_deref() == Some("")
    })
    .await;
    // Gone, the own Lease is won again, and then the migration Lease.
    let gone = json!({"spec": {"holderIdentity": ""}});
    leases.merge("old", gone).await;
    eventually("both work again, under one holder", SOON, || async {
        let (own, moving) = (board.doing("old", STAYING)?, board.doing("", MOVING)?);
        (own == moving).then_some(())
    })
    .await;
    o1.stop().await;
    standby.stop().await;
    board.assert_never_twice();
}

#[tokio::test]
async fn a_component_without_moving_work_leaves_the_migration_lease_alone() {
    let (client, board) = (api_server().client(), Board::default());
    let file = migration_to("new");
    let o1 = replica(&client, &board, "old", "o1", &file);
    board.until("old", STAYING, Some("o1")).await;
    assert!(o1.elections.lead(MOVING).await.is_none(), "it is another's");
    assert_eq!(holder(&client, MIGRATION).await, None);
    o1.stop().await;
    assert_eq!(holder(&client, MIGRATION).await, None);
}

#[tokio::test]
async fn moving_work_waits_until_the_component_is_ready_for_it() {
    let client = api_server().client();
    let (stop, ready) = (CancellationToken::new(), CancellationToken::new());
    let migration = Migration::new(&migration_to("old"), "old").unwrap();
    let lock = |name: &str| LeaseLock::new(client.clone(), "default", name).unwrap();
    let own = Elector::new(lock("old"), config("o1")).unwrap();
    let moving = MigrationLock::new(lock(MIGRATION), config("o1")).after(ready.clone());
    let elections = Migrating::start(migration, own, moving, &stop).unwrap();
    let own = elections.lead(STAYING).await.unwrap();
    assert_eq!(holder(&client, MIGRATION).await, None);
    ready.cancel();
    let moving = elections.lead(MOVING).await.unwrap();
    // Each says by which lock it is done.
    let (own_token, moving_token) = (own.token().unwrap(), moving.token().unwrap());
    assert_ne!(own_token.lease_uid, moving_token.lease_uid);
    // Moving work writes through both gates.
    let writer = moving.client(&client);
    let leases: Api<Lease> = Api::namespaced(writer, "default");
    let label = Patch::Merge(json!({"metadata": {"labels": {"written": "yes"}}}));
    leases
        .patch(MIGRATION, &PatchParams::default(), &label)
        .await
        .unwrap();
    let others: Api<Lease> = Api::namespaced(client.clone(), "default");
    let thief = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}});
    others.merge("old", thief).await;
    ends("its own Lease is gone", moving.stopped()).await;
    let refused = leases
        .patch(MIGRATION, &PatchParams::default(), &label)
        .await
        .unwrap_err();
    assert!(evenkeel_election::gate::is_gate_closed(&refused), "{refused}");
    assert_eq!(moving.token(), None);
    drop((own, moving));
    stop.cancel();
    elections.stopped().await;
}

#[tokio::test]
async fn where_a_loss_ends_one_election_it_ends_both() {
    let (client, board) = (api_server().client(), Board::default());
    let stops = Config {
        on_loss: OnLoss::Stop,
        ..config("o1")
    };
    let o1 = replica_with(&client, &board, "old", &migration_to("old"), stops);
    board.until("", MOVING, Some("o1")).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let thief = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}});
    leases.merge(MIGRATION, thief).await;
    assert!(o1.ended().await.is_some());
    assert_eq!(board.doing("old", STAYING), None);
}
