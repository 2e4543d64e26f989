//! Names that outlive a process: boots and containers. Pure.

use evenkeel_vnode::provider::ContainerId;
use sha2::{Digest, Sha256};

/// Name and scheme.
pub(crate) const RUNTIME: &str = "simulated";

/// The boot of a node that was powered off so often, in the form of a UUID. The same for the same node, so
/// that a new process finds the containers of the one before it alive.
pub(crate) fn boot(node: &str, outages: u32) -> String {
    let digest = Sha256::digest(format!("evenkeel simulated boot/{outages}/{node}"));
    let mut text = String::with_capacity(36);
    for (index, byte) in digest.iter().take(16).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(half), 16));
        }
    }
    text
}

pub(crate) fn container(boot: &str, number: u64) -> ContainerId {
    ContainerId(format!("{RUNTIME}://{boot}/{number:016x}").into())
}

/// Boot and number of a container; `None` where the ID is not ours.
pub(crate) fn parse(id: &str) -> Option<(&str, u64)> {
    let rest = id.strip_prefix(RUNTIME)?.strip_prefix("://")?;
    let (boot, number) = rest.rsplit_once('/')?;
    Some((boot, u64::from_str_radix(number, 16).ok()?))
}

/// A number that is the same for the same text, for figures that are to look different from pod to pod.
pub(crate) fn number(text: &str) -> u64 {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_boot_it_is_of() {
        let boot = boot("node-1", 0);
        let id = container(&boot, 0x2a);
        assert_eq!(parse(&id.0), Some((boot.as_str(), 42)));
        assert_eq!(id.0.as_ref(), format!("simulated://{boot}/000000000000002a"));
    }

    #[test]
    fn ids_of_others_are_not_ours() {
        for id in [
            "",
            "containerd://abc/1",
            "simulated://",
            "simulated://boot",
            "simulated://boot/xyz",
        ] {
            assert_eq!(parse(id), None, "{id}");
        }
    }

    #[test]
    fn boots_differ_by_node_and_outage_and_by_nothing_else() {
        assert_eq!(boot("a", 0), boot("a", 0));
        assert_ne!(boot("a", 0), boot("b", 0));
        assert_ne!(boot("a", 0), boot("a", 1));
        assert_eq!(boot("a", 0).len(), 36);
    }
}
