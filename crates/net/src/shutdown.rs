//! Graceful stop.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that SIGINT and SIGTERM cancel; a second signal ends the process at once with 128 + its number.
///
/// Must be called within a Tokio runtime, once per process.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let first = next(&mut interrupt, &mut terminate).await;
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

async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    }
}

fn name(kind: SignalKind) -> &'static str {
    if kind == SignalKind::interrupt() {
        "SIGINT"
    } else {
        "SIGTERM"
    }
}
