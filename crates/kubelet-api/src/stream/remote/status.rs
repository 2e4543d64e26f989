//! How a command ended, in the kubelet's words.

use super::Verb;
use serde_json::{Value, json};

/// How a command ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    /// Empty where all is well.
    message: String,
    json: Value,
}

impl Status {
    pub(super) fn success() -> Self {
        Self {
            message: String::new(),
            json: json!({"status": "Success"}),
        }
    }

    /// The command ended with a code other than 0.
    pub(super) fn exit(command: &[String], code: i32) -> Self {
        let message = format!(
            "command terminated with non-zero exit code: error executing command [{}], exit code {code}",
            command.join(" "),
        );
        let json = json!({
            "status": "Failure",
            "message": message,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        });
        Self { message, json }
    }

    /// The command could not be run. The kubelet has one reason for whatever it was.
    pub(super) fn fault(verb: Verb, fault: &str) -> Self {
        let what = match verb {
            Verb::Exec => "error executing command in container",
            Verb::Attach => "error attaching to container",
        };
        let message = format!("Internal error occurred: {what}: {fault}");
        let json = json!({
            "status": "Failure",
            "message": message,
            "reason": "InternalError",
            "code": 500,
        });
        Self { message, json }
    }

    /// What is written for a protocol: from the fourth on a Status, before that the message of a failure.
    pub(super) fn bytes(&self, protocol: &str) -> Vec<u8> {
        if protocol.starts_with("v4.") || protocol.starts_with("v5.") {
            self.json.to_string().into_bytes()
        } else {
            self.message.clone().into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(status: &Status, protocol: &str) -> Value {
        serde_json::from_slice(&status.bytes(protocol)).unwrap()
    }

    #[test]
    fn exit_codes_are_told_by_a_status_or_by_text() {
        let status = Status::exit(&["sh".to_owned(), "-c".to_owned()], 3);
        let text = "command terminated with non-zero exit code: error executing command [sh -c], exit code 3";
        for protocol in [
            "v4.channel.k8s.io",
            "v4.base64.channel.k8s.io",
            "v5.channel.k8s.io",
        ] {
            let wanted = json!({
                "status": "Failure",
                "message": text,
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
            });
            assert_eq!(json(&status, protocol), wanted);
        }
        for protocol in [
            "",
            "channel.k8s.io",
            "base64.channel.k8s.io",
            "v2.channel.k8s.io",
            "v3.channel.k8s.io",
        ] {
            assert_eq!(status.bytes(protocol), text.as_bytes());
        }
    }

    #[test]
    fn success_is_told_from_the_fourth_version_on() {
        assert_eq!(
            json(&Status::success(), "v4.channel.k8s.io"),
            json!({"status": "Success"})
        );
        assert_eq!(Status::success().bytes("v3.channel.k8s.io"), b"");
    }

    #[test]
    fn a_fault_is_an_internal_error() {
        let status = Status::fault(Verb::Attach, "no such container");
        let text = "Internal error occurred: error attaching to container: no such container";
        let wanted = json!({"status": "Failure", "message": text, "reason": "InternalError", "code": 500});
        assert_eq!(json(&status, "v5.channel.k8s.io"), wanted);
        assert_eq!(status.bytes("v2.channel.k8s.io"), text.as_bytes());
    }
}
