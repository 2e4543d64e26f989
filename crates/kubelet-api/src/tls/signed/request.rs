//! One CertificateSigningRequest for a serving certificate, from its creation to the answer of the signer.

use evenkeel_api::names::vnode as names;
use evenkeel_net::log::causes;
use evenkeel_net::pki::{Identity, PkiError, ServerNames, signing_request};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::time::Duration;

/// Why a request has no certificate; all are worth a new request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No key or no request could be made.
    #[error("cannot make a request for a certificate")]
    Make(#[source] PkiError),
    /// The API server did not take it.
    #[error("cannot create a CertificateSigningRequest")]
    Create(#[source] kube::Error),
    /// Somebody denied it, or the signer could not sign it.
    #[error("CertificateSigningRequest {name} was {what}: {why}")]
    Refused {
        /// Name of the request.
        name: String,
        /// Denied or failed.
        what: String,
        /// Reason and message of the condition.
        why: String,
    },
    /// Somebody deleted it.
    #[error("CertificateSigningRequest {name} is gone")]
    Gone {
        /// Name of the request.
        name: String,
    },
}

/// A request that the API server has taken, and the key that belongs to it.
pub struct Request {
    requests: Api<CertificateSigningRequest>,
    name: String,
    uid: Option<String>,
    key_pem: String,
}

impl Request {
    /// Asks the signer `kubernetes.io/kubelet-serving` for a certificate of `system:node:NODE` with these
    /// names, for a key that is made here. `metadata` is that of the object.
    pub async fn create(
        client: Client,
        metadata: ObjectMeta,
        node: &str,
        at: &ServerNames,
    ) -> Result<Self, RequestError> {
        let user = format!("{}{node}", names::SERVING_COMMON_NAME);
        let (request, key_pem) =
            signing_request(&user, names::SERVING_ORGANISATION, at).map_err(RequestError::Make)?;
        let object = CertificateSigningRequest {
            metadata,
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: names::SERVING_SIGNER.to_owned(),
                usages: Some(names::SERVING_USAGES.map(str::to_owned).to_vec()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let requests: Api<CertificateSigningRequest> = Api::all(client);
        let created = requests.create(&PostParams::default(), &object).await;
        let metadata = created.map_err(RequestError::Create)?.metadata;
        Ok(Self {
            requests,
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid,
            key_pem,
        })
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits, as long as it takes, for the certificate, and looks every `poll`. A look that fails is
    /// repeated.
    pub async fn answer(&self, poll: Duration) -> Result<Identity, RequestError> {
        let name = &self.name;
        loop {
            tokio::time::sleep(poll).await;
            let found = match self.requests.get_opt(name).await {
                Ok(Some(found)) if found.metadata.uid == self.uid => found,
                Ok(_) => return Err(RequestError::Gone { name: name.clone() }),
                Err(error) => {
                    tracing::warn!(
                        request = name,
                        error = causes(&error),
                        "cannot read a CertificateSigningRequest, trying again"
                    );
                    continue;
                }
            };
            let Some(status) = found.status else { continue };
            if let Some(refusal) = status.conditions.iter().flatten().find(|one| refuses(one)) {
                return Err(RequestError::Refused {
                    name: name.clone(),
                    what: refusal.type_.to_lowercase(),
                    why: format!(
                        "{} {}",
                        refusal.reason.as_deref().unwrap_or_default(),
                        refusal.message.as_deref().unwrap_or_default()
                    ),
                });
            }
            if let Some(ByteString(certificate)) = status.certificate
                && !certificate.is_empty()
            {
                return Ok(Identity {
                    certificate_pem: String::from_utf8_lossy(&certificate).into_owned(),
                    key_pem: self.key_pem.clone(),
                });
            }
        }
    }
}

fn refuses(condition: &CertificateSigningRequestCondition) -> bool {
    matches!(condition.type_.as_str(), "Denied" | "Failed") && condition.status != "False"
}
