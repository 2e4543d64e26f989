//! A Kubernetes API server in this process, and one request to it.

use evenkeel_apiserver::{ApiServer, Options};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new(Options::default())?;
    let namespaces: Api<Namespace> = Api::all(server.client());
    for namespace in namespaces.list(&ListParams::default()).await? {
        println!("{}", namespace.metadata.name.unwrap_or_default());
    }
    Ok(())
}
