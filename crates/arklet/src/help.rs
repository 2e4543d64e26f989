//! The answer to `help`: the commands that a base has, its own ones among them.

use crate::command::Command;
use crate::envelope::DecodeError;
use crate::read;
use serde_json::Value;

/// A command that a base has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name on the wire.
    pub id: String,
    /// What the base says it does.
    pub description: String,
}

impl Offer {
    /// The command, if it is one of those that are built in.
    pub fn command(&self) -> Option<Command> {
        Command::from_id(&self.id)
    }

    /// Reads the `data` of an answer; entries without a name are left out.
    pub fn read_all(data: &Value) -> Result<Vec<Self>, DecodeError> {
        let entries = data.as_array().ok_or(DecodeError::Shape {
            what: "the list of commands",
            wanted: "an array",
        })?;
        let offer = |entry: &Value| {
            Some(Self {
                id: read::non_blank(entry, "id")?,
                description: read::text(entry, "desc").unwrap_or_default(),
            })
        };
        Ok(entries.iter().filter_map(offer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_of_the_base_s_own_are_listed_too() {
        let data = json!([{"id": "health", "desc": "d"}, {"desc": "nameless"}, 5, {"id": "warmUp"}]);
        let offers = Offer::read_all(&data).unwrap();
        let commands: Vec<Option<Command>> = offers.iter().map(Offer::command).collect();
        assert_eq!(commands, [Some(Command::Health), None]);
        assert_eq!(offers[1].id, "warmUp");
        assert!(Offer::read_all(&json!({})).is_err());
    }
}
