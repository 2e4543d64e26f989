use super::address::default_of;
use super::declared::{Metric, Names, read};

/// Metrics of a source, each as a row of the page: name, type, labels with their values, and help.
fn metrics(source: &str) -> Vec<String> {
    let names =
        Names::read("pub mod a { pub mod metrics { pub const OPEN: &str = \"a_open\"; } }").expect("names");
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| {
                let values: Vec<String> = label
                    .values
                    .iter()
                    .map(|value| format!("{}={}", value.name, value.meaning))
                    .collect();
                format!("{}[{}]", label.name, values.join(","))
            })
            .collect();
        format!(
            "{} {} {}: {}",
            metric.name,
            metric.kind,
            labels.join(" "),
            metric.help
        )
    };
    match read("a.rs", source, &names) {
        Ok(metrics) => metrics.iter().map(row).collect(),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn declared_metrics_have_the_names_that_prometheus_stores() {
    let source = r#"
        use evenkeel_api::names::a::metrics as names;
        enum How { /// It went well.
                   Well, Badly }
        struct Labels { how: How, why: &'static str }
        evenkeel_net::metrics! {
            /// About.
            pub(crate) struct Metrics {
                open: Gauge = names::OPEN, "Open now";
                pub(super) done: Family<Labels, Counter> = "done", "Done",
                    Family::new_with_constructor(|| Counter::default());
                took: Histogram = "took_seconds", "Time";
            }
        }
        fn f(&self) { self.done.get_or_create(&Labels { how: How::Well, why: "quick" }); }
        fn g(r: &mut Registry) { metrics.register_in(r.sub_registry_with_prefix("x")) }
    "#;
    let expected = [
        "x_a_open gauge : Open now",
        "x_done_total counter how[Well=It went well.,Badly=] why[quick=]: Done",
        "x_took_seconds histogram : Time",
    ];
    assert_eq!(metrics(source), expected);
}

#[test]
fn registered_metrics_and_those_of_collectors_are_found() {
    let source = r#"
        struct Name { name: String }
        struct Metrics { took: Family<Name, Histogram> }
        impl Metrics {
            fn new(registry: &mut Registry) {
                let labels = Vec::from([("component", c.to_owned())]);
                registry.register("build", "What runs", Info::new(labels));
                let all = registry.sub_registry_with_prefix("x");
                all.register_with_unit("took", "Time", Unit::Seconds, metrics.took.clone());
            }
            fn row_labels(&self) -> [(&str, &str); 1] { [("pod", &self.pod)] }
            fn long_labels(&self) -> Vec<(&str, &str)> { self.row_labels(); ("kind", "a"); }
        }
        impl Collector for Metrics {
            fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
                let mut family = encoder.encode_descriptor("lag", "Lag", Some(&Unit::Seconds), MetricType::Gauge)?;
                family.encode_family(&row.long_labels())?;
                for (name, help, value) in [("a", "An A", 1), ("b", "A B", 2)] {
                    encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                }
            }
        }
        #[cfg(test)]
        mod tests { fn f() { registry.register("not", "There", metrics.took.clone()); } }
    "#;
    let expected = [
        "x_build_info info component[]: What runs",
        "x_took_seconds histogram name[]: Time",
        "lag_seconds gauge pod[] kind[]: Lag",
        "a_total counter : An A",
        "b_total counter : A B",
    ];
    assert_eq!(metrics(source), expected);
}

#[test]
fn a_metric_that_cannot_be_read_is_named() {
    let source = "fn f() {\n    registry.register(name(), \"Help\", metrics.took.clone());\n    \
                  encoder.encode_descriptor(name, help, None, kind());\n}";
    let expected = [
        "a.rs:2: a metric whose name, help or type cannot be read",
        "a.rs:3: encode_descriptor takes a name, a help, a unit, and a constant of MetricType here",
    ];
    assert_eq!(metrics(source), expected);
}

#[test]
fn the_default_address_is_that_of_the_argument() {
    let source = "struct Args {\n/// Where.\n#[arg(long, default_value = \"127.0.0.1:1\")]\npub admin: SocketAddr,\n\
                  /// Where not.\n#[arg(long)]\npub listen: Option<SocketAddr> }";
    let of = |argument| default_of(source, argument).map_err(|error| error.to_string());
    assert_eq!(of("admin"), Ok(Some("127.0.0.1:1".to_owned())));
    assert_eq!(of("listen"), Ok(None));
    assert_eq!(of("gone"), Err("there is no argument --gone".to_owned()));
}
