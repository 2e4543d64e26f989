//! A world that comes from a recording. It supplies what differs from run to run by nature, before a request
//! is made: instants (from which the engine itself derives work directories, costs, "started at" and elapsed
//! times), metaspace taken, frames of stack traces (heads, causes and counts of shared frames are the
//! engine's), who won a race between two threads, and the machine's figures. Answers are never touched.

use crate::arklet::{Carrier, Frame, Machine, Moment, World};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The facts, to be filled before each exchange. What was not fed is 0 or nothing, and shows in the answer.
#[derive(Clone, Default)]
pub(super) struct Fed(pub(super) Arc<Mutex<Facts>>);

#[derive(Default)]
pub(super) struct Facts {
    times: BTreeMap<(Moment, String), VecDeque<i64>>,
    pub(super) space: Option<i64>,
    pub(super) at_once: BTreeMap<String, bool>,
    frames: BTreeMap<String, Vec<Frame>>,
    pub(super) machine: Option<Machine>,
}

impl Facts {
    pub(super) fn time(&mut self, moment: Moment, about: &str, time: i64) {
        self.times
            .entry((moment, about.to_owned()))
            .or_default()
            .push_back(time);
    }

    /// Frames out of a printed stack trace. Shared frames, which are only counted there, are those of the
    /// enclosing trace.
    pub(super) fn trace(&mut self, trace: &str) {
        let mut enclosing: Vec<Frame> = Vec::new();
        let mut chain: Vec<(String, Vec<Frame>)> = Vec::new();
        for line in trace.lines() {
            if let Some(frame) = line.strip_prefix("\tat ") {
                chain.last_mut().unwrap().1.push(printed_frame(frame));
            } else if let Some(more) = line.strip_prefix("\t... ") {
                let more: usize = more.strip_suffix(" more").unwrap().parse().unwrap();
                let shared = enclosing[enclosing.len() - more..].to_vec();
                chain.last_mut().unwrap().1.extend(shared);
            } else {
                if let Some((_, frames)) = chain.last() {
                    enclosing.clone_from(frames);
                }
                let head = line.strip_prefix("Caused by: ").unwrap_or(line);
                let class = head.split(": ").next().unwrap();
                chain.push((class.to_owned(), Vec::new()));
            }
        }
        self.frames.extend(chain);
    }

    /// Frames out of the bean of a throwable.
    pub(super) fn bean(&mut self, bean: &Value) {
        let frames = bean["stackTrace"].as_array().unwrap();
        let class = bean["@type"].as_str().unwrap().to_owned();
        self.frames.insert(class, frames.iter().map(bean_frame).collect());
        if bean["cause"].is_object() {
            self.bean(&bean["cause"]);
        }
    }
}

/// `module/class.method(file:line)`.
fn printed_frame(text: &str) -> Frame {
    let (path, place) = text.strip_suffix(')').unwrap().split_once('(').unwrap();
    let (module, path) = match path.split_once('/') {
        Some((module, path)) => (Some((module.to_owned(), String::new())), path),
        None => (None, path),
    };
    let (class, method) = path.rsplit_once('.').unwrap();
    let (file, line) = match place.split_once(':') {
        Some((file, line)) => (file.to_owned(), line.parse().unwrap()),
        None => (String::new(), -2),
    };
    Frame {
        loader: None,
        module,
        class: class.to_owned(),
        method: method.to_owned(),
        file,
        line,
    }
}

fn bean_frame(frame: &Value) -> Frame {
    let text = |key: &str| frame[key].as_str().map(str::to_owned);
    Frame {
        loader: text("classLoaderName"),
        module: text("moduleName").zip(text("moduleVersion")),
        class: text("className").unwrap(),
        method: text("methodName").unwrap(),
        file: text("fileName").unwrap(),
        line: frame["lineNumber"].as_i64().unwrap() as i32,
    }
}

impl World for Fed {
    fn at(&mut self, moment: Moment, about: &str) -> i64 {
        let mut facts = self.0.lock().unwrap();
        let times = facts.times.get_mut(&(moment, about.to_owned()));
        times.and_then(VecDeque::pop_front).unwrap_or(0)
    }

    fn elapsed_space(&mut self, _grown: i64) -> i64 {
        self.0.lock().unwrap().space.take().unwrap_or(0)
    }

    fn begins_at_once(&mut self, request_id: &str) -> bool {
        self.0.lock().unwrap().at_once[request_id]
    }

    fn machine(&mut self, _boot: i64) -> Machine {
        self.0.lock().unwrap().machine.clone().unwrap()
    }

    fn frames(&mut self, class: &str, _handler: &str, _carrier: Carrier, _depth: usize) -> Vec<Frame> {
        self.0
            .lock()
            .unwrap()
            .frames
            .get(class)
            .cloned()
            .unwrap_or_default()
    }
}
