//! Metrics that are declared in one place each.

/// Declares a struct of metrics: of each its field, type, name and help, and how it begins where that is not
/// the type's default. The crate that uses it needs `prometheus_client`. The struct has a `Default`, and
/// `register_in(&self, &mut Registry)`, to be called once per process.
///
/// ```
/// use prometheus_client::metrics::{counter::Counter, histogram::Histogram};
/// use prometheus_client::registry::Registry;
///
/// evenkeel_net::metrics! {
///     /// What a listener measures.
///     struct Metrics {
///         accepted: Counter = "accepted", "Connections that were accepted";
///         open: Histogram = "open_seconds", "For how long they were open", Histogram::new([1.0, 10.0]);
///     }
/// }
///
/// let (metrics, mut registry) = (Metrics::default(), Registry::default());
/// metrics.register_in(&mut registry);
/// metrics.accepted.inc();
/// metrics.open.observe(2.0);
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
/// assert!(text.contains("# HELP accepted Connections that were accepted.\n"), "{text}");
/// assert!(text.contains("accepted_total 1\n") && text.contains("le=\"10.0\"} 1\n"), "{text}");
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$about:meta])*
        $seen:vis struct $name:ident {
            $(
                $(#[$field_about:meta])*
                $field_seen:vis $field:ident: $kind:ty = $metric:expr, $help:expr $(, $start:expr)?;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        $seen struct $name {
            $($(#[$field_about])* $field_seen $field: $kind,)*
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::metrics!(@start $($start)?),)*
                }
            }
        }

        impl $name {
            /// Registers the metrics, once per process.
            $seen fn register_in(&self, registry: &mut ::prometheus_client::registry::Registry) {
                $(registry.register($metric, $help, self.$field.clone());)*
            }
        }
    };
    (@start) => {
        ::std::default::Default::default()
    };
    (@start $start:expr) => {
        $start
    };
}
