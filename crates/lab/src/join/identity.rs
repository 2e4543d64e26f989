//! The serving certificate of a kubelet of the lab: of the cluster's own signer, as a kubelet gets it.

use super::{Cluster, LABEL};
use evenkeel_api::names::vnode as names;
use evenkeel_kubelet_api::tls::signed::{Request, RequestError};
use evenkeel_net::pki::{Identity, ServerNames};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::ConfigMap};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;

/// Time that the signer gets; the controller manager answers within a second.
const SIGNED_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Why a machine has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot {what}")]
    Api {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(
        "{} has not signed a certificate for {}{node} within {} s; does the controller manager run, with \
         --cluster-signing-cert-file and -key-file?",
        names::SERVING_SIGNER,
        names::SERVING_COMMON_NAME,
        SIGNED_WITHIN.as_secs()
    )]
    Unsigned { node: String },
    #[error("the API server publishes no authority of client certificates in {namespace}/{name}")]
    NoAuthority {
        namespace: &'static str,
        name: &'static str,
    },
}

fn api(what: &'static str) -> impl Fn(kube::Error) -> IdentityError {
    move |source| IdentityError::Api {
        what,
        source: Box::new(source),
    }
}

/// Who the kubelet of a machine is, and whom it knows.
pub struct MachineIdentity {
    /// By which it is known to the API server and to agents.
    pub serving: Identity,
    /// The authority of its clients' certificates, PEM.
    pub clients: String,
}

impl Cluster {
    /// The identity for the machine of a node with these names and addresses.
    pub async fn machine(&self, node: &str, names: &ServerNames) -> Result<MachineIdentity, IdentityError> {
        let serving = self.signed(node, names).await?;
        let (namespace, name, key) = names::CLIENT_CA;
        let map: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let map = map
            .get(name)
            .await
            .map_err(api("read the authority of client certificates"))?;
        let clients = map.data.and_then(|mut data| data.remove(key));
        let clients = clients.ok_or(IdentityError::NoAuthority { namespace, name })?;
        Ok(MachineIdentity { serving, clients })
    }

    /// Asks, approves, and waits for the signer.
    async fn signed(&self, node: &str, at: &ServerNames) -> Result<Identity, IdentityError> {
        let metadata = ObjectMeta {
            generate_name: Some(format!("lab-{node}-")),
            labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let request = Request::create(self.client.clone(), metadata, node, at).await?;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let approved = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "Lab", "message": "a machine of the lab",
        }]}});
        requests
            .patch_subresource(
                "approval",
                request.name(),
                &PatchParams::default(),
                &Patch::Merge(&approved),
            )
            .await
            .map_err(api("approve a CertificateSigningRequest"))?;
        let signed = tokio::time::timeout(SIGNED_WITHIN, request.answer(POLL)).await;
        let identity = signed.map_err(|_| IdentityError::Unsigned {
            node: node.to_owned(),
        })??;
        requests
            .delete(request.name(), &DeleteParams::default())
            .await
            .map_err(api("delete a CertificateSigningRequest"))?;
        Ok(identity)
    }
}
