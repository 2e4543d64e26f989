//! Schedules of CronJobs, as the library of Kubernetes' controller reads them.

use evenkeel_kube_values::duration;

/// A field: its lowest and highest value, and the names of values.
struct Field {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Field; 5] = [
    Field {
        least: 0,
        most: 59,
        names: &[],
    },
    Field {
        least: 0,
        most: 23,
        names: &[],
    },
    Field {
        least: 1,
        most: 31,
        names: &[],
    },
    Field {
        least: 1,
        most: 12,
        names: &MONTHS,
    },
    Field {
        least: 0,
        most: 6,
        names: &DAYS,
    },
];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Whether the text is a schedule, or what is wrong with it.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut text = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let (zone, rest) = schedule
            .split_once(' ')
            .ok_or("invalid syntax: no space after the time zone")?;
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if !matches!(zone, "" | "UTC" | "Local") && jiff::tz::TimeZone::get(zone).is_err() {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        ));
    }
    for (part, field) in parts.iter().zip(&FIELDS) {
        for range in part.split(',').filter(|range| !range.is_empty()) {
            check_range(range, field)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    let Some(every) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    duration::parse(every)
        .map(|_| ())
        .map_err(|problem| format!("failed to parse duration {text}: {problem}"))
}

fn check_range(text: &str, field: &Field) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (first, mut last) = match ends[..] {
        ["*" | "?", ..] => (field.least, field.most),
        [one] => {
            let one = value(one, field)?;
            (one, one)
        }
        [first, last] => (value(first, field)?, value(last, field)?),
        _ => {
            value(ends[0], field)?;
            return Err(format!("too many hyphens: {text}"));
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                last = field.most;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if first < field.least {
        return Err(format!(
            "beginning of range ({first}) below minimum ({}): {text}",
            field.least
        ));
    }
    if last > field.most {
        return Err(format!(
            "end of range ({last}) above maximum ({}): {text}",
            field.most
        ));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, field: &Field) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match field.names.iter().position(|name| *name == lower) {
        Some(place) => Ok(field.least + place as u64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let problem = match text.parse::<i64>() {
        Ok(number) => {
            return u64::try_from(number)
                .map_err(|_| format!("negative number ({number}) not allowed: {text}"));
        }
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => "value out of range",
        Err(error) if *error.kind() == std::num::IntErrorKind::NegOverflow => "value out of range",
        Err(_) => "invalid syntax",
    };
    let quoted = crate::gofmt::go_quote(text);
    Err(format!(
        "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: {problem}"
    ))
}

#[cfg(test)]
mod tests {
    use super::check;
    use rstest::rstest;

    #[rstest]
    #[case("* * * * *", None)]
    #[case("0 0 1 jan SUN", None)]
    #[case("*/5 0-23/2 ? * mon-fri", None)]
    #[case("1,2,,3 * * * *", None)]
    #[case("30/5 * * * *", None)]
    #[case("@daily", None)]
    #[case("@every 1h30m", None)]
    #[case("TZ=UTC 0 0 * * *", None)]
    #[case("", Some("expected exactly 5 fields, found 0: []"))]
    #[case("* * * *", Some("expected exactly 5 fields, found 4: [* * * *]"))]
    #[case("60 * * * *", Some("end of range (60) above maximum (59): 60"))]
    #[case("* * 0 * *", Some("beginning of range (0) below minimum (1): 0"))]
    #[case("5-1 * * * *", Some("beginning of range (5) beyond end of range (1): 5-1"))]
    #[case("1-2-3 * * * *", Some("too many hyphens: 1-2-3"))]
    #[case("1/2/3 * * * *", Some("too many slashes: 1/2/3"))]
    #[case("*/0 * * * *", Some("step of range should be a positive number: */0"))]
    #[case(
        "a * * * *",
        Some("failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax")
    )]
    #[case("*/-1 * * * *", Some("negative number (-1) not allowed: -1"))]
    #[case("@noon", Some("unrecognized descriptor: @noon"))]
    #[case(
        "TZ=Nowhere/Town * * * * *",
        Some("provided bad location Nowhere/Town: unknown time zone Nowhere/Town")
    )]
    fn schedules(#[case] text: &str, #[case] wrong: Option<&str>) {
        assert_eq!(check(text).err().as_deref(), wrong);
    }
}
