//! One base's healing: what happened goes in, at most one action comes out.

use super::{Action, Answer, Input, Outcome, Output, Phase};
use super::{Judgement, Note, Reading, Scene, Settings};
use std::sync::Arc;
use std::time::Duration;

/// For how long setting the taint is tried before the permit is requested anew. A permit whose node has no
/// taint is given to others after ten minutes, see [`budget`](crate::core::budget); by then this machine must
/// have stopped trying.
const TAINTING: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Machine {
    settings: Settings,
    phase: Phase,
    pending: Option<Action>,
    pub(super) last: Option<Reading>,
    highs: u32,
    lows: u32,
    /// Readings in a row that were not high, and readings of the present phase that could be judged.
    not_highs: u32,
    judged: u32,
    pod: Option<Arc<str>>,
    known_pod: Option<Arc<str>>,
    is_new: bool,
    silent_since: Option<Duration>,
    tries: u32,
    not_before: Duration,
    paused_until: Duration,
    /// The budget may hold a permit for us.
    may_hold: bool,
    /// The node may have the taint.
    may_be_tainted: bool,
    reported: bool,
    notes: Vec<Note>,
}

enum Next {
    Do(Action),
    To(Phase),
    Wait(Option<Duration>),
}

impl Machine {
    /// Of a base of which nothing is known.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Well,
            pending: None,
            last: None,
            highs: 0,
            lows: 0,
            not_highs: 0,
            judged: 0,
            pod: None,
            known_pod: None,
            is_new: false,
            silent_since: None,
            tries: 0,
            not_before: Duration::ZERO,
            paused_until: Duration::ZERO,
            may_hold: false,
            may_be_tainted: false,
            reported: false,
            notes: Vec::new(),
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Takes what happened. `now` never goes back; its origin is the caller's.
    pub(crate) fn on(&mut self, now: Duration, input: Input) -> Output {
        match input {
            Input::Found { tainted } => {
                if tainted && self.phase == Phase::Well && self.pending.is_none() {
                    (self.may_hold, self.may_be_tainted) = (true, true);
                    self.enter(now, Phase::Adopted);
                }
            }
            Input::Health(None) | Input::Tick => {}
            Input::Health(Some(reading)) => self.read(reading),
            Input::Base { silent, pod } => self.base(now, silent, pod),
            Input::Answer(answer) => self.answered(now, answer),
            Input::Gone => {
                if self.phase != Phase::Gone {
                    self.enter(now, Phase::Gone);
                }
            }
        }
        self.advance(now)
    }

    fn read(&mut self, reading: Reading) {
        let last = self.last.and_then(|last| last.uptime);
        if let (Some(last), Some(uptime)) = (last, reading.uptime)
            && uptime < last
        {
            self.renewed();
        }
        // Without it the next one has nothing to be compared with.
        let uptime = reading.uptime.or(last);
        self.last = Some(Reading { uptime, ..reading });
        let judgement = reading.judge(&self.settings);
        let count = |was: u32, is: bool| if is { was.saturating_add(1) } else { 0 };
        self.highs = count(self.highs, judgement == Judgement::High);
        self.lows = count(self.lows, judgement == Judgement::Low);
        self.not_highs = count(self.not_highs, judgement != Judgement::High);
        if judgement != Judgement::None {
            self.judged = self.judged.saturating_add(1);
        }
    }

    /// The base is a new one: what was read of the old one says nothing any more.
    fn renewed(&mut self) {
        self.is_new = !matches!(self.phase, Phase::Well | Phase::Gone);
        (self.highs, self.lows, self.not_highs, self.judged) = (0, 0, 0, 0);
        self.last = None;
        self.paused_until = Duration::ZERO;
    }

    fn base(&mut self, now: Duration, silent: bool, pod: Option<Arc<str>>) {
        if let (Some(was), Some(is)) = (&self.known_pod, &pod)
            && was != is
        {
            self.renewed();
        }
        self.known_pod = pod.clone().or(self.known_pod.take());
        self.pod = pod;
        match (silent, self.silent_since) {
            (true, None) => self.silent_since = Some(now),
            (false, Some(since)) => {
                self.silent_since = None;
                self.postpone(now.saturating_sub(since));
            }
            _ => {}
        }
    }

