//! ServiceAccount tokens: issued for an account and perhaps bound to a Pod, Node or Secret; valid as long as
//! all of these exist with the same UID (KEP-1205, KEP-4193).

mod jwt;
mod request;
#[cfg(test)]
mod tests;
mod verify;

pub use jwt::KeyError;
pub(crate) use verify::{TokenError, Verified};

use jwt::SigningKey;
use serde_json::{Value, json};

/// `iss` of the tokens, and the first of the audiences that the server takes for itself.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Audiences that mean this server; a TokenRequest without audiences gets these.
pub(crate) const API_AUDIENCES: [&str; 2] = [ISSUER, "https://kubernetes.default.svc"];

/// Issues and verifies ServiceAccount tokens (JWT, ES256).
pub(crate) struct TokenIssuer {
    key: SigningKey,
}

impl TokenIssuer {
    /// With a fresh key: tokens of an earlier process are not valid.
    pub(crate) fn new() -> Result<Self, KeyError> {
        Ok(Self {
            key: SigningKey::generate()?,
        })
    }

    /// `/.well-known/openid-configuration` (OpenID Connect Discovery 1.0, the members that upstream serves).
    pub(crate) fn openid_configuration() -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The answer to `/openid/v1/jwks`: the public keys of the tokens.
    pub(crate) fn jwks(&self) -> Value {
        self.key.jwks()
    }
}
