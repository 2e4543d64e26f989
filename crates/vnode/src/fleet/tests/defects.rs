//! Actors with defects.

use super::Bench;
use crate::pods::Message;
use evenkeel_testkit::log::Log;
use evenkeel_testkit::objects::is_ready;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tracing::Level;

// On one thread, which the log is taken from.
#[tokio::test]
async fn an_actor_that_panics_is_told_of_and_its_node_is_served_again_while_others_go_on() {
    let log = Log::from(Level::ERROR);
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    let (first, neighbour) = (bench.handle("virtual-1"), bench.handle("virtual-2"));
    first.send(Message::Defect);
    bench.pod("late", "virtual-1", json!({})).await;
    bench.pod("elsewhere", "virtual-2", json!({})).await;
    bench.ready::<Pod>("elsewhere").await;
    bench.ready::<Pod>("late").await;
    assert_ne!(bench.handle("virtual-1").id, first.id);
    assert!(first.term.is_over() && !first.is_open());
    assert_eq!(bench.handle("virtual-2").id, neighbour.id);
    // What ran is taken up as it is.
    until("it is asked for", async || {
        bench.world.count("status", "default/web") > 0
    })
    .await;
    assert!(is_ready(&bench.pods().get("web").await.unwrap()));
    for (call, subject, count) in [
        ("start", "default/web/app", 1),
        ("stop", "default/web", 0),
        ("release", "virtual-1", 1),
        ("release", "virtual-2", 0),
    ] {
        assert_eq!(bench.world.count(call, subject), count, "{call} {subject}");
    }
    assert_eq!(bench.world.trespasses(), Vec::<String>::new());
    for words in [
        ["actor has panicked", "virtual-1", "a defect for a test"],
        ["served again", "virtual-1", ""],
    ] {
        assert!(!log.with(&words).is_empty(), "{words:?} in {log:#?}");
    }
    assert_eq!(log.with(&["virtual-2"]), Vec::<String>::new());
    bench.end().await;
}
