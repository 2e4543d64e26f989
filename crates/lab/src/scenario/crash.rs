//! Which process a `crash` step kills, as a scenario writes it. Pure.

use super::Span;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};
use serde_saphyr::Spanned;
use std::{fmt, str::FromStr};

/// Most controllers a lab can have.
pub const MAX_CONTROLLERS: u8 = 3;

#[derive(Clone, Debug)]
pub enum Crash {
    /// The agent of a node. It is started again.
    Agent(Spanned<String>),
    /// Controllers. They are started again.
    Controller(Spanned<Replica>),
    /// The API server, which comes back after a time.
    ApiServer(ApiServerCrash),
}

/// Which of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Replica {
    All,
    /// The one that holds the Lease.
    Leader,
    /// One of them, counted from 1.
    Number(u8),
}

/// How the API server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiServerCrash {
    /// For how long.
    pub r#for: Span,
    /// Whether the stand-in for the stock controllers dies with it, and is started again after it.
    #[serde(default)]
    pub stock: bool,
}

impl FromStr for Replica {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "leader" => Ok(Self::Leader),
            number => match number.parse() {
                Ok(number) if (1..=MAX_CONTROLLERS).contains(&number) => Ok(Self::Number(number)),
                _ => Err(format!(
                    "`{text}` is no controller; give leader, all, or a number from 1 to {MAX_CONTROLLERS}"
                )),
            },
        }
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("the controller"),
            Self::Leader => f.write_str("the leading controller"),
            Self::Number(number) => write!(f, "controller {number}"),
        }
    }
}

/// What a scenario may write behind `controller:`.
#[derive(Clone, Debug)]
struct Written(Replica);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A number in YAML is text as well.
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Crash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneProcess)
    }
}

struct OneProcess;

impl<'de> Visitor<'de> for OneProcess {
    type Value = Crash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("controller, {controller: 2}, {agent: NODE} or {apiserver: {for: 6s}}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Crash, E> {
        match text {
            "controller" => Ok(Crash::Controller(super::nowhere(Replica::All))),
            "apiserver" => Err(E::custom(
                "crash: apiserver: say for how long, as in {apiserver: {for: 6s}}",
            )),
            "agent" => Err(E::custom("crash: agent: name its node, as in {agent: shore-1}")),
            other => Err(E::custom(format!(
                "crash: unknown process `{other}`; known are agent, controller, apiserver"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Crash, A::Error> {
        let Some(process) = map.next_key::<String>()? else {
            return Err(de::Error::custom(
                "crash: name a process: agent, controller or apiserver",
            ));
        };
        let crash = match process.as_str() {
            "agent" => Crash::Agent(map.next_value()?),
            "controller" => {
                let written: Spanned<Written> = map.next_value()?;
                Crash::Controller(Spanned::new(written.value.0, written.referenced, written.defined))
            }
            "apiserver" => Crash::ApiServer(map.next_value()?),
            other => {
                return Err(de::Error::custom(format!(
                    "crash: unknown process `{other}`; known are agent, controller, apiserver"
                )));
            }
        };
        match map.next_key::<String>()? {
            None => Ok(crash),
            Some(second) => Err(de::Error::custom(format!(
                "crash: `{second}` is a second process; write a step for each"
            ))),
        }
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(node) => write!(f, "crash the agent of {}", node.value),
            Self::Controller(replica) => write!(f, "crash {}", replica.value),
            Self::ApiServer(ApiServerCrash { r#for: time, stock }) => {
                let also = if *stock { " and the stock controllers" } else { "" };
                write!(f, "crash the API server{also} for {time}")
            }
        }
    }
}
