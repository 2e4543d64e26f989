//! How a base makes itself known: the body of `POST /heartbeat`, and the messages `heart` and `queryBaseline`
//! over MQTT.

use crate::envelope::DecodeError;
use crate::read;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// Who a base is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Names the base; its address, if nothing else is set. Never blank.
    pub identity: String,
    /// Name of the application. A base that sets none says `TO_BE_IMPLEMENTED`.
    pub name: Option<String>,
    /// Version of the application.
    pub version: Option<String>,
    /// The cluster it counts itself to.
    pub cluster_name: Option<String>,
}

impl Metadata {
    /// Reads it; an identity is a must.
    pub fn read(value: &Value) -> Result<Self, DecodeError> {
        Ok(Self {
            identity: read::non_blank(value, "identity").ok_or(DecodeError::Missing("identity"))?,
            name: read::non_blank(value, "name"),
            version: read::non_blank(value, "version"),
            cluster_name: read::non_blank(value, "clusterName"),
        })
    }
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The base that lives.
    pub metadata: Metadata,
    /// Host name as Java sees it.
    pub host_name: Option<String>,
    /// Address, as the base sees it: nobody has checked it.
    pub ip: Option<IpAddr>,
    /// Port of arklet over HTTP; `None` over MQTT, where bases say 0.
    pub port: Option<u16>,
    /// arklet always says `activated`; `None` if nothing was said.
    pub state: Option<String>,
}

impl Heartbeat {
    /// Reads the body of `POST /heartbeat`.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        Self::read(&serde_json::from_slice(body).map_err(DecodeError::Json)?)
    }

    /// Reads it inside another message.
    pub fn read(value: &Value) -> Result<Self, DecodeError> {
        let metadata = value
            .get("baseMetadata")
            .ok_or(DecodeError::Missing("baseMetadata"))?;
        Ok(Self {
            metadata: Metadata::read(metadata)?,
            host_name: read::non_blank(value, "localHostName"),
            ip: read::non_blank(value, "localIP").and_then(|text| text.trim().parse().ok()),
            port: read::whole(value, "port")
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port != 0),
            state: read::non_blank(value, "state"),
        })
    }

    /// Whether the base says that it serves.
    pub fn is_active(&self) -> bool {
        self.state
            .as_deref()
            .is_some_and(|state| state.eq_ignore_ascii_case("activated"))
    }

    /// Where arklet listens, by the base's own word.
    pub fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip?, self.port?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_all_that_a_heartbeat_must_hold() {
        let least =
            Heartbeat::decode(br#"{"baseMetadata":{"identity":"a"},"port":-3,"localIP":"here"}"#).unwrap();
        assert_eq!((least.ip, least.port, least.address()), (None, None, None));
        assert!(!least.is_active());
        for body in [
            &b"{}"[..],
            br#"{"baseMetadata":{"identity":" "}}"#,
            b"[]",
            b"{",
            b"null",
        ] {
            assert!(Heartbeat::decode(body).is_err());
        }
    }

    #[test]
    fn ports_that_are_none_are_none() {
        let port = |port: &str| {
            let body = format!(
                r#"{{"baseMetadata":{{"identity":"a"}},"localIP":"::1","port":{port},"state":"ACTIVATED"}}"#
            );
            let heartbeat = Heartbeat::decode(body.as_bytes()).unwrap();
            assert!(heartbeat.is_active());
            heartbeat.address().map(|address| address.port())
        };
        for (text, wanted) in [
            ("0", None),
            ("1238", Some(1238)),
            ("1238.0", Some(1238)),
            ("70000", None),
            ("null", None),
        ] {
            assert_eq!(port(text), wanted, "{text}");
        }
    }
}
