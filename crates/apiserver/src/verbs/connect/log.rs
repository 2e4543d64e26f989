//! What a client may say of a log.

use crate::request::query::{Query, encode};
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::time::rfc3339;

/// What a client may say of a log.
#[derive(Debug, Default)]
pub(super) struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
}

impl LogOptions {
    pub(super) fn parse(query: &Query) -> ApiResult<Self> {
        let since_time = query
            .get("sinceTime")
            .map(|text| {
                let time: jiff::Timestamp = text.parse().map_err(|error| {
                    ApiError::bad_request(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": {error}"
                    ))
                })?;
                Ok(rfc3339(time))
            })
            .transpose()?;
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since_seconds: query.number("sinceSeconds")?,
            since_time,
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
            stream: query.get("stream").map(str::to_owned),
        })
    }

    pub(super) fn validate(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let invalid = |field: &str, value: i64, why: &str| FieldError {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {value}: {why}"),
        };
        let forbidden = |field: &str, why: &str| FieldError {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {why}"),
        };
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.push(invalid("tailLines", lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match (self.since_seconds, &self.since_time) {
            (Some(_), Some(_)) => errors.push(forbidden(
                "",
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            )),
            (Some(seconds), None) if seconds < 1 => {
                errors.push(invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        // Its feature gate is off in 1.36.
        if self.stream.is_some() {
            errors.push(forbidden("stream", "may not be specified"));
        }
        errors
    }

    /// As kubelets read them, in the order of their names.
    pub(super) fn parameters(&self) -> String {
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        let flag = |value: bool| value.then(|| "true".to_owned());
        let all = [
            ("follow", flag(self.follow)),
            ("limitBytes", number(self.limit_bytes)),
            ("previous", flag(self.previous)),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time.clone()),
            ("tailLines", number(self.tail_lines)),
            ("timestamps", flag(self.timestamps)),
        ];
        let pairs: Vec<(&str, &str)> = all
            .iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
            .collect();
        encode(&pairs)
    }
}
