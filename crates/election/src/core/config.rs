//! Timing and identity of a candidate, and what client-go would say of them.

use std::time::Duration;

/// Spread of the waits between attempts of a follower: uniform in `[period, period * (1 + JITTER_FACTOR))`.
pub(crate) const JITTER_FACTOR: f64 = 1.2;

/// What `leaseDurationSeconds`, an int32, can hold.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(i32::MAX as u64);

/// Which rules a candidate follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compat {
    /// Ours: wherever they differ from client-go's, on the cautious side, or faster at no risk. See the list at
    /// [`Machine`](super::Machine).
    #[default]
    Evenkeel,
    /// client-go's, to the letter, where the two differ.
    ClientGo,
}

/// What a candidate does once it has lost leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLoss {
    /// Ends. client-go's behaviour without recovery: a supervisor starts the process anew.
    Stop,
    /// Stays in its term with the gate closed and renews as soon as it can. Ends when somebody else has held the lock,
    /// when it is deleted, or when the recovery deadline has passed.
    Recover,
    /// As [`OnLoss::Recover`], but where that would end, the term ends and the candidate campaigns again.
    #[default]
    Campaign,
}

/// Timing and identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Identity of this candidate; must differ from every other's.
    pub identity: String,
    /// For how long others leave an unrenewed lock alone. Ours default to 5 s. On the wire it is rounded up to
    /// whole seconds, so that nobody takes the lock before its holder has given up ([`Compat::ClientGo`] cuts off).
    pub lease_duration: Duration,
    /// After this long without a successful renewal, counted from the start of the last successful request, a
    /// leader stops. Ours default to 3 s.
    pub renew_deadline: Duration,
    /// Time between attempts. Ours default to 1 s.
    pub retry_period: Duration,
    /// Give the lock back on a clean stop, once the guarded work has ended.
    pub release_on_cancel: bool,
    /// What follows a loss.
    pub on_loss: OnLoss,
    /// How long after a loss recovery is given up; `None`: never.
    pub recovery_deadline: Option<Duration>,
    /// Leave it to a coordinator (KEP-4355) who leads: never create the lock, never take it.
    pub coordinated: bool,
    /// Whose rules to follow.
    pub compat: Compat,
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Our timing (5, 3 and 1 s) and rules, released on a clean stop.
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

    /// client-go's rules with the timing of the Kubernetes components (15, 10 and 2 s), nothing released, ends at a loss.
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

    /// Refuses what client-go refuses, in its order and with its texts.
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

    /// For how long one request may take: two fit into the renew deadline, as with client-go's own lock client, whose
    /// least of 1 s holds under [`Compat::ClientGo`].
    pub fn request_timeout(&self) -> Duration {
        let half = self.renew_deadline / 2;
        match self.compat {
            Compat::Evenkeel => half,
            Compat::ClientGo => half.max(Duration::from_secs(1)),
        }
    }

    /// `leaseDurationSeconds` that we write.
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
