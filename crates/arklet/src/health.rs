//! The answer to `health`.
//!
//! arklet shares one builder of answers between threads, so an answer may be partial: what is missing is
//! unknown, never zero.

use crate::biz::{Module, ModuleList};
use crate::envelope::DecodeError;
use crate::read;
use serde_json::Value;
use std::time::Duration;

/// What a base says of itself and its modules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// What the base that has answered calls itself, where it says so.
    pub identity: Option<String>,
    /// Absent if the base cannot measure itself.
    pub jvm: Option<Jvm>,
    /// Absent if the base cannot measure its processors.
    pub cpu: Option<Cpu>,
    /// The base's own biz.
    pub master: Option<Module>,
    /// All modules, **the master among them**; the one that was asked for.
    pub modules: ModuleList,
    /// Plugins of the container, sofa-ark.
    pub plugins: Vec<Plugin>,
}

/// The Java virtual machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jvm {
    /// Version of Java, such as `17.0.15`.
    pub version: Option<String>,
    /// Time since its start.
    pub uptime: Option<Duration>,
    /// Metaspace in use, bytes.
    pub metaspace_used: Option<u64>,
    /// Metaspace committed, bytes.
    pub metaspace_committed: Option<u64>,
    /// Most metaspace that the JVM may take.
    pub metaspace_max: Option<Limit>,
    /// Heap in use, MiB.
    pub heap_used_mib: Option<f64>,
    /// Most heap, MiB.
    pub heap_max_mib: Option<f64>,
    /// Classes loaded now.
    pub loaded_classes: Option<u64>,
}

/// A limit that may not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// None is set (Java says -1).
    Unlimited,
    /// The limit in bytes.
    Bytes(u64),
}

/// Processors. `total used (%)` of the wire is a count of ticks and left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Number of processors.
    pub count: Option<u32>,
    /// Share of time in applications, in percent.
    pub user: Option<f64>,
    /// Share of time in the kernel, in percent.
    pub system: Option<f64>,
    /// Share of time without work, in percent.
    pub free: Option<f64>,
}

/// A plugin of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    pub version: Option<String>,
}

impl Health {
    /// Reads the `data` of an answer.
    pub fn read(data: &Value) -> Result<Self, DecodeError> {
        let health = data
            .get("healthData")
            .filter(|health| health.is_object())
            .ok_or(DecodeError::Missing("healthData"))?;
        let object = |key: &str| health.get(key).filter(|value| value.is_object());
        let modules = match (health.get("bizListInfo"), object("bizInfo")) {
            (Some(list), _) => ModuleList::read(list).unwrap_or_default(),
            (None, Some(one)) => ModuleList::read(&Value::Array(vec![one.clone()])).unwrap_or_default(),
            (None, None) => ModuleList::default(),
        };
        let plugins = health.get("pluginListInfo").and_then(Value::as_array);
        Ok(Self {
            identity: None,
            jvm: object("jvm").map(Jvm::read),
            cpu: object("cpu").map(Cpu::read),
            master: object("masterBizInfo").and_then(|value| Module::read(value).ok()),
            modules,
            plugins: plugins.into_iter().flatten().filter_map(Plugin::read).collect(),
        })
    }
}

impl Jvm {
    fn read(value: &Value) -> Self {
        let bytes = |key: &str| read::whole(value, key).and_then(|bytes| u64::try_from(bytes).ok());
        let mib = |key: &str| read::real(value, key).filter(|mib| *mib >= 0.0);
        Self {
            version: read::non_blank(value, "java version"),
            uptime: read::real(value, "run time(s)")
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            metaspace_used: bytes("java used metaspace"),
            metaspace_committed: bytes("java committed metaspace"),
            metaspace_max: read::whole(value, "java max metaspace")
                .map(|bytes| u64::try_from(bytes).map_or(Limit::Unlimited, Limit::Bytes)),
            heap_used_mib: mib("used heap memory(M)"),
            heap_max_mib: mib("max heap memory(M)"),
            loaded_classes: bytes("loaded class count"),
        }
    }
}

impl Cpu {
    fn read(value: &Value) -> Self {
        let percent = |key: &str| read::real(value, key).filter(|part| (0.0..=100.0).contains(part));
        Self {
            count: read::whole(value, "count").and_then(|count| u32::try_from(count).ok()),
            user: percent("user used (%)"),
            system: percent("system used (%)"),
            free: percent("free (%)"),
        }
    }
}

impl Plugin {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            name: read::non_blank(value, "pluginName")?,
            version: read::non_blank(value, "pluginVersion"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_base_without_a_limit_and_one_that_does_not_say_differ() {
        let read = |jvm: Value| {
            let health = Health::read(&json!({"healthData": {"jvm": jvm}})).unwrap();
            health.jvm.unwrap().metaspace_max
        };
        assert_eq!(read(json!({"java max metaspace": -1})), Some(Limit::Unlimited));
        assert_eq!(read(json!({"java max metaspace": 5.0})), Some(Limit::Bytes(5)));
        assert_eq!(read(json!({})), None);
    }

    #[test]
    fn a_base_that_cannot_measure_itself_still_tells_its_modules() {
        let health = Health::read(&json!({"healthData": {
            "jvm": null,
            "bizListInfo": [{"bizName": "base", "bizVersion": "1.0.0", "bizState": "ACTIVATED"}, {}],
        }}))
        .unwrap();
        assert_eq!((health.jvm, health.cpu), (None, None));
        assert!(health.modules.modules[0].is_active());
        assert_eq!(health.modules.unreadable.len(), 1);
    }

    #[test]
    fn one_module_may_be_asked_for() {
        let one =
            json!({"healthData": {"bizInfo": {"bizName": "a", "bizVersion": "1", "bizState": "broken"}}});
        assert_eq!(Health::read(&one).unwrap().modules.modules.len(), 1);
        assert!(Health::read(&json!({})).is_err());
        assert!(Health::read(&json!({"healthData": []})).is_err());
    }
}