    /// While the base was silent nothing was done, so that no deadline counts.
    fn postpone(&mut self, by: Duration) {
        match &mut self.phase {
            Phase::Tainting { until }
            | Phase::Draining { until, .. }
            | Phase::Uninstalling { until }
            | Phase::Settling { until }
            | Phase::Waiting { until } => *until = until.saturating_add(by),
            // What the last inspection showed is old.
            Phase::Replacing { sure } => *sure = false,
            _ => {}
        }
    }

    fn answered(&mut self, now: Duration, answer: Answer) {
        let Some(action) = self.pending.take() else {
            return;
        };
        if self.phase == Phase::Gone {
            match (action, answer) {
                (Action::Release, Answer::Done) => self.may_hold = false,
                (Action::Release, _) => self.again(now),
                _ => {}
            }
            return;
        }
        match (action, answer) {
            (Action::Acquire, Answer::Done) => {
                let until = now.saturating_add(TAINTING);
                self.enter(now, Phase::Tainting { until });
            }
            (Action::Acquire, Answer::Full(by)) => {
                self.may_hold = false;
                self.held(format!(
                    "healing waits: as many bases are being healed as the budget allows ({by})"
                ));
                self.again(now);
            }
            (Action::Taint, Answer::Done) => {
                let taint = evenkeel_api::names::koupleless::healing::TAINT;
                self.note(
                    Scene::Begun,
                    format!(
                        "the node has the taint {}={}:{}; its pods leave",
                        taint.0, taint.1, taint.2
                    ),
                );
                let until = now.saturating_add(self.settings.drain);
                self.enter(now, Phase::Draining { until, pods: None });
            }
            (Action::Inspect, Answer::Seen { pods, tainted }) => self.seen(now, pods, tainted),
            (Action::Uninstall, Answer::Left(0)) => {
                self.note(
                    Scene::Uninstalled,
                    "none of our modules is left on the base".to_owned(),
                );
                self.settle(now);
            }
            (Action::Uninstall, Answer::Left(left)) => {
                self.held(format!("{left} of our modules could not be uninstalled yet"));
                self.again(now);
            }
            (Action::Replace(_), Answer::Done) => {
                self.note(Scene::Replacing, "the base's pod is being evicted".to_owned());
                self.wait_for_new(now);
            }
            (Action::Replace(_), Answer::NoPod) => {
                self.held("the base's pod is not there any more; waiting for a new one".to_owned());
                self.wait_for_new(now);
            }
            (Action::Replace(_), Answer::Refused(why)) => {
                self.held(format!(
                    "the base's pod may not be evicted now: {why}; asking again"
                ));
                self.phase = Phase::Replacing { sure: false };
                self.again(now);
            }
            (Action::Untaint, Answer::Done) => self.untainted(now),
            (Action::Release, Answer::Done) => self.ended(now),
            (action, answer) => {
                if let Answer::Failed(why) = answer {
                    self.held(format!("{}: {why}; trying again", wording(&action)));
                }
                if let Phase::Replacing { sure } = &mut self.phase {
                    *sure = false;
                }
                self.again(now);
            }
        }
    }

    fn seen(&mut self, now: Duration, pods: usize, tainted: bool) {
        if !tainted {
            let until = now.saturating_add(TAINTING);
            self.enter(now, Phase::Tainting { until });
            return;
        }
        match &mut self.phase {
            Phase::Draining { pods: last, .. } if pods > 0 => {
                *last = Some(pods);
                self.tries = 0;
                self.not_before = now.saturating_add(self.settings.inspect);
            }
            Phase::Draining { .. } => {
                self.note(
                    Scene::Drained,
                    "no pod is left that does not tolerate the taint".to_owned(),
                );
                let until = now.saturating_add(self.settings.uninstall);
                self.enter(now, Phase::Uninstalling { until });
            }
            Phase::Replacing { .. } if pods > 0 => {
                let until = now.saturating_add(self.settings.drain);
                let pods = Some(pods);
                self.enter(now, Phase::Draining { until, pods });
            }
            Phase::Replacing { sure } => *sure = true,
            _ => {}
        }
    }

