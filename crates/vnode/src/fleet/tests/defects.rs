//! Actors with defects.

use super::Bench;
use super::bench::{DEADLINE, is_ready};
use crate::pods::Message;
use evenkeel_testkit::eventually;
use serde_json::json;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Errors that were logged.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

// On one thread, which the log is taken from.
#[tokio::test]
async fn an_actor_that_panics_is_told_of_and_its_node_is_served_again_while_others_go_on() {
    let errors = Errors::default();
    let _log = tracing::subscriber::set_default(errors.clone());
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.is_ready("web").await;
    let (first, neighbour) = (bench.handle("virtual-1"), bench.handle("virtual-2"));
    first.send(Message::Defect);
    bench.pod("late", "virtual-1", json!({})).await;
    bench.pod("elsewhere", "virtual-2", json!({})).await;
    bench.is_ready("elsewhere").await;
    bench.is_ready("late").await;
    assert_ne!(bench.handle("virtual-1").id, first.id);
    assert!(first.term.is_over() && !first.is_open());
    assert_eq!(bench.handle("virtual-2").id, neighbour.id);
    // What ran is taken up as it is.
    eventually("it is asked for", DEADLINE, async || {
        (bench.world.count("status", "default/web") > 0).then_some(())
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
    let errors = errors.0.lock().unwrap().clone();
    let says = |words: &[&str]| {
        errors
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        says(&["actor has panicked", "node=virtual-1", "a defect for a test"]),
        "{errors:?}"
    );
    assert!(says(&["served again", "node=virtual-1"]), "{errors:?}");
    assert!(!says(&["node=virtual-2"]), "{errors:?}");
    bench.end().await;
}
