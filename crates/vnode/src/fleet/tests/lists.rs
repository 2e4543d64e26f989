//! Which lists tell an actor of its node's pods.

use super::Bench;
use crate::fleet::directory::{Directory, Handle};
use crate::ownership::Term;
use crate::pods::{Actor, Duty, Message, OwnList, Query, Seen};
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Of an actor that hears what a test tells it, and nothing else of pods: no watch knows it. The fleet serves
/// no node, so that it begins no list of all pods, after which older lists would not count.
fn actor(bench: &Bench, node: &str) -> Arc<Handle> {
    let common = bench.fleet.inner.common.clone();
    let (handle, mailbox) = Handle::during(1_000, node.into(), Term::default());
    let duty = Duty {
        node_writer: common.node_writer.with_client(common.client.clone()),
        common,
        handle: handle.clone(),
        mailbox,
        address: None,
    };
    tokio::spawn(Box::new(Actor::new(duty)).run());
    handle
}

fn seen(pod: &Pod) -> Box<Seen> {
    Box::new(Seen {
        pod: pod.clone(),
        rules: Vec::new(),
    })
}

fn own_list(epoch: u32, pods: &[&Pod]) -> Message {
    let pods = pods.iter().map(|pod| *seen(pod)).collect();
    Message::OwnList(Box::new(OwnList { epoch, pods }))
}

/// Names of the pods that an actor drives, once it has heard everything so far.
async fn drives(actor: &Handle) -> Vec<String> {
    let (answer, answered) = oneshot::channel();
    actor.send(Message::Query(Box::new(Query::Pods(answer))));
    let pods = answered.await.unwrap();
    let mut names: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_own_list_that_was_asked_for_before_a_list_of_all_began_does_not_count() {
    let bench = Bench::new(&[]).await;
    bench.pod("web", "virtual-2", json!({})).await;
    bench.pod("gone", "virtual-2", json!({})).await;
    let (web, gone) = (
        bench.pods().get("web").await.unwrap(),
        bench.pods().get("gone").await.unwrap(),
    );
    let actor = actor(&bench, "virtual-2");
    let directory = &bench.fleet.inner.common.directory;
    let asked = directory.epoch();
    let all = directory.list_begins();
    // The list of all knows no more of "gone".
    actor.send(Message::Pod(seen(&web), all));
    actor.send(own_list(asked, &[&web, &gone]));
    assert_eq!(drives(&actor).await, Vec::<String>::new());
    assert!(!actor.is_listed());
    actor.send(Message::Listed(all));
    assert_eq!(drives(&actor).await, ["web"]);
    assert!(actor.is_listed());
    bench.ready::<Pod>("web").await;
    assert_eq!(bench.world.count("delete", "default/web"), 0);
    assert_eq!(bench.world.count("status", "default/gone"), 0);
    actor.term.stop().cancel();
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_watch_has_said_since_is_newer_than_a_nodes_own_list() {
    let bench = Bench::new(&[]).await;
    for name in ["new", "gone", "listed"] {
        bench.pod(name, "virtual-2", json!({})).await;
    }
    let get = async |name: &str| bench.pods().get(name).await.unwrap();
    let (new, gone, listed) = (get("new").await, get("gone").await, get("listed").await);
    let actor = actor(&bench, "virtual-2");
    let epoch = bench.fleet.inner.common.directory.epoch();
    actor.send(Message::Gone(gone.metadata.uid.as_deref().unwrap().into()));
    actor.send(Message::Pod(seen(&new), epoch));
    assert!(!actor.is_listed());
    actor.send(own_list(epoch, &[&gone, &listed]));
    assert_eq!(drives(&actor).await, ["listed", "new"]);
    // What a list of one node tells is told once.
    actor.send(own_list(epoch, &[&gone]));
    assert_eq!(drives(&actor).await, ["listed", "new"]);
    bench.ready::<Pod>("new").await;
    bench.ready::<Pod>("listed").await;
    assert_eq!(bench.world.count("status", "default/gone"), 0);
    actor.term.stop().cancel();
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_all_that_had_begun_before_a_node_was_taken_up_does_not_count() {
    let bench = Bench::new(&[]).await;
    // Of its own: no list of the fleet's begins in it.
    let directory = Directory::default();
    directory.list_begins();
    let actor = actor(&bench, "virtual-2");
    directory.add(&actor);
    directory.list_ends();
    assert_eq!(drives(&actor).await, Vec::<String>::new());
    assert!(!actor.is_listed(), "it has heard the end of a list alone");
    let all = directory.list_begins();
    bench.pod("web", "virtual-3", json!({})).await;
    let web = bench.pods().get("web").await.unwrap();
    actor.send(Message::Pod(seen(&web), all));
    directory.list_ends();
    assert_eq!(drives(&actor).await, ["web"]);
    assert!(actor.is_listed());
    directory.remove(&actor);
    actor.term.stop().cancel();
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_over_and_comes_again_in_a_later_list_is_ended_and_not_begun_again() {
    let bench = Bench::new(&[]).await;
    let id = bench.pod("web", "virtual-2", json!({})).await;
    let web = bench.pods().get("web").await.unwrap();
    let actor = actor(&bench, "virtual-2");
    let directory = &bench.fleet.inner.common.directory;
    actor.send(own_list(directory.epoch(), &[&web]));
    bench.ready::<Pod>("web").await;
    bench.delete::<Pod>("web").await;
    let ending = bench.pods().get("web").await.unwrap();
    assert!(ending.metadata.deletion_timestamp.is_some());
    let epoch = directory.epoch();
    actor.send(Message::Pod(seen(&ending), epoch));
    bench.gone::<Pod>("web").await;
    is_forgotten(&actor).await;
    let asked = bench.world.count("status", "default/web");
    // What the watch had still to say of it.
    actor.send(Message::Pod(seen(&ending), epoch));
    assert_eq!(drives(&actor).await, Vec::<String>::new());
    assert_eq!(bench.world.count("status", "default/web"), asked);
    // A list that began after that holds it nevertheless: an API server that is behind, or was restored.
    let later = directory.list_begins();
    actor.send(Message::Pod(seen(&ending), later));
    actor.send(Message::Listed(later));
    until("it is looked at anew", async || {
        bench.world.count("status", "default/web") > asked
    })
    .await;
    is_forgotten(&actor).await;
    for (call, subject) in [
        ("create", "default/web"),
        ("start", "default/web/app"),
        ("stop", "default/web"),
    ] {
        assert_eq!(bench.world.count(call, subject), 1, "{call}");
    }
    assert!(!bench.world.pods().contains(&id.to_string()));
    actor.term.stop().cancel();
    bench.end().await;
}

async fn is_forgotten(actor: &Handle) {
    until("the pod is forgotten", async || drives(actor).await.is_empty()).await;
}
