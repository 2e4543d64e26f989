//! What commands write down: when they ran, and in which term.

use crate::support::parent_of;
use evenkeel_testkit::until;

/// What one command wrote down.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) runner: String,
    pub(crate) id: i32,
    pub(crate) uid: String,
    pub(crate) transitions: i32,
    /// Boot time of its first and last words, in seconds.
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// Words other than `run`.
    pub(crate) words: Vec<String>,
}

impl Run {
    pub(crate) async fn ended(&self) {
        let what = format!("{self:?} ends");
        until(&what, async || parent_of(self.id).is_none()).await;
    }

    pub(crate) fn lives(&self) -> bool {
        parent_of(self.id).is_some()
    }
}

/// A line is: word, boot time, token, process ID. The last one may be half written.
pub(crate) fn read_into(runs: &mut Vec<Run>, runner: &str, line: &str) {
    let fields: Vec<&str> = line.split(' ').collect();
    let [word, time, token, id, "."] = fields[..] else {
        return;
    };
    let time: f64 = time.parse().expect("a time");
    let id: i32 = id.parse().expect("a process ID");
    let (uid, transitions) = token.split_once('/').expect("a token is UID/TRANSITIONS");
    let known = runs.iter().position(|run| run.runner == runner && run.id == id);
    let index = known.unwrap_or_else(|| {
        runs.push(Run {
            runner: runner.to_owned(),
            id,
            uid: uid.to_owned(),
            transitions: transitions.parse().expect("transitions are a number"),
            first: time,
            last: time,
            words: Vec::new(),
        });
        runs.len() - 1
    });
    let run = &mut runs[index];
    run.last = time;
    if word != "run" {
        run.words.push(word.to_owned());
    }
}