    fn settle(&mut self, now: Duration) {
        (self.lows, self.judged) = (0, 0);
        let until = now.saturating_add(self.settings.settle);
        self.enter(now, Phase::Settling { until });
    }

    fn wait_for_new(&mut self, now: Duration) {
        let until = now.saturating_add(self.settings.replace);
        self.enter(now, Phase::Waiting { until });
    }

    fn untainted(&mut self, now: Duration) {
        let Phase::Untainting(outcome) = self.phase else {
            return;
        };
        match outcome {
            Outcome::Recovered => {
                let message = format!("the taint is gone: metaspace is {}", self.figures());
                self.note(Scene::Ended, message);
            }
            Outcome::Replaced => {
                self.note(
                    Scene::Ended,
                    "the taint is gone: the base is a new one".to_owned(),
                );
            }
            // Reported when it was decided.
            Outcome::GaveUp => {}
        }
        self.may_be_tainted = false;
        self.enter(now, Phase::Releasing(Some(outcome)));
    }

    fn ended(&mut self, now: Duration) {
        self.may_hold = false;
        if matches!(self.phase, Phase::Releasing(Some(_))) {
            self.paused_until = now.saturating_add(self.settings.pause);
        }
        self.is_new = false;
        self.highs = 0;
        self.enter(now, Phase::Well);
    }

    fn advance(&mut self, now: Duration) -> Output {
        let mut output = Output::default();
        while self.pending.is_none() {
            match self.step(now) {
                Next::To(phase) => self.enter(now, phase),
                Next::Wait(until) => {
                    output.wake = until;
                    break;
                }
                Next::Do(action) => {
                    self.may_hold |= action == Action::Acquire;
                    self.may_be_tainted |= action == Action::Taint;
                    self.pending = Some(action.clone());
                    output.action = Some(action);
                }
            }
        }
        output.finished = self.phase == Phase::Gone && self.pending.is_none() && !self.may_hold;
        output.notes = std::mem::take(&mut self.notes);
        output
    }

    fn step(&mut self, now: Duration) -> Next {
        if self.phase == Phase::Gone {
            return if self.may_hold {
                self.when(now, Action::Release, None)
            } else {
                Next::Wait(None)
            };
        }
        if self.silent_since.is_some() {
            return Next::Wait(None);
        }
        if let Some(phase) = self.over() {
            return Next::To(phase);
        }
        match self.phase.clone() {
            Phase::Well if self.highs < self.settings.readings => Next::Wait(None),
            Phase::Well if now < self.paused_until => Next::Wait(Some(self.paused_until)),
            Phase::Well => {
                let (readings, high) = (self.settings.readings, self.settings.high);
                let message = format!(
                    "metaspace is {} in the last of {readings} readings at {high} % or more",
                    self.figures()
                );
                self.note(Scene::Overload, message);
                Next::To(Phase::Asking)
            }
            Phase::Adopted if self.highs >= self.settings.readings => Next::To(Phase::Asking),
            Phase::Adopted => Next::Wait(None),
            Phase::Spent if self.pod.is_none() => Next::Wait(None),
            Phase::Spent => Next::To(Phase::Replacing { sure: false }),
            Phase::Asking => self.when(now, Action::Acquire, None),
            Phase::Tainting { until } if now >= until => Next::To(Phase::Asking),
            Phase::Tainting { until } => self.when(now, Action::Taint, Some(until)),
            Phase::Draining { until, pods } if now >= until => {
                let pods = pods.map_or_else(|| "pods".to_owned(), |pods| format!("{pods} pods"));
                let message = format!(
                    "{pods} have not left the node within {} s: the taint is taken off, healing is tried again later",
                    self.settings.drain.as_secs()
                );
                self.note(Scene::GaveUp, message);
                Next::To(Phase::Untainting(Outcome::GaveUp))
            }
            Phase::Draining { until, .. } => self.when(now, Action::Inspect, Some(until)),
            Phase::Uninstalling { until } if now >= until => {
                self.settle(now);
                Next::To(self.phase.clone())
            }
            Phase::Uninstalling { until } => self.when(now, Action::Uninstall, Some(until)),
            Phase::Settling { until } if now < until => Next::Wait(Some(until)),
            // A base that says nothing of its metaspace is not replaced for it.
            Phase::Settling { .. } if self.judged < self.settings.readings => Next::Wait(None),
            Phase::Settling { .. } => Next::To(Phase::Replacing { sure: false }),
            Phase::Replacing { .. } if self.pod.is_none() => {
                let message = format!(
                    "metaspace is {} on an empty base, and the pod that it runs in is not known: restart the base",
                    self.figures()
                );
                self.note(Scene::Held, message);
                Next::To(Phase::Spent)
            }
            Phase::Replacing { sure: false } => self.when(now, Action::Inspect, None),
            Phase::Replacing { sure: true } => match self.pod.clone() {
                Some(pod) => self.when(now, Action::Replace(pod), None),
                None => Next::To(Phase::Spent),
            },
            Phase::Waiting { until } if now >= until => Next::To(Phase::Replacing { sure: false }),
            Phase::Waiting { until } => Next::Wait(Some(until)),
            Phase::Untainting(_) => self.when(now, Action::Untaint, None),
            Phase::Releasing(_) if !self.may_hold => {
                self.ended(now);
                Next::To(Phase::Well)
            }
            Phase::Releasing(_) => self.when(now, Action::Release, None),
            Phase::Gone => Next::Wait(None),
        }
    }

