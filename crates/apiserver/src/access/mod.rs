//! Who may do what, and what the server says of itself.
//!
//! | module | what it holds |
//! |---|---|
//! | [`authn`] | who asks: certificates, tokens, anonymous; and impersonation |
//! | [`tokens`] | ServiceAccount tokens: issued and verified |
//! | [`rbac`] | may they: RBAC, and the objects a fresh cluster has |
//! | [`review`] | access and identity reviews, as a client asks for them |
//! | [`admission`] | what is changed or refused on the way in: built-in plugins and webhooks |
//! | [`discovery`], [`openapi`] | what is served, and how it looks |

pub(crate) mod admission;
pub(crate) mod authn;
pub(crate) mod discovery;
mod errors;
mod impersonation;
pub(crate) mod openapi;
pub(crate) mod rbac;
pub(crate) mod review;
#[cfg(test)]
#[path = "testing_tests.rs"]
mod testing;
pub(crate) mod tokens;
pub(crate) mod uid;

use crate::kinds::Registry;
use crate::options::Options;
use crate::request::{Reader, UserInfo};
use evenkeel_kube_rules::status::ApiResult;
use jiff::Timestamp;
use std::sync::Arc;

/// Everything of this module as one server holds it.
pub(crate) struct Access {
    /// Finds out who makes a request.
    pub(crate) authenticator: authn::Authenticator,
    /// Returns whether that user may make it.
    pub(crate) authorizer: Arc<rbac::Authorizer>,
    /// Issues and verifies ServiceAccount tokens.
    pub(crate) tokens: Arc<tokens::TokenIssuer>,
    /// Changes or refuses writes before they are stored.
    pub(crate) admission: admission::Admission,
    /// Describes the objects that are served.
    pub(crate) openapi: openapi::OpenApi,
}

impl Access {
    /// With a fresh signing key for ServiceAccount tokens.
    pub(crate) fn new(options: &Options, kinds: Arc<Registry>) -> Result<Self, tokens::KeyError> {
        let tokens = Arc::new(tokens::TokenIssuer::new()?);
        let authorizer = Arc::new(rbac::Authorizer::new(options.rbac));
        Ok(Self {
            authenticator: authn::Authenticator::new(&options.tokens, tokens.clone(), options.anonymous_auth),
            admission: admission::Admission::new(options, kinds, authorizer.clone()),
            authorizer,
            tokens,
            openapi: openapi::OpenApi::default(),
        })
    }

    /// Who asks, after impersonation: 401 for a bad credential, 403 for an impersonation that is not allowed.
    /// `client_certificate` is the leaf in DER; its signature was checked by the TLS layer.
    pub(crate) fn identify(
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
    pub(crate) fn identify_as(
        &self,
        user: UserInfo,
        headers: &http::HeaderMap,
        reader: &dyn Reader,
    ) -> ApiResult<UserInfo> {
        impersonation::apply(authn::authenticated(user), headers, &self.authorizer, reader)
    }
}
