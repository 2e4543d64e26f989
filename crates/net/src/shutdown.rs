//! Graceful stop.

use std::io::{self, Read as _};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Set to `1` for processes that must end with whoever holds their standard input.
pub const PARENT_STDIN: &str = "EVENKEEL_PARENT_STDIN";
/// Time that a process gets to stop by itself once the one that started it is gone.
const GRACE: Duration = Duration::from_secs(5);

/// A token that SIGINT, SIGTERM and SIGHUP cancel; a second SIGINT or SIGTERM ends the process at once with
/// 128 + its number. A terminal that goes away sends SIGHUP several times, so that a second one asks for
/// nothing. A process that was started to ignore SIGHUP (`nohup`) goes on ignoring it.
///
/// Must be called within a Tokio runtime, once per process.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = if minds_sighup() {
        Some(signal(SignalKind::hangup())?)
    } else {
        None
    };
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            first = next(&mut interrupt, &mut terminate) => first,
            _ = hung_up => SignalKind::hangup(),
        };
        tracing::info!(
            signal = name(first),
            "stopping; a second signal ends the process at once"
        );
        stop.cancel();
        let second = next(&mut interrupt, &mut terminate).await;
        tracing::warn!(signal = name(second), "second signal, ending at once");
        #[expect(
            clippy::exit,
            reason = "the operator asked twice: nothing that hangs may hold the process"
        )]
        std::process::exit(128 + second.as_raw_value());
    });
    Ok(token)
}

/// Makes this process end with the one that started it, if it was started by a lab (see [`PARENT_STDIN`]): at
/// the end of standard input `shutdown` is cancelled, and 5 s later the process ends by force. Call once,
/// first thing in every long-running command, before anything else reads standard input.
pub fn stop_with_parent(shutdown: &CancellationToken) -> io::Result<()> {
    if std::env::var_os(PARENT_STDIN).is_none_or(|value| value != "1") {
        return Ok(());
    }
    let shutdown = shutdown.clone();
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            let mut rest = [0; 64];
            loop {
                match io::stdin().read(&mut rest) {
                    Ok(0) => break,
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                    Ok(_) | Err(_) => {}
                }
            }
            shutdown.cancel();
            std::thread::sleep(GRACE);
            std::process::abort();
        })?;
    Ok(())
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    }
}

/// Whether this process may take SIGHUP: not where it was started to ignore it (`nohup`). To be asked before
/// anything takes that signal.
pub fn minds_sighup() -> bool {
    ends_with_its_terminal(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Whether the process ends by SIGHUP, by its `/proc/PID/status`. Where that does not say it, the signal is
/// left as it is.
fn ends_with_its_terminal(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 0)
}

fn name(kind: SignalKind) -> &'static str {
    if kind == SignalKind::interrupt() {
        "SIGINT"
    } else if kind == SignalKind::hangup() {
        "SIGHUP"
    } else {
        "SIGTERM"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ignores_sighup_goes_on_ignoring_it() {
        assert!(ends_with_its_terminal(
            "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"
        ));
        assert!(!ends_with_its_terminal("SigIgn:\t0000000000001001\n"));
        assert!(
            !ends_with_its_terminal("SigBlk:\t0000000000000000\n"),
            "nobody can say it"
        );
        assert!(!ends_with_its_terminal(""));
    }
}
