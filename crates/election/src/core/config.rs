//! Timing and identity of a candidate, and what client-go would say of them.

use std::time::Duration;

/// Spread of the waits between attempts of a follower: uniform in `[period, period * (1 + JITTER_FACTOR))`.
pub(crate) const JITTER_FACTOR: f64 = 1.2;

/// What `leaseDurationSeconds`, an int32, can hold.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(i32::MAX as u64);

/// Timing and identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this candidate; must differ from every other's.
    pub identity: String,
    /// For how long others leave an unrenewed Lease alone. Ours default to 5 s. On the wire it is rounded up to
    /// whole seconds, so that nobody takes the Lease before its holder has given up.
    pub lease_duration: Duration,
    /// After this long without a successful renewal, counted from the start of the last successful request, a
    /// leader stops. Ours default to 3 s.
    pub renew_deadline: Duration,
    /// Time between attempts. Ours default to 1 s.
    pub retry_period: Duration,
    /// Give the Lease back on a clean stop.
    pub release_on_cancel: bool,
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Our timing (5, 3 and 1 s), released on a clean stop.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(5),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_secs(1),
            release_on_cancel: true,
        }
    }

    /// Refuses what client-go refuses, in its order and with its texts; then a Lease without a name.
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
            (self.namespace.is_empty(), "resourceNamespace is required"),
            (self.name.is_empty(), "resourceName is required"),
        ];
        match refusals.into_iter().find(|(refused, _)| *refused) {
            Some((_, text)) => Err(ConfigError(text.to_owned())),
            None => Ok(()),
        }
    }

    /// For how long one request may take: two fit into the renew deadline, as with client-go's own lock client.
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// `leaseDurationSeconds` that we write.
    pub(crate) fn wire_seconds(&self) -> i32 {
        let seconds = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
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
            ..Config::new("ns", "name", "me")
        }
    }

    #[rstest]
    #[case::upstreams_valid(config(15_000, 2_000, 1_000), None)]
    #[case::stock(config(15_000, 10_000, 2_000), None)]
    #[case::ours(Config::new("ns", "name", "me"), None)]
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
    #[case::namespace(Config { namespace: String::new(), ..config(5, 3, 1) }, Some("resourceNamespace is required"))]
    #[case::name(Config { name: String::new(), ..config(5, 3, 1) }, Some("resourceName is required"))]
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
