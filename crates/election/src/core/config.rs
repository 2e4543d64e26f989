//! Timing and identity of a candidate, and their validation.

use std::time::Duration;

/// The waits between attempts of a follower are uniform in `[period, period * (1 + JITTER_FACTOR))`, as in
/// client-go.
pub(crate) const JITTER_FACTOR: f64 = 1.2;

/// The largest `leaseDurationSeconds`, which is an int32.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(i32::MAX as u64);

/// Which rules a candidate follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compat {
    /// This library's rules. Where they differ from client-go's they are more cautious, or faster without a
    /// risk. The list of differences is at [`Machine`](super::Machine).
    #[default]
    Evenkeel,
    /// client-go's rules, exactly.
    ClientGo,
}

/// What a candidate does once it has lost leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLoss {
    /// The candidate ends, as with client-go without recovery: a supervisor has to start the process again.
    Stop,
    /// The candidate stays in its term with a closed gate, and renews as soon as it can. It ends when
    /// somebody else has held the lock, when the lock was deleted, or when the recovery deadline has passed.
    Recover,
    /// As [`OnLoss::Recover`], but instead of the candidate only its term ends, and it campaigns again.
    #[default]
    Campaign,
}

/// Timing and identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Identity of this candidate, which must differ from that of every other.
    pub identity: String,
    /// For how long others do not take a lock that is not renewed; 5 s by default. On the wire it is rounded
    /// up to whole seconds, so that nobody takes the lock before its holder has given up.
    /// [`Compat::ClientGo`] rounds down.
    pub lease_duration: Duration,
    /// After this time without a successful renewal, a leader stops leading; 3 s by default. It counts from
    /// the start of the last successful request.
    pub renew_deadline: Duration,
    /// Time between attempts to take or to renew the lock; 1 s by default.
    pub retry_period: Duration,
    /// Whether the lock is released on a clean stop, once the guarded work has ended.
    pub release_on_cancel: bool,
    /// What the candidate does after a loss.
    pub on_loss: OnLoss,
    /// How long after a loss the candidate gives up to recover the term; `None` for never.
    pub recovery_deadline: Option<Duration>,
    /// Whether a coordinator (KEP-4355) decides who leads. Then the candidate neither creates nor takes the
    /// lock.
    pub coordinated: bool,
    /// Which rules the candidate follows.
    pub compat: Compat,
}

/// Returned for a configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// The default timing (5, 3 and 1 s) and rules; the lock is released on a clean stop.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(5),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_secs(1),
            release_on_cancel: true,
            on_loss: OnLoss::default(),
            recovery_deadline: None,
            coordinated: false,
            compat: Compat::default(),
        }
    }

    /// client-go's rules with the timing of the Kubernetes components (15, 10 and 2 s). The lock is not
    /// released, and the candidate ends at a loss.
    pub fn client_go(identity: &str) -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: false,
            on_loss: OnLoss::Stop,
            compat: Compat::ClientGo,
            ..Self::new(identity)
        }
    }

    /// Checks what client-go checks, in its order and with its texts.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let jittered = self.retry_period.as_secs_f64() * JITTER_FACTOR;
        let refusals = [
            (
                self.lease_duration <= self.renew_deadline,
                "leaseDuration must be greater than renewDeadline",
            ),
            (
                self.renew_deadline.as_secs_f64() <= jittered,
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (
                self.lease_duration.is_zero(),
                "leaseDuration must be greater than zero",
            ),
            (
                self.renew_deadline.is_zero(),
                "renewDeadline must be greater than zero",
            ),
            (
                self.retry_period.is_zero(),
                "retryPeriod must be greater than zero",
            ),
            (
                self.lease_duration > MAX_LEASE_DURATION,
                "leaseDuration must be at most 2147483647 s, the largest leaseDurationSeconds",
            ),
            (self.identity.is_empty(), "Lock identity is empty"),
            (
                self.coordinated && self.on_loss == OnLoss::Recover,
                "recovery is not supported with coordinated leader election",
            ),
        ];
        match refusals.into_iter().find(|(refused, _)| *refused) {
            Some((_, text)) => Err(ConfigError(text.to_owned())),
            None => Ok(()),
        }
    }

    /// Time limit of one request: half of the renew deadline, so that two requests fit into it. Under
    /// [`Compat::ClientGo`] it is at least 1 s, as in client-go's lock client.
    pub fn request_timeout(&self) -> Duration {
        let half = self.renew_deadline / 2;
        match self.compat {
            Compat::Evenkeel => half,
            Compat::ClientGo => half.max(Duration::from_secs(1)),
        }
    }

    /// The `leaseDurationSeconds` that this candidate writes.
    pub(crate) fn wire_seconds(&self) -> i32 {
        let cut_off = self.compat == Compat::ClientGo || self.lease_duration.subsec_nanos() == 0;
        let seconds = self.lease_duration.as_secs() + u64::from(!cut_off);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn config(lease: u64, renew: u64, retry: u64) -> Config {
        Config {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..Config::new("me")
        }
    }

    #[rstest]
    #[case::upstreams_valid(config(15_000, 2_000, 1_000), None)]
    #[case::stock(config(15_000, 10_000, 2_000), None)]
    #[case::ours(Config::new("me"), None)]
    #[case::sub_second(config(500, 300, 100), None)]
    #[case::equal(config(10, 10, 1), Some("leaseDuration must be greater than renewDeadline"))]
    #[case::shorter(config(9, 10, 1), Some("leaseDuration must be greater than renewDeadline"))]
    #[case::jitter(
        config(15_000, 1_200, 1_000),
        Some("renewDeadline must be greater than retryPeriod*JitterFactor")
    )]
    #[case::all_zero(config(0, 0, 0), Some("leaseDuration must be greater than renewDeadline"))]
    #[case::renew_zero(
        config(5, 0, 0),
        Some("renewDeadline must be greater than retryPeriod*JitterFactor")
    )]
    #[case::retry_zero(config(5, 3, 0), Some("retryPeriod must be greater than zero"))]
    #[case::endless(
        config(u64::MAX, 3, 1),
        Some("leaseDuration must be at most 2147483647 s, the largest leaseDurationSeconds")
    )]
    #[case::identity(Config { identity: String::new(), ..config(5, 3, 1) }, Some("Lock identity is empty"))]
    #[case::coordinated(Config { coordinated: true, on_loss: OnLoss::Recover, ..config(5, 3, 1) }, Some("recovery is not supported with coordinated leader election"))]
    #[case::client_gos(Config::client_go("me"), None)]
    fn a_configuration_is_refused_in_client_gos_words(
        #[case] config: Config,
        #[case] expected: Option<&str>,
    ) {
        let got = config.validate().map_err(|error| error.to_string());
        assert_eq!(got, expected.map_or(Ok(()), |text| Err(text.to_owned())));
    }

    #[rstest]
    #[case(500, 1)]
    #[case(1_000, 1)]
    #[case(1_500, 2)]
    #[case(15_000, 15)]
    #[case(2_147_483_647_000, i32::MAX)]
    #[case(u64::MAX, i32::MAX)]
    fn the_wire_never_promises_less_than_the_holder_takes(#[case] millis: u64, #[case] seconds: i32) {
        assert_eq!(config(millis, 1, 1).wire_seconds(), seconds);
    }
}
