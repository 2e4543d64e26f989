//! Which nodes a lab has, what they are called, and in which zones they are. Pure.

use super::MAX_NODES;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_saphyr::Spanned;
use std::fmt;

/// The nodes of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nodes without a zone label, called `PREFIX-1`, `PREFIX-2` and so on. Agents and controller count them
    /// to the zone `default`.
    One {
        /// Prefix of their names.
        prefix: String,
        nodes: u8,
    },
    /// Zones with their sizes, in order. The nodes of zone `north` are called `north-1`, `north-2` and so on,
    /// and are labelled `topology.kubernetes.io/zone: north`.
    Zones(Vec<(String, u8)>),
}

/// A node of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the node.
    pub name: String,
    /// Its zone, where the layout has zones.
    pub zone: Option<String>,
}

impl Layout {
    /// `nodes` nodes whose names begin with `prefix`.
    pub fn one(prefix: &str, nodes: u8) -> Self {
        Self::One {
            prefix: prefix.to_owned(),
            nodes,
        }
    }

    /// The nodes in order. The numbers of the lab's addresses follow this order, from 1.
    pub fn places(&self) -> Vec<Place> {
        let place = |prefix: &str, number: u8, zone: Option<&str>| Place {
            name: format!("{prefix}-{number}"),
            zone: zone.map(str::to_owned),
        };
        match self {
            Self::One { prefix, nodes } => (1..=*nodes).map(|number| place(prefix, number, None)).collect(),
            Self::Zones(zones) => zones
                .iter()
                .flat_map(|(zone, size)| (1..=*size).map(move |number| place(zone, number, Some(zone))))
                .collect(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::One { nodes, .. } => usize::from(*nodes),
            Self::Zones(zones) => zones.iter().map(|(_, size)| usize::from(*size)).sum(),
        }
    }

    /// Whether there is no node, which [`Layout::check`] refuses.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is wrong with it, without the name of a field or flag.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::One { prefix, nodes } => {
                if *nodes == 0 || *nodes > MAX_NODES {
                    return Err(format!("{nodes} is not between 1 and {MAX_NODES}"));
                }
                begins_a_name(prefix)
                    .then_some(())
                    .ok_or_else(|| not_a_prefix(prefix))
            }
            Self::Zones(zones) => {
                for (number, (zone, size)) in zones.iter().enumerate() {
                    if !begins_a_name(zone) {
                        return Err(not_a_prefix(zone));
                    }
                    if *size == 0 {
                        return Err(format!("{zone} has no node; give each zone at least 1"));
                    }
                    if zones.iter().take(number).any(|(other, _)| other == zone) {
                        return Err(format!("{zone} is given twice"));
                    }
                }
                let sum = self.len();
                if sum == 0 || sum > usize::from(MAX_NODES) {
                    return Err(format!("{sum} nodes in all is not between 1 and {MAX_NODES}"));
                }
                Ok(())
            }
        }
    }

    /// Reads `north=3,south=5`, as a flag has it.
    pub fn parse_zones(text: &str) -> Result<Self, String> {
        let zone = |part: &str| {
            let wrong = || format!("`{part}` is not ZONE=NODES, as in north=3,south=5");
            let (zone, size) = part.split_once('=').ok_or_else(wrong)?;
            let size = size.trim().parse().map_err(|_| wrong())?;
            Ok::<_, String>((zone.trim().to_owned(), size))
        };
        let layout = Self::Zones(text.split(',').map(zone).collect::<Result<_, _>>()?);
        layout.check()?;
        Ok(layout)
    }
}

/// A zone's name is a label value and begins the names of its nodes; 50 characters leave room for what is
/// added to node names elsewhere.
fn begins_a_name(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 50
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_name)
}

fn not_a_prefix(text: &str) -> String {
    format!(
        "`{text}` cannot begin a node name; use lower-case letters, digits and -, at most 50, a letter first"
    )
}

/// `zones:` of a scenario, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Zones(pub(super) Vec<(String, Spanned<u8>)>);

impl<'de> Deserialize<'de> for Zones {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Zones;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("zones with their sizes, as in {north: 3, south: 5}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Zones, A::Error> {
                let mut zones: Vec<(String, Spanned<u8>)> = Vec::new();
                while let Some((zone, size)) = map.next_entry::<String, Spanned<u8>>()? {
                    if zones.iter().any(|(other, _)| *other == zone) {
                        return Err(de::Error::custom(format!("zones: {zone} is given twice")));
                    }
                    zones.push((zone, size));
                }
                Ok(Zones(zones))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn nodes_of_zones_are_called_after_them() {
        let layout = Layout::parse_zones("north=2, pier=1").unwrap();
        let names: Vec<_> = layout
            .places()
            .into_iter()
            .map(|place| (place.name, place.zone))
            .collect();
        let north = Some("north".to_owned());
        assert_eq!(
            names,
            [
                ("north-1".to_owned(), north.clone()),
                ("north-2".to_owned(), north),
                ("pier-1".to_owned(), Some("pier".to_owned())),
            ]
        );
        assert_eq!(layout.len(), 3);
        assert_eq!(Layout::one("shore", 2).places()[1].name, "shore-2");
        assert_eq!(Layout::one("shore", 2).places()[1].zone, None);
    }

    #[rstest]
    #[case("north", "ZONE=NODES")]
    #[case("north=many", "ZONE=NODES")]
    #[case("north=3,", "ZONE=NODES")]
    #[case("north=0", "at least 1")]
    #[case("north=3,north=2", "twice")]
    #[case("North=3", "node name")]
    #[case("north-=3", "node name")]
    #[case("north=30,south=21", "51 nodes")]
    fn zones_that_cannot_be_are_refused(#[case] text: &str, #[case] words: &str) {
        let reason = Layout::parse_zones(text).unwrap_err();
        assert!(reason.contains(words), "{reason}");
    }
}
