//! Log output, and errors in words.

#[cfg(feature = "process")]
mod output;
#[cfg(feature = "process")]
mod prompt;

#[cfg(feature = "process")]
pub use output::{Lines, LogArgs, LogFormat};

/// The message of an error followed by those of its causes, for a log line: kube's and hyper's own messages
/// say where a request failed, and why only in their sources.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        // Many errors repeat their source in their own message.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Said>>);

    #[test]
    fn every_cause_is_told_once() {
        let refused = Said("connection refused", None);
        let error = Said("cannot connect: connection refused", Some(Box::new(refused)));
        let error = Said("client error", Some(Box::new(error)));
        assert_eq!(causes(&error), "client error: cannot connect: connection refused");
    }
}
