//! Verification: signature, audience, time, and that everything the token stands for still exists.

use super::{ISSUER, TokenIssuer};
use crate::request::{Reader, UserInfo};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// Seconds by which clocks may differ, as upstream allows.
const LEEWAY: i64 = 60;

/// A token that is good, for one of the audiences that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Whom the token stands for.
    pub(crate) user: UserInfo,
    /// Those of the asked audiences that the token is for.
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not signed by this issuer: perhaps some other kind of token.
    #[error("invalid bearer token")]
    Foreign,
    /// Signed here, but for somebody else.
    #[error("token audiences {found:?} is invalid for the target audiences {wanted:?}")]
    Audience { found: Vec<String>, wanted: Vec<String> },
    /// `exp` is past.
    #[error("service account token has expired")]
    Expired,
    /// `nbf` is to come.
    #[error("service account token is not valid yet")]
    NotYet,
    /// The account, or what the token is bound to, is gone or was made anew.
    #[error("service account token has been invalidated")]
    Invalidated,
}

impl TokenIssuer {
    /// The user of a token that is meant for at least one of `audiences`.
    pub(crate) fn verify_for(
        &self,
        token: &str,
        audiences: &[String],
        reader: &dyn Reader,
        now: Timestamp,
    ) -> Result<Verified, TokenError> {
        let claims = self.key.open(token).ok_or(TokenError::Foreign)?;
        if claims["iss"] != ISSUER {
            return Err(TokenError::Foreign);
        }
        let found: Vec<String> =
            serde_json::from_value(claims["aud"].clone()).map_err(|_| TokenError::Foreign)?;
        let matching: Vec<String> = found
            .iter()
            .filter(|one| audiences.contains(one))
            .cloned()
            .collect();
        if matching.is_empty() {
            return Err(TokenError::Audience {
                found,
                wanted: audiences.to_vec(),
            });
        }
        let second = |claim: &str| claims[claim].as_i64().ok_or(TokenError::Foreign);
        if now.as_second() > second("exp")?.saturating_add(LEEWAY) {
            return Err(TokenError::Expired);
        }
        if now.as_second() < second("nbf")?.saturating_sub(LEEWAY) {
            return Err(TokenError::NotYet);
        }
        let user = alive(&claims, reader, now)?;
        Ok(Verified {
            user,
            audiences: matching,
        })
    }
}

/// The user, if the account and all that the token is bound to exist with the UIDs of the claims.
fn alive(claims: &Value, reader: &dyn Reader, now: Timestamp) -> Result<UserInfo, TokenError> {
    let ours = &claims["kubernetes.io"];
    let namespace = ours["namespace"].as_str().ok_or(TokenError::Foreign)?;
    let account = &ours["serviceaccount"];
    let name = account["name"].as_str().ok_or(TokenError::Foreign)?;
    exists(reader, "serviceaccounts", namespace, account, now)?;
    for (claim, resource, scope) in [("secret", "secrets", namespace), ("pod", "pods", namespace)] {
        if ours[claim].is_object() {
            exists(reader, resource, scope, &ours[claim], now)?;
        }
    }
    // The node of a bound pod is information, the node that a token is bound to is a condition (KEP-4193).
    if ours["node"].is_object() && !ours["pod"].is_object() {
        exists(reader, "nodes", "", &ours["node"], now)?;
    }

    let mut extra = BTreeMap::new();
    let mut put = |key: &str, value: &Value| {
        if let Some(text) = value.as_str() {
            extra.insert(
                format!("authentication.kubernetes.io/{key}"),
                vec![text.to_owned()],
            );
        }
    };
    put("pod-name", &ours["pod"]["name"]);
    put("pod-uid", &ours["pod"]["uid"]);
    put("node-name", &ours["node"]["name"]);
    put("node-uid", &ours["node"]["uid"]);
    if let Some(id) = claims["jti"].as_str() {
        put("credential-id", &Value::String(format!("JTI={id}")));
    }
    Ok(UserInfo {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: account["uid"].as_str().unwrap_or_default().to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        extra,
    })
}

fn exists(
    reader: &dyn Reader,
    resource: &str,
    namespace: &str,
    claim: &Value,
    now: Timestamp,
) -> Result<(), TokenError> {
    let name = claim["name"].as_str().ok_or(TokenError::Foreign)?;
    let object = reader
        .get("", resource, namespace, name)
        .ok_or(TokenError::Invalidated)?;
    let metadata = &object["metadata"];
    if metadata["uid"] != claim["uid"] {
        return Err(TokenError::Invalidated);
    }
    // An object that is being deleted keeps its tokens for a minute after its deletion time, for graceful
    // ends.
    let deletion = metadata["deletionTimestamp"]
        .as_str()
        .and_then(|time| time.parse::<Timestamp>().ok());
    match deletion {
        Some(deletion) if now.as_second() > deletion.as_second().saturating_add(LEEWAY) => {
            Err(TokenError::Invalidated)
        }
        _ => Ok(()),
    }
}
