//! `evenkeel probe run`: all probes of a pod, as a kubelet would make them.

mod board;
mod containers;
mod display;
mod reporting;
mod runtime;
mod session;
mod setup;

use super::Validate;
use super::args::RunArgs;
use super::error::CliError;
use super::workload;
use crate::core::engine::Config;
use crate::core::{Compat, Now, Policy};
use crate::handler::Handlers;
use crate::manager::{Clock, Manager};
use crate::state::StateFile;
use containers::Containers;
use display::Display;
use evenkeel_net::admin::Admin;
use reporting::Reporting;
use session::{Ending, Session};
use setup::Setup;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Attempts at a time; one pod never has as many probes.
const CONCURRENCY: usize = 256;

/// Runs until a signal, the time that was given, or the end of everything there is to probe.
pub(super) async fn run(
    args: RunArgs,
    validate: Validate<'_>,
    shutdown: CancellationToken,
) -> Result<u8, CliError> {
    let documents = workload::read(&args.filename, &shutdown).await?;
    let mut setup = setup::setup(&args, documents, validate)?;
    if let Some(state) = &args.state {
        keepable(state)?;
    }
    let admin = match args.admin {
        Some(address) => {
            let listener = bind(address).await?;
            // Port 0 is any.
            let address = listener.local_addr().unwrap_or(address);
            setup.notes.push(format!(
                "http://{address} serves /healthz, /livez, /readyz and /metrics"
            ));
            Some((Admin::new("probe"), listener))
        }
        None => None,
    };
    let clock = Clock::system();
    let stop = CancellationToken::new();
    // Everything that the run starts ends with it, however it ends.
    let _stopped = stop.clone().drop_guard();
    let reporting = Reporting::start(&args, &setup).await?;
    let state = args.state.as_ref().map(StateFile::new);
    let former = state.as_ref().map(StateFile::load).unwrap_or_default();
    let (containers, exec) = Containers::find(&args, &setup, &former, clock.now()).await?;
    let mut builder = Manager::builder(config(args.strict))
        .clock(clock)
        .events(reporting.sink())
        .restored(former);
    if let Some(state) = state {
        builder = builder.keep(state);
    }
    let manager = builder.start(Handlers::new(exec), stop.clone());
    let ready = Arc::new(AtomicBool::new(false));
    if let Some((admin, listener)) = admin {
        admin.register(|registry| manager.register(registry));
        let seen = ready.clone();
        admin.ready("containers", move || {
            let ready = seen.load(std::sync::atomic::Ordering::Relaxed);
            ready
                .then_some(())
                .ok_or_else(|| "not all containers are ready".to_owned())
        });
        let serving = admin.serve(listener, stop.clone());
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "--admin: cannot serve any more");
            }
        });
    }
    let display = Display::new(args.output);
    let mut session = Session::new(session::Parts {
        pod: setup.pod.clone(),
        manager: manager.clone(),
        containers,
        reporting,
        display,
        clock,
        published: ready,
        until_ready: args.until_ready,
    });
    let ending = follow(&mut session, &setup, &args, &shutdown).await;
    stop.cancel();
    manager.stopped().await;
    session.finish().await;
    session.end(ending?)
}

/// Whether a file can be there: a mistyped name would be found out only by who needs what was to be kept.
fn keepable(state: &Path) -> Result<(), CliError> {
    let directory = match state.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if state.is_dir() || state.file_name().is_none() {
        return Err(CliError::usage(format!(
            "--state: {} is a directory; give a file in it",
            state.display()
        )));
    }
    if !directory.is_dir() {
        return Err(CliError::usage(format!(
            "--state: there is no directory {}; make it, or give a file elsewhere",
            directory.display()
        )));
    }
    Ok(())
}

fn config(strict: bool) -> Config {
    Config {
        policy: Policy {
            compat: if strict { Compat::Strict } else { Compat::Kubelet },
            started: Now::default(),
            change_status_on_restart: false,
        },
        concurrency: CONCURRENCY,
        exec_concurrency: CONCURRENCY,
        source: None,
        seed: rand::random(),
    }
}

async fn bind(address: std::net::SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        CliError::usage(format!(
            "--admin: cannot listen on {address}: {error}; give a free address of this machine"
        ))
    })
}

/// The loop: whatever happens next is reported and acted upon.
async fn follow(
    session: &mut Session,
    setup: &Setup,
    args: &RunArgs,
    shutdown: &CancellationToken,
) -> Result<Ending, CliError> {
    let mut notices = session.manager().notices();
    let over = args.duration.map(|duration| tokio::time::sleep(duration));
    tokio::pin!(over);
    let mut tick_every = tokio::time::interval(session.tick_every());
    tick_every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    session.begin(setup)?;
    loop {
        if args.until_ready && session.ready() {
            return Ok(Ending::Ready);
        }
        if session.failed() {
            return Ok(Ending::Failed);
        }
        if session.unread() {
            return Ok(Ending::Unread);
        }
        let due = session.due();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(Ending::Signal),
            () = async { if let Some(over) = over.as_mut().as_pin_mut() { over.await } },
                if args.duration.is_some() => return Ok(Ending::Time),
            notice = notices.recv() => match notice {
                Ok(notice) => session.take(&notice)?,
                Err(RecvError::Lagged(count)) => session.lost(count)?,
                Err(RecvError::Closed) => return Err(CliError::later("the prober ended by itself")),
            },
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => session.advance()?,
            _ = tick_every.tick() => session.tick()?,
            notes = session.changed() => session.found(notes)?,
        }
    }
}
