//! Metrics of the process itself, read from `/proc/self` at each scrape. Names are Prometheus' conventional
//! ones.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fs;

/// Linux reports process times to user space in units of 1/100 s on every architecture we build for
/// (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// What could be read; a part that could not is left out of the scrape.
#[derive(Debug, Default, PartialEq)]
struct Sample {
    cpu_seconds: Option<f64>,
    start_time_seconds: Option<f64>,
    threads: Option<i64>,
    resident_bytes: Option<i64>,
    virtual_bytes: Option<i64>,
    open_fds: Option<i64>,
    max_fds: Option<i64>,
}

impl Sample {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut sample = Self::parse(
            &text("/proc/self/stat"),
            &text("/proc/self/status"),
            &text("/proc/self/limits"),
            &text("/proc/stat"),
        );
        // The directory being read has a descriptor of its own.
        sample.open_fds = fs::read_dir("/proc/self/fd")
            .ok()
            .map(|fds| fds.count() as i64 - 1);
        sample
    }

    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The command name, in parentheses, may itself contain spaces and parentheses; numbers follow the
        // last one. proc(5) counts fields from 1, the state after the name being the third.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
        };
        let boot = system
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        Self {
            cpu_seconds: field(14)
                .zip(field(15))
                .map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            start_time_seconds: boot
                .zip(field(22))
                .map(|(boot, start)| boot + start / TICKS_PER_SECOND),
            threads: field(20).map(|threads| threads as i64),
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            open_fds: None,
            max_fds: limits
                .lines()
                .find_map(|line| line.strip_prefix("Max open files"))
                .and_then(|line| line.split_whitespace().next()?.parse().ok()),
        }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let sample = Sample::read();
        if let Some(seconds) = sample.cpu_seconds {
            let counter = ConstCounter::new(seconds);
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "CPU time that the process has used, in user and in system mode",
                None,
                MetricType::Counter,
            )?)?;
        }
        if let Some(seconds) = sample.start_time_seconds {
            let gauge = ConstGauge::new(seconds);
            gauge.encode(encoder.encode_descriptor(
                "process_start_time_seconds",
                "When the process started, in seconds since 1970-01-01 UTC",
                None,
                MetricType::Gauge,
            )?)?;
        }
        for (name, help, value) in [
            ("process_threads", "Threads of the process", sample.threads),
            (
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM",
                sample.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Address space of the process",
                sample.virtual_bytes,
            ),
            (
                "process_open_fds",
                "Files, sockets and pipes that are open",
                sample.open_fds,
            ),
            (
                "process_max_fds",
                "How many files, sockets and pipes may be open at a time",
                sample.max_fds,
            ),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_parentheses_is_read() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 1000 1 1 1";
        let status = "Name:\ta) b (c\nVmSize:\t    2048 kB\nVmRSS:\t     512 kB\n";
        let limits =
            "Limit  Soft  Hard  Units\nMax open files            1024                 4096    files\n";
        let sample = Sample::parse(stat, status, limits, "cpu 1\nbtime 1700000000\n");
        let expected = Sample {
            cpu_seconds: Some(3.0),
            start_time_seconds: Some(1_700_000_010.0),
            threads: Some(9),
            resident_bytes: Some(512 * 1024),
            virtual_bytes: Some(2048 * 1024),
            open_fds: None,
            max_fds: Some(1024),
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let limits = "Max open files            unlimited            unlimited            files\n";
        assert_eq!(Sample::parse("", "", limits, ""), Sample::default());
    }

    #[test]
    fn this_process_has_plausible_numbers() {
        let sample = Sample::read();
        assert!(sample.resident_bytes.unwrap() > 100_000, "{sample:?}");
        assert!(sample.open_fds.unwrap() >= 3, "{sample:?}");
        assert!(sample.start_time_seconds.unwrap() > 1.0e9, "{sample:?}");
    }
}
