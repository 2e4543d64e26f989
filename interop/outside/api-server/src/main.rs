//! A Kubernetes API server in this process, a fault, and what was asked of it.

use evenkeel_apiserver::{Fault, RequestFilter, TestServer};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let api = TestServer::start().await?;
    let namespaces: Api<Namespace> = Api::all(api.client());
    let lists = RequestFilter::any().verb("list").resource("namespaces");
    let unavailable = Fault::status(503, "ServiceUnavailable").times(1);
    let _fault = api.intercept(lists, unavailable);
    if let Err(error) = namespaces.list(&ListParams::default()).await {
        println!("{error}");
    }
    for namespace in namespaces.list(&ListParams::default()).await? {
        println!("{}", namespace.metadata.name.unwrap_or_default());
    }
    for request in api.requests() {
        println!("{} {}: {:?}", request.method, request.path, request.status);
    }
    Ok(())
}
