//! The stock endpoint-slice controller against the webhook, played to its end (hazard 23).
//!
//! The controller wants endpoints of a cut-off node out, and the webhook keeps them: after each of its writes
//! the slice is not what the controller wants. By the code of Kubernetes, this keeps that from going on for
//! ever:
//!
//! - The controller writes only while it syncs a Service, and then once to each slice that differs from what
//!   it wants.
//! - It syncs when a Service, a pod or a node changed, and when a slice has a generation that it does not
//!   know.
//! - The generation grows with the contents of a slice alone. A write that is corrected to the stored
//!   contents leaves it as it is, so that no write of the controller causes its next one.

use super::rules::{NOW, SLICE_CONTROLLER, endpoint, request, view};
use crate::admission::{Decision, View, decide};
use evenkeel_zone::Millis;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Syncs that something else causes: the Service, its pods and their nodes change now and then for as long as
/// the node is cut off.
const SYNCS: usize = 20;
/// The controller stamps a slice with the time at which the pod changed, and its next write removes the
/// stamp.
const CHANGE_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A slice in the API server, and what the controller did to it.
struct Stored {
    slice: Value,
    writes: usize,
    /// Those writes that changed what is stored, if only the time stamp.
    changes: usize,
}

/// The controller, and the API server with our webhook in front of it.
struct Stock {
    now: Millis,
    slices: Vec<Stored>,
    /// Pods that are marked as not ready.
    marked: BTreeSet<&'static str>,
    syncs: usize,
}

impl Stock {
    fn new(slices: &[&[Value]]) -> Self {
        let stored = |endpoints: &&[Value]| Stored {
            slice: json!({
                "metadata": {"name": "web", "annotations": {}}, "addressType": "IPv4", "endpoints": endpoints,
                "ports": [],
            }),
            writes: 0,
            changes: 0,
        };
        Self {
            now: NOW,
            slices: slices.iter().map(stored).collect(),
            marked: BTreeSet::new(),
            syncs: 0,
        }
    }

    /// The stock node controller marks a pod, which the webhook could not prevent.
    fn mark(&mut self, pod: &'static str) {
        self.marked.insert(pod);
        let changed_at = format!("2026-01-01T00:00:{:02}Z", self.marked.len());
        self.run(Some(&changed_at));
    }

    /// The controller syncs, and again for as long as its own writes change the contents of slices. That is
    /// the worst case: it ignores the event of a write whose answer, with the new generation, arrived before.
    fn run(&mut self, changed_at: Option<&str>) {
        let mut contents_changed = self.sync(changed_at);
        let mut again = 0;
        while contents_changed {
            again += 1;
            assert!(again < 10, "the controller and the webhook never come to rest");
            contents_changed = self.sync(None);
        }
    }

    /// Whether the contents of a slice changed.
    fn sync(&mut self, changed_at: Option<&str>) -> bool {
        self.syncs += 1;
        self.now = self.now.plus(1_000);
        let mut view = View {
            made_at: Some(self.now),
            ..view()
        };
        let node = view.nodes.get_mut("shore-2").unwrap();
        node.marked = self.marked.iter().map(|pod| format!("uid-of-{pod}")).collect();
        let mut contents_changed = false;
        for stored in &mut self.slices {
            let mut wanted = stored.slice.clone();
            for listed in wanted["endpoints"].as_array_mut().unwrap() {
                let ready = !self
                    .marked
                    .contains(listed["targetRef"]["name"].as_str().unwrap());
                listed["conditions"] = json!({"ready": ready, "serving": ready, "terminating": false});
            }
            if wanted == stored.slice {
                continue;
            }
            wanted["metadata"]["annotations"] = match changed_at {
                Some(at) => json!({CHANGE_TIME: at}),
                None => json!({}),
            };
            let after = admitted(wanted, &stored.slice, &view, self.now);
            stored.writes += 1;
            stored.changes += usize::from(after != stored.slice);
            contents_changed |= after["endpoints"] != stored.slice["endpoints"];
            stored.slice = after;
        }
        contents_changed
    }

    /// The contents of the slices, byte for byte.
    fn contents(&self) -> Vec<String> {
        let contents = |stored: &Stored| stored.slice["endpoints"].to_string();
        self.slices.iter().map(contents).collect()
    }

    /// Writes to each slice, and changes by them.
    fn counts(&self) -> Vec<(usize, usize)> {
        let counts = |stored: &Stored| (stored.writes, stored.changes);
        self.slices.iter().map(counts).collect()
    }
}

/// What is stored after a write.
fn admitted(wanted: Value, stored: &Value, view: &View, now: Millis) -> Value {
    let kind = "discovery.k8s.io:endpointslices";
    let request = request(SLICE_CONTROLLER, "UPDATE", kind, wanted, stored.clone());
    let mut object = request.object.clone();
    if let Decision::Patch(correction) = decide(&request, view, now) {
        json_patch::patch(&mut object, &correction.patch).unwrap();
    }
    object
}

#[test]
fn a_kept_slice_is_written_once_a_sync_and_its_contents_never_change() {
    let mut stock = Stock::new(&[
        &[
            endpoint("a", "shore-2", true),
            endpoint("bb", "shore-1", true),
            endpoint("ccc", "shore-2", true),
        ],
        &[endpoint("dddd", "shore-1", true)],
    ]);
    let before = stock.contents();
    stock.mark("a");
    for _ in 1..SYNCS {
        stock.run(None);
        assert_eq!(stock.contents(), before);
    }
    assert_eq!(stock.syncs, SYNCS, "no write causes a sync");
    assert_eq!(stock.counts(), [(SYNCS, 2), (0, 0)]);

    stock.mark("ccc");
    for _ in 1..SYNCS {
        stock.run(None);
    }
    assert_eq!(stock.contents(), before);
    assert_eq!(
        (stock.syncs, stock.counts()),
        (2 * SYNCS, vec![(2 * SYNCS, 4), (0, 0)])
    );

    // The marks are given back: what the controller wants is what is stored, and it writes nothing.
    stock.marked.clear();
    for _ in 0..SYNCS {
        stock.run(None);
    }
    assert_eq!(stock.counts(), [(2 * SYNCS, 4), (0, 0)]);
}

#[test]
fn an_endpoint_that_goes_beside_one_that_is_kept_changes_the_slice_once() {
    let mut stock = Stock::new(&[&[endpoint("a", "shore-2", true), endpoint("bb", "shore-1", true)]]);
    stock.mark("bb");
    let expected = json!([endpoint("a", "shore-2", true), endpoint("bb", "shore-1", false)]);
    assert_eq!(stock.contents(), [expected.to_string()]);
    assert_eq!(stock.counts(), [(1, 1)]);

    stock.mark("a");
    for _ in 1..SYNCS {
        stock.run(None);
    }
    assert_eq!(stock.contents(), [expected.to_string()]);
    // The stamp of the first mark gives way to that of the second, which goes with the next write.
    assert_eq!(stock.counts(), [(1 + SYNCS, 3)]);
}
