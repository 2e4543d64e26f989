//! Spans, from a pod to the calls of its base.

use super::world::World;
use evenkeel_testkit::arklet::{Jar, Start, Thrown};
use evenkeel_testkit::log::keep_callsites;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// What is known of a span: its fields, as text, and the spans that it is in, from the outermost.
#[derive(Clone, Debug, Default)]
struct Known {
    fields: String,
    within: Vec<&'static str>,
}

impl Visit for Known {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.fields, "{field}={value:?};");
    }
}

/// Keeps what the spans of this project say.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<HashMap<u64, Known>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if *attributes.metadata().level() > Level::DEBUG {
            return;
        }
        let scope = context.span_scope(id).into_iter().flatten();
        let mut within: Vec<_> = scope.map(|span| span.name()).collect();
        within.reverse();
        let mut known = Known {
            within,
            ..Known::default()
        };
        attributes.record(&mut known);
        self.0.lock().unwrap().insert(id.into_u64(), known);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(known) = self.0.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(known);
        }
    }
}

impl Spans {
    /// Those of a name that have all these fields.
    fn with(&self, within: &[&str], fields: &[&str]) -> usize {
        let spans = self.0.lock().unwrap();
        let fits = |known: &&Known| {
            known.within == within && fields.iter().all(|field| known.fields.contains(field))
        };
        spans.values().filter(fits).count()
    }
}

#[tokio::test]
async fn a_span_leads_from_a_pod_to_the_calls_of_its_base() {
    keep_callsites();
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans.clone()));
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let thrown = Thrown::new("java.lang.IllegalStateException", "boom");
    let bad = world.jar(Jar::new("bad", "1").start(Start::Fails(thrown)));
    let (base, node) = world.base("a").await;
    let pod = world.pod("p", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("p").await;
    let uid = format!("uid={};", pod.metadata.uid.unwrap());
    let start = "otel.name=\"start\";";
    assert_eq!(spans.with(&["pod"], &[start, &uid, "pod=default/p;"]), 1);
    assert_eq!(spans.with(&["pod", "install"], &[&uid, "module=biz1:1;"]), 1);
    let calls = ["pod", "install", "arklet"];
    let asked = [
        "otel.name=\"installBiz\";",
        "otel.kind=\"client\";",
        "over=\"HTTP\";",
    ];
    assert_eq!(spans.with(&calls, &asked), 1);
    base.hang_on("installBiz");
    world.pod("q", &node, &[("bad", "1", &bad)]).await;
    let late = [
        "otel.name=\"installBiz\";",
        "otel.status_code=\"ERROR\";",
        "no answer to installBiz",
    ];
    until("a span of a call that was not answered", async || {
        spans.with(&calls, &late) > 0
    })
    .await;
}
