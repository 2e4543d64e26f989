//! What runner and keeper say to each other: JSON documents, one a line.

use super::deadlines::Deadlines;
use super::status::Ended;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// From the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The term is proven up to there. The first order; the command starts with it.
    Until(Deadlines),
    /// Pass this signal on to the main process.
    Forward(i32),
    /// Make the command end: this signal to all of it, and KILL at `kill_at`.
    Stop {
        /// The signal's number.
        signal: i32,
        /// Boot time.
        kill_at: Duration,
    },
    /// KILL, now.
    Kill,
}

/// From the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The command runs; the ID of its main process and of its process group.
    Started(i32),
    /// No process of it is left.
    Ended(Ended),
    /// It could not be started.
    Failed(String),
}

/// A document as it is sent.
pub(super) fn line(document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::status::Status;
    use super::*;

    #[test]
    fn orders_and_reports_survive_the_way() {
        let second = Duration::from_secs(1);
        let orders = [
            Order::Until(Deadlines::new(second, second * 5)),
            Order::Forward(1),
            Order::Stop {
                signal: 15,
                kill_at: second,
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