    /// The phase that follows if there is nothing to heal any more.
    fn over(&self) -> Option<Phase> {
        let outcome = if self.is_new {
            Outcome::Replaced
        } else if self.lows >= self.settings.readings
            || (self.phase == Phase::Adopted && self.not_highs >= self.settings.readings)
        {
            Outcome::Recovered
        } else {
            return None;
        };
        match self.phase {
            Phase::Well | Phase::Untainting(_) | Phase::Releasing(_) | Phase::Gone => None,
            _ if !self.may_be_tainted => Some(Phase::Releasing(None)),
            _ => Some(Phase::Untainting(outcome)),
        }
    }

    /// Does it now, or when the wait is over, unless `until` is sooner.
    fn when(&self, now: Duration, action: Action, until: Option<Duration>) -> Next {
        if now >= self.not_before {
            return Next::Do(action);
        }
        Next::Wait(Some(
            until.map_or(self.not_before, |until| until.min(self.not_before)),
        ))
    }

    fn enter(&mut self, now: Duration, phase: Phase) {
        if std::mem::discriminant(&phase) != std::mem::discriminant(&self.phase) {
            (self.tries, self.not_before, self.reported) = (0, now, false);
        }
        self.phase = phase;
    }

    fn again(&mut self, now: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.not_before = now.saturating_add(self.settings.wait(self.tries));
    }

    /// Reports this once per phase: repetitions are no news.
    fn held(&mut self, message: String) {
        if !self.reported {
            self.reported = true;
            self.note(Scene::Held, message);
        }
    }

    fn note(&mut self, scene: Scene, message: String) {
        self.notes.push(Note { scene, message });
    }

    fn figures(&self) -> String {
        let measure = self.settings.measure;
        let figures = self.last.and_then(|last| {
            let mib = |bytes: u64| bytes / (1 << 20);
            let max = u64::try_from(last.max?).ok()?;
            let (bytes, percent) = (last.bytes(measure)?, last.percent(measure)?);
            Some(format!("{percent} % full ({} of {} MiB)", mib(bytes), mib(max)))
        });
        figures.unwrap_or_else(|| "not known".to_owned())
    }
}

fn wording(action: &Action) -> &'static str {
    match action {
        Action::Acquire => "cannot request a permit of the healing budget",
        Action::Taint => "cannot set the taint",
        Action::Inspect => "cannot see which pods are on the node",
        Action::Uninstall => "cannot uninstall what is left of our modules",
        Action::Replace(_) => "cannot evict the base's pod",
        Action::Untaint => "cannot take the taint off",
        Action::Release => "cannot give the permit of the healing budget back",
    }
}
