//! Parameters of check plugins, as SuperEdge's daemon and its design article write them:
//! `timeout=1,retries=3,weight=0.5,port=10250`.

use std::collections::BTreeMap;
use std::time::Duration;

/// The longest that attempts may take together. A vote waits for less (see `voter` in the zone's engine); the
/// released daemon's shortest time is a second, and means that all of what there is may be used.
const ROUND: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);
const MOST_ATTEMPTS: u32 = 3;

/// Points, and weights, are counted in millionths: sums of decimal fractions are exact.
pub(crate) const UNIT: u32 = 1_000_000;

/// Why there are no checks. Names the flag and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{by}: {reason}")]
pub struct CheckSettingsError {
    by: String,
    reason: String,
}

impl CheckSettingsError {
    pub(super) fn of(by: &str, reason: String) -> Self {
        let by = by.to_owned();
        Self { by, reason }
    }

    pub(super) fn idle_command() -> Self {
        let reason = "it does nothing: no exec is among --check".to_owned();
        Self::of("checkCommand", reason)
    }
}

/// The parameters of one plugin that nobody has taken yet.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Who gives them, for messages.
    by: String,
    values: BTreeMap<String, String>,
    /// The command of the node's own file.
    pub(super) command: Vec<String>,
}

impl Parameters {
    /// Comma separated `key=value`, with spaces anywhere around them; empty: none.
    pub(super) fn read(by: &str, text: &str) -> Result<Self, CheckSettingsError> {
        let mut parameters = Self::none(by.to_owned());
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            parameters.add(part)?;
        }
        Ok(parameters)
    }

    fn none(by: String) -> Self {
        Self {
            by,
            values: BTreeMap::new(),
            command: Vec::new(),
        }
    }

    fn add(&mut self, part: &str) -> Result<(), CheckSettingsError> {
        let Some((key, value)) = part.split_once('=') else {
            return Err(self.refuse(format!("{part:?} has no value: write it as in timeout=1")));
        };
        let (key, value) = (key.trim(), value.trim());
        // The released daemon and its design article differ in this name.
        let key = if key == "retrytime" { "retries" } else { key };
        let former = self.values.insert(key.to_owned(), value.to_owned());
        match former {
            Some(_) => Err(self.refuse(format!("{key} is given twice"))),
            None => Ok(()),
        }
    }

    /// The value of a parameter, which the plugin has made something of then.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.values.remove(key)
    }

    /// The parameter `port`, 1 to 65535.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn port(&mut self) -> Result<Option<u16>, String> {
        let Some(text) = self.take("port") else {
            return Ok(None);
        };
        let port = text.parse().ok().filter(|port| *port != 0);
        port.map(Some)
            .ok_or_else(|| format!("port={text}: give 1 to 65535"))
    }

    /// Weight, attempts, and the time for each of them.
    pub(super) fn common(
        &mut self,
        attempts: u32,
    ) -> Result<(u32, u32, Option<Duration>), CheckSettingsError> {
        let refuse = |key: &str, text: &str, give: &str| self.refuse(format!("{key}={text}: give {give}"));
        let values = &self.values;
        let weight = match values.get("weight") {
            None => UNIT,
            Some(text) => (text.parse().ok())
                .and_then(millionths)
                .filter(|weight| (1..=UNIT).contains(weight))
                .ok_or_else(|| refuse("weight", text, "more than 0, at most 1"))?,
        };
        let timeout = match values.get("timeout") {
            None => None,
            Some(text) => {
                let timeout = seconds(text).filter(|timeout| (SHORTEST..=ROUND).contains(timeout));
                let most = "0.01 to 1, in seconds: a vote waits less than 1 second for its checks";
                Some(timeout.ok_or_else(|| refuse("timeout", text, most))?)
            }
        };
        let attempts = match values.get("retries") {
            // Fewer where each of them takes longer.
            None => timeout.map_or(attempts, |timeout| attempts.min(most_of(timeout))),
            Some(text) => text
                .parse()
                .ok()
                .filter(|attempts| (1..=MOST_ATTEMPTS).contains(attempts))
                .ok_or_else(|| refuse("retries", text, "1 to 3, which is how many attempts there are"))?,
        };
        if let Some(timeout) = timeout.filter(|timeout| *timeout * attempts > ROUND) {
            return Err(self.refuse(format!(
                "{attempts} attempts of {} s are longer than 1 s, and a vote waits less for its checks: give less of either",
                timeout.as_secs_f64()
            )));
        }
        for key in ["weight", "timeout", "retries"] {
            self.values.remove(key);
        }
        Ok((weight, attempts, timeout))
    }

    /// Refuses what no one has taken.
    pub(super) fn end(self, plugin: &str) -> Result<(), CheckSettingsError> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.refuse(format!("the check plugin {plugin} has no parameter {key:?}"))),
        }
    }

    pub(super) fn refuse(&self, reason: String) -> CheckSettingsError {
        CheckSettingsError::of(&self.by, reason)
    }
}

/// Plugins with their parameters, as `--check` has them: `ping,kubelet:weight=0.5,port=10250`. A part without
/// `=` before its first colon begins a plugin; others are parameters of the plugin before them.
pub(super) fn read_check(check: &[String]) -> Result<Vec<(String, Parameters)>, CheckSettingsError> {
    let mut plugins: Vec<(String, Parameters)> = Vec::new();
    let parts = check.iter().flat_map(|text| text.split(','));
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let (begins, rest) = match part.split_once(':') {
            Some((name, rest)) if !name.contains('=') => (Some(name.trim()), rest.trim()),
            None if !part.contains('=') => (Some(part), ""),
            _ => (None, part),
        };
        if let Some(name) = begins {
            if plugins.iter().any(|(known, _)| known == name) {
                let reason = format!("the plugin {name} is given twice");
                return Err(CheckSettingsError::of("--check", reason));
            }
            plugins.push((name.to_owned(), Parameters::none(format!("--check {name}"))));
        }
        match plugins.last_mut() {
            _ if rest.is_empty() => {}
            Some((_, parameters)) => parameters.add(rest)?,
            None => {
                let reason = format!("{part:?} names no plugin: write it as in ping:timeout=0.3,retries=3");
                return Err(CheckSettingsError::of("--check", reason));
            }
        }
    }
    Ok(plugins)
}

/// How many attempts of this length a vote waits for.
fn most_of(timeout: Duration) -> u32 {
    let most = ROUND.as_micros() / timeout.as_micros().max(1);
    u32::try_from(most).unwrap_or(u32::MAX).max(1)
}

/// Of a decimal fraction; `None` for what is no number, is negative or does not fit.
pub(super) fn millionths(number: f64) -> Option<u32> {
    let scaled = (number * f64::from(UNIT)).round();
    (0.0..=f64::from(u32::MAX))
        .contains(&scaled)
        .then_some(scaled as u32)
}

/// `1`, `0.3`, and `300ms` as other flags have it.
fn seconds(text: &str) -> Option<Duration> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => evenkeel_net::duration::parse(text).ok(),
    }
}
