//! JSON Web Tokens signed with ES256 (RFC 7515, RFC 7518 3.4).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The signing key could not be made, or did not sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot {0} the signing key of ServiceAccount tokens")]
pub struct KeyError(&'static str);

/// A P-256 key that signs tokens, and recognises what it signed.
pub(super) struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl SigningKey {
    pub(super) fn generate() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|_unspecified| KeyError("generate"))?;
        let id = BASE64URL.encode(Sha256::digest(pair.public_key().as_ref()));
        Ok(Self {
            pair,
            random: SystemRandom::new(),
            id,
        })
    }

    /// The compact serialisation.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let signed = format!(
            "{}.{}",
            BASE64URL.encode(header.to_string()),
            BASE64URL.encode(claims.to_string())
        );
        let signature = self
            .pair
            .sign(&self.random, signed.as_bytes())
            .map_err(|_unspecified| KeyError("use"))?;
        Ok(format!("{signed}.{}", BASE64URL.encode(signature)))
    }

    /// The claims, if this key signed exactly this text with ES256. Says nothing of their validity.
    pub(super) fn open(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64URL.decode(header).ok()?).ok()?;
        if header["alg"] != "ES256" || header["kid"] != self.id.as_str() {
            return None;
        }
        let signature = BASE64URL.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        serde_json::from_slice(&BASE64URL.decode(claims).ok()?).ok()
    }

    /// JSON Web Key Set (RFC 7517).
    pub(super) fn jwks(&self) -> Value {
        // An uncompressed point: 0x04, then X and Y of 32 bytes each (SEC 1, 2.3.3).
        let point = self.pair.public_key().as_ref();
        let (x, y) = (point.get(1..33), point.get(33..65));
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": BASE64URL.encode(x.unwrap_or_default()), "y": BASE64URL.encode(y.unwrap_or_default()),
        }]})
    }
}
