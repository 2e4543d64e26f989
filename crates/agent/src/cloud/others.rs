//! Other cells of the agent's zone, for which it carries: their ZoneHealth and ZoneChallenge are watched as
//! its own cell's are.

use super::seen::{Asked, LastAsked, Seen};
use super::watched::{Step, Watched};
use super::{Cloud, follow};
use crate::zone::Event;
use evenkeel_api::crd::{ZoneChallenge, ZoneHealth};
use evenkeel_zone::roster::cell_object_name;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Watches the cells that are wanted, by their numbers in the zone, and no others, until shutdown.
pub(crate) async fn follow_others(
    cloud: Cloud,
    zone: String,
    mut wanted: watch::Receiver<BTreeSet<u32>>,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let mut watched: BTreeMap<u32, DropGuard> = BTreeMap::new();
    loop {
        let cells = wanted.borrow_and_update().clone();
        watched.retain(|cell, _| cells.contains(cell));
        for cell in cells {
            watched.entry(cell).or_insert_with(|| {
                let stop = shutdown.child_token();
                let name = cell_object_name(&zone, cell);
                let follow = follow(cloud.clone(), (cell, name), events.clone());
                tokio::spawn(stop.clone().run_until_cancelled_owned(follow));
                stop.drop_guard()
            });
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

async fn follow(cloud: Cloud, (cell, name): (u32, String), events: mpsc::Sender<Event>) {
    let mut zone = Watched::new::<ZoneHealth>(cloud.client(), "watching ZoneHealth of another cell", &name);
    let mut challenge =
        Watched::new::<ZoneChallenge>(cloud.client(), "watching ZoneChallenge of another cell", &name);
    // Who carries is waited for, as a reporter is.
    let longest = follow::REPORTER_WAITS;
    let (mut seen, mut last): (Option<Seen>, _) = (None, LastAsked::default());
    loop {
        let event = tokio::select! {
            step = zone.next(longest) => match step {
                Step::Put(object) => match Seen::read(&object) {
                    Ok(Some(new)) if seen.as_ref().is_none_or(|known| !new.is_older_than(known)) => {
                        seen = Some(new.clone());
                        Some(Event::OtherSeen(cell, Box::new(new)))
                    }
                    Ok(_) => None,
                    Err(error) => {
                        tracing::warn!(%error, "the roster of a cell that is carried is passed over");
                        None
                    }
                },
                step => not_seen(step),
            },
            step = challenge.next(longest) => match step {
                Step::Put(object) => {
                    let new = Asked::read(&object);
                    let is_news = last.take(new.clone(), Instant::now());
                    is_news.then(|| Event::OtherAsked(cell, Box::new(new)))
                }
                step => not_seen(step),
            },
        };
        if let Some(event) = event
            && events.send(event).await.is_err()
        {
            return;
        }
    }
}

/// Whether the link is up is told by the watches of the agent's own cell.
fn not_seen(step: Step) -> Option<Event> {
    if let Step::Failed(error) = step {
        tracing::debug!(%error, "a watch of a cell that is carried failed");
    }
    None
}
