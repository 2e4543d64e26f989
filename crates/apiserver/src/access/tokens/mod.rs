//! ServiceAccount tokens: issued for an account and perhaps bound to a Pod, Node or Secret; valid as long as all of
//! these exist with the same UID (KEP-1205, KEP-4193).

mod jwt;
mod request;
#[cfg(test)]
mod tests;
mod verify;

pub use jwt::KeyError;
pub use verify::{TokenError, Verified};

use jwt::SigningKey;
use serde_json::{Value, json};

/// `iss` of the tokens, and the first of the audiences that the server takes for itself.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Audiences that mean this server; a TokenRequest without audiences gets these.
pub const API_AUDIENCES: [&str; 2] = [ISSUER, "https://kubernetes.default.svc"];

/// Issues and verifies ServiceAccount tokens (JWT, ES256).
pub struct TokenIssuer {
    key: SigningKey,
}

impl TokenIssuer {
    /// With a fresh key: tokens of an earlier process are not valid.
    pub fn new() -> Result<Self, KeyError> {
        Ok(Self {
            key: SigningKey::generate()?,
        })
    }

    /// `/.well-known/openid-configuration` (OpenID Connect Discovery 1.0, the members that upstream serves).
    pub fn openid_configuration(&self) -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`
    pub fn jwks(&self) -> Value {
        self.key.jwks()
    }
}
