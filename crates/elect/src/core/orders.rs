//! The protocol between runner and keeper: JSON documents, one per line.

use super::deadlines::Deadlines;
use super::status::Ended;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A message from the runner to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// New deadlines for the command. The first order is one of these, and starts the command.
    Until(Deadlines),
    /// Pass this signal on to the main process.
    Forward(i32),
    /// Make the command end.
    Stop {
        /// Number of the signal that all of its processes get now.
        signal: i32,
        /// When those that are left get KILL, in boot time.
        kill: Duration,
    },
    /// Send KILL to all processes of the command now.
    Kill,
}

/// A message from the keeper to the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The command runs. This is the ID of its main process and of its process group.
    Started(i32),
    /// No process of the command is left.
    Ended(Ended),
    /// The command could not be started; the text says why.
    Failed(String),
}

/// The bytes of one message, with its newline.
pub(crate) fn line(document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::status::Status;
    use super::*;

    #[test]
    fn orders_and_reports_are_read_as_they_were_sent() {
        let second = Duration::from_secs(1);
        let orders = [
            Order::Until(Deadlines::new(second, second * 5)),
            Order::Forward(1),
            Order::Stop {
                signal: 15,
                kill: second,
            },
            Order::Kill,
        ];
        for order in orders {
            let line = line(&order).unwrap();
            assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1));
            assert_eq!(serde_json::from_slice::<Order>(&line).unwrap(), order);
        }
        let ended = |status| {
            Report::Ended(Ended {
                status,
                stopped: true,
            })
        };
        let reports = [
            Report::Started(7),
            ended(Status::Code(3)),
            ended(Status::Signal(9)),
            ended(Status::NotStarted),
            Report::Failed("no\nmemory".into()),
        ];
        for report in reports {
            let line = line(&report).unwrap();
            assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1));
            assert_eq!(serde_json::from_slice::<Report>(&line).unwrap(), report);
        }
    }
}
