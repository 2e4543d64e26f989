//! Requests to the API server.

use super::cache::Fetched;
use http::Request;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, ListParams, PostParams};
use kube::core::{ObjectList, Request as Requests};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests under way over all: a node's restart must not become a storm.
const AT_ONCE: usize = 64;

pub(super) struct Reader {
    client: Client,
    permits: Semaphore,
}

/// Why there is no answer, or not the one that was wanted. Never with contents of the answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The request could not be made.
    #[error("the request cannot be made: {0}")]
    Request(String),
    /// No answer in time.
    #[error("the API server did not answer within {} s; it is asked again", TIMEOUT.as_secs())]
    Silent,
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The API server refuses.
    #[error("{message} (HTTP {code}){}", advice(*.code))]
    Refused { code: u16, message: String },
    /// There is no way to it.
    #[error("the API server cannot be reached: {0}; it is asked again")]
    Unreachable(String),
    /// What came is not what was asked for. What exactly is not said: a decoder quotes what it did not
    /// expect.
    #[error(
        "the API server's answer cannot be read (see that it, or what stands before it, speaks the Kubernetes API)"
    )]
    Unreadable,
}

fn advice(code: u16) -> &'static str {
    match code {
        401 => "; renew the credentials of the virtual nodes' process",
        403 => "; grant the virtual nodes' user this right by a Role or ClusterRole",
        _ => "",
    }
}

impl Reader {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            permits: Semaphore::new(AT_ONCE),
        }
    }

    pub(super) async fn config_map(&self, namespace: &str, name: &str) -> Result<Fetched<ConfigMap>, String> {
        let read = self.object(namespace, name).await;
        fetched(read, |map: &ConfigMap| map.immutable)
            .map_err(|error| format!("cannot read configmap {namespace}/{name}: {error}"))
    }

    pub(super) async fn secret(&self, namespace: &str, name: &str) -> Result<Fetched<Secret>, String> {
        let read = self.object(namespace, name).await;
        fetched(read, |secret: &Secret| secret.immutable)
            .map_err(|error| format!("cannot read secret {namespace}/{name}: {error}"))
    }

    pub(super) async fn service(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Fetched<Vec<Arc<Service>>>, String> {
        let read = self.object::<Service>(namespace, name).await;
        let (object, size) =
            read.map_err(|error| format!("cannot read service {namespace}/{name}: {error}"))?;
        Ok(Fetched {
            object: object.map(|object| vec![Arc::new(essence(object))]),
            size,
            immutable: false,
        })
    }

    /// All of a namespace, as the API server has them in memory.
    pub(super) async fn services(&self, namespace: &str) -> Result<Fetched<Vec<Arc<Service>>>, String> {
        let request = requests::<Service>(namespace).list(&ListParams::default().match_any());
        let read = self.request::<ObjectList<Service>>(request).await;
        let (list, size) =
            read.map_err(|error| format!("cannot list services of namespace {namespace}: {error}"))?;
        let services = list.items.into_iter().map(|service| Arc::new(essence(service)));
        Ok(Fetched {
            object: Some(services.collect()),
            size,
            immutable: false,
        })
    }

    pub(super) async fn token(
        &self,
        namespace: &str,
        account: &str,
        request: &TokenRequest,
    ) -> Result<TokenRequest, ReadError> {
        let body = serde_json::to_vec(request).map_err(|error| ReadError::Request(error.to_string()))?;
        let request = requests::<ServiceAccount>(namespace).create_subresource(
            "token",
            account,
            &PostParams::default(),
            body,
        );
        self.request(request).await.map(|(answer, _)| answer)
    }

    async fn object<T>(&self, namespace: &str, name: &str) -> Result<(Option<T>, usize), ReadError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let request = requests::<T>(namespace).get(name, &GetParams::default());
        match self.request(request).await {
            Ok((object, size)) => Ok((Some(object), size)),
            Err(ReadError::NotFound(_)) => Ok((None, 0)),
            Err(error) => Err(error),
        }
    }

    /// By way of text, because the client writes a body that it cannot decode to the log.
    async fn request<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(T, usize), ReadError> {
        let request = request.map_err(|error| ReadError::Request(error.to_string()))?;
        // Never closed.
        let _permit = self.permits.acquire().await;
        let answered = tokio::time::timeout(TIMEOUT, self.client.request_text(request));
        let text = answered
            .await
            .map_err(|_| ReadError::Silent)?
            .map_err(of_client)?;
        let object = serde_json::from_str(&text).map_err(|_| ReadError::Unreadable)?;
        Ok((object, text.len()))
    }
}

/// What was read, without its metadata, which pods are not told.
fn fetched<T: Resource>(
    read: Result<(Option<T>, usize), ReadError>,
    immutable: impl Fn(&T) -> Option<bool>,
) -> Result<Fetched<T>, ReadError> {
    let (mut object, size) = read?;
    if let Some(object) = &mut object {
        *object.meta_mut() = ObjectMeta::default();
    }
    Ok(Fetched {
        immutable: object.as_ref().and_then(immutable) == Some(true),
        object,
        size,
    })
}

fn requests<T: Resource<DynamicType = ()>>(namespace: &str) -> Requests {
    Requests::new(T::url_path(&(), Some(namespace)))
}

fn of_client(error: kube::Error) -> ReadError {
    match error {
        // A proxy's 404 says nothing about the object.
        kube::Error::Api(status) if crate::node::is_absent(&status) => ReadError::NotFound(status.message),
        kube::Error::Api(status) => ReadError::Refused {
            code: status.code,
            message: status.message,
        },
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => ReadError::Unreadable,
        error => {
            // The innermost says why.
            let mut why = error.to_string();
            let mut source = error.source();
            while let Some(inner) = source {
                why = inner.to_string();
                source = inner.source();
            }
            ReadError::Unreachable(why)
        }
    }
}

/// What pods are told of a Service: the rest is not kept.
fn essence(service: Service) -> Service {
    let spec = service.spec.map(|spec| ServiceSpec {
        cluster_ip: spec.cluster_ip,
        ports: spec.ports,
        ..ServiceSpec::default()
    });
    Service {
        metadata: ObjectMeta {
            name: service.metadata.name,
            namespace: service.metadata.namespace,
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
