//! Spans to an OpenTelemetry collector, over OTLP with gRPC (feature `otel`).
//!
//! Set up by OpenTelemetry's own environment variables, read by its SDK: nothing is sent unless
//! `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, as in
//! `http://localhost:4317`; `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
//! `OTEL_BSP_…` and `OTEL_EXPORTER_OTLP_TRACES_{HEADERS,TIMEOUT}` mean what they mean everywhere.
//! `OTEL_SDK_DISABLED=true` turns it off.

use tracing_subscriber::Layer;
use tracing_subscriber::registry::Registry;

/// Variables that name the address of a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// The variable that turns tracing off.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// A layer that takes spans or log lines.
pub(crate) type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// Spans on their way. Dropping it waits for them to be sent, for five seconds at most.
#[must_use = "without it the last spans are lost"]
#[derive(Debug, Default)]
pub struct Traces {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// The variable that names a collector.
fn wanted(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let disabled = variable(DISABLED).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
    ENDPOINTS.into_iter().find(|name| !disabled && is_set(name))
}

/// Starts whoever takes spans, through `begin`.
pub(crate) fn start(
    service: &str,
    begin: impl FnOnce(Option<Spans>) -> Result<(), String>,
) -> Result<Traces, String> {
    let Some(variable) = wanted(|name| std::env::var(name).ok()) else {
        begin(None)?;
        return Ok(Traces::default());
    };
    otel::start(service, variable, begin)
}

#[cfg(not(feature = "otel"))]
mod otel {
    use super::{Spans, Traces};

    pub(super) fn start(
        _: &str,
        variable: &str,
        begin: impl FnOnce(Option<Spans>) -> Result<(), String>,
    ) -> Result<Traces, String> {
        begin(None)?;
        tracing::warn!("{variable} is set, and this build sends no spans: build with `--features otel`");
        Ok(Traces::default())
    }
}

#[cfg(feature = "otel")]
mod otel {
    use super::{Spans, Traces};
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use std::time::Duration;
    use tracing::Metadata;
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::registry::Registry;

    /// How long the end waits for a collector.
    const END: Duration = Duration::from_secs(5);
    /// Spans of ours begin so; those of libraries are theirs, the exporter's own among them.
    const OURS: &str = "evenkeel";
    const NAME: &str = "OTEL_SERVICE_NAME";

    pub(super) fn start(
        service: &str,
        variable: &str,
        begin: impl FnOnce(Option<Spans>) -> Result<(), String>,
    ) -> Result<Traces, String> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .build()
            .map_err(|error| format!("{variable}: cannot send spans there: {error}"))?;
        let mut resource = Resource::builder();
        if std::env::var_os(NAME).is_none() {
            resource = resource.with_service_name(service.to_owned());
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        begin(Some(layer(&provider)))?;
        tracing::info!("spans go to the collector of {variable}");
        Ok(Traces {
            provider: Some(provider),
        })
    }

    /// Takes our spans down to `DEBUG`, and what is logged in them from `INFO` up.
    pub(super) fn layer(provider: &SdkTracerProvider) -> Spans {
        let ours = filter_fn(|about: &Metadata<'_>| {
            let most = if about.is_span() {
                LevelFilter::DEBUG
            } else {
                LevelFilter::INFO
            };
            *about.level() <= most && about.target().starts_with(OURS)
        })
        .with_max_level_hint(LevelFilter::DEBUG);
        tracing_opentelemetry::layer::<Registry>()
            .with_tracer(provider.tracer(OURS))
            .with_location(false)
            .with_threads(false)
            .with_filter(ours)
            .boxed()
    }

    impl Drop for Traces {
        fn drop(&mut self) {
            let Some(provider) = self.provider.take() else {
                return;
            };
            if let Err(error) = provider.shutdown_with_timeout(END) {
                tracing::warn!(%error, "the last spans were not sent");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sent_where_the_environment_names_a_collector() {
        let wanted = |variables: &[(&str, &str)]| {
            wanted(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let [traces, all] = ENDPOINTS;
        assert_eq!(wanted(&[]), None);
        assert_eq!(wanted(&[(all, " ")]), None);
        assert_eq!(wanted(&[(all, "http://a:4317")]), Some(all));
        assert_eq!(
            wanted(&[(all, "http://a:4317"), (traces, "http://b:4317")]),
            Some(traces)
        );
        assert_eq!(wanted(&[(all, "http://a:4317"), (DISABLED, "TRUE")]), None);
        assert_eq!(wanted(&[(all, "http://a:4317"), (DISABLED, "no")]), Some(all));
    }

    #[cfg(feature = "otel")]
    mod collector {
        use super::super::otel::layer;
        use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
        use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
            TraceService, TraceServiceServer,
        };
        use opentelemetry_proto::tonic::collector::trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
        };
        use opentelemetry_proto::tonic::common::v1::any_value::Value;
        use opentelemetry_proto::tonic::trace::v1::Span;
        use opentelemetry_sdk::trace::SdkTracerProvider;
        use tokio::net::TcpListener;
        use tokio::sync::mpsc;
        use tonic::transport::server::TcpIncoming;
        use tonic::{Request, Response, Status};
        use tracing_subscriber::layer::SubscriberExt as _;

        struct Collector(mpsc::UnboundedSender<Span>);

        #[tonic::async_trait]
        impl TraceService for Collector {
            async fn export(
                &self,
                request: Request<ExportTraceServiceRequest>,
            ) -> Result<Response<ExportTraceServiceResponse>, Status> {
                let scopes = request
                    .into_inner()
                    .resource_spans
                    .into_iter()
                    .flat_map(|of| of.scope_spans);
                for span in scopes.flat_map(|scope| scope.spans) {
                    let _ = self.0.send(span);
                }
                Ok(Response::new(ExportTraceServiceResponse::default()))
            }
        }

        fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
            let found = span.attributes.iter().find(|pair| pair.key == key)?;
            match found.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) => Some(text),
                _ => None,
            }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_collector_gets_our_spans_and_which_are_in_which() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (heard, mut hears) = mpsc::unbounded_channel();
            let serving = tonic::transport::Server::builder()
                .add_service(TraceServiceServer::new(Collector(heard)))
                .serve_with_incoming(TcpIncoming::from(listener));
            let serving = tokio::spawn(serving);
            let exporter = SpanExporter::builder()
                .with_tonic()
                .with_endpoint(format!("http://{address}"))
                .build()
                .unwrap();
            let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
            let subscriber = tracing_subscriber::registry().with(vec![layer(&provider)]);
            tracing::subscriber::with_default(subscriber, || {
                let pod = tracing::debug_span!(target: "evenkeel_vnode", "pod", uid = "u-1");
                let _pod = pod.enter();
                tracing::debug_span!(target: "hyper", "library").in_scope(|| {
                    tracing::info_span!(target: "evenkeel_koupleless", "install").in_scope(|| {
                        tracing::trace_span!(target: "evenkeel_koupleless", "step").in_scope(|| {});
                    });
                });
            });
            let flushed = tokio::task::spawn_blocking(move || provider.shutdown());
            flushed.await.unwrap().unwrap();
            let (first, second) = (hears.recv().await.unwrap(), hears.recv().await.unwrap());
            assert_eq!((&*first.name, &*second.name), ("install", "pod"));
            assert_eq!(first.trace_id, second.trace_id);
            assert_eq!(first.parent_span_id, second.span_id);
            assert_eq!(attribute(&second, "uid"), Some("u-1"));
            assert!(
                hears.try_recv().is_err(),
                "others' spans, and finer ones, stay here"
            );
            serving.abort();
        }
    }
}
