//! Who may do what, and what the server says of itself.
//!
//! | module | what it holds |
//! |---|---|
//! | [`authn`] | who asks: certificates, tokens, anonymous; and impersonation |
//! | `websocket` | bearer tokens among the subprotocols of websockets |
//! | [`tokens`] | ServiceAccount tokens: issued and verified |
//! | [`rbac`] | may they: RBAC, and the objects a fresh cluster has |
//! | [`review`] | access and identity reviews, as a client asks for them |
//! | [`admission`] | what is changed or refused on the way in: built-in plugins and webhooks |
//! | [`discovery`], [`openapi`] | what is served, and how it looks |

pub mod admission;
pub mod authn;
pub mod discovery;
mod errors;
mod impersonation;
pub mod openapi;
pub mod rbac;
pub mod review;
#[cfg(test)]
mod testing;
pub mod tokens;
pub(crate) mod uid;
pub(crate) mod websocket;

use crate::request::{Reader, UserInfo};
use crate::server::Options;
use evenkeel_kube_rules::status::ApiResult;
use jiff::Timestamp;
use std::sync::Arc;

/// Everything of this module as one server holds it.
pub struct Access {
    /// Who asks.
    pub authenticator: authn::Authenticator,
    /// May they.
    pub authorizer: Arc<rbac::Authorizer>,
    /// ServiceAccount tokens.
    pub tokens: Arc<tokens::TokenIssuer>,
    /// What is changed or refused on the way in.
    pub admission: admission::Admission,
    /// How the objects look.
    pub openapi: openapi::OpenApi,
}

impl Access {
    /// With a fresh signing key for ServiceAccount tokens.
    pub fn new(options: &Options) -> Result<Self, tokens::KeyError> {
        let tokens = Arc::new(tokens::TokenIssuer::new()?);
        let authorizer = Arc::new(rbac::Authorizer::new(options.rbac));
        Ok(Self {
            authenticator: authn::Authenticator::new(&options.tokens, tokens.clone(), options.anonymous_auth),
            admission: admission::Admission::new(options, authorizer.clone()),
            authorizer,
            tokens,
            openapi: openapi::OpenApi::default(),
        })
    }

    /// Who asks, after impersonation: 401 for a bad credential, 403 for an impersonation that is not allowed.
    /// `client_certificate` is the leaf in DER; its signature was checked by the TLS layer.
    pub fn identify(
        &self,
        headers: &http::HeaderMap,
        client_certificate: Option<&[u8]>,
        reader: &dyn Reader,
        now: Timestamp,
    ) -> ApiResult<UserInfo> {
        let user = self
            .authenticator
            .authenticate(headers, client_certificate, reader, now)?;
        impersonation::apply(user, headers, &self.authorizer, reader)
    }

    /// The same for a request that came without a transport, as a user that the server itself vouches for.
    pub fn identify_as(
        &self,
        user: UserInfo,
        headers: &http::HeaderMap,
        reader: &dyn Reader,
    ) -> ApiResult<UserInfo> {
        impersonation::apply(authn::authenticated(user), headers, &self.authorizer, reader)
    }
}
