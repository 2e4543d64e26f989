//! The machine against a scripted API, in virtual time.

mod acquire;
mod check;
mod coordinated;
mod deleted;
mod drain;
mod duplicate;
mod heard;
mod loss;
mod properties;
mod recovery;
mod recovery_ends;
mod release;
mod renew;
mod rivals;
mod tampered;
mod watch;
mod world;

use super::*;
use crate::core::{FencingToken, OnLoss};
use rstest::rstest;
use std::time::Duration;
use world::{Fate, Outage, World, after, ms, since, taken_by};

/// Upstream's table tests: identity `baz`, 10 s, client-go's rules.
fn upstream_baz() -> Config {
    Config {
        compat: Compat::ClientGo,
        on_loss: OnLoss::Stop,
        release_on_cancel: false,
        ..baz()
    }
}

/// The same timing, our rules.
fn baz() -> Config {
    Config {
        lease_duration: ms(10_000),
        renew_deadline: ms(7_000),
        retry_period: ms(2_000),
        ..Config::new("baz")
    }
}

/// Upstream's recovery scenarios: identity `a`, 15/10/2 s, client-go's rules with recovery.
fn upstream_a() -> Config {
    Config {
        on_loss: OnLoss::Recover,
        ..Config::client_go("a")
    }
}

/// Our rules with upstream's timing.
fn ours(identity: &str) -> Config {
    Config {
        compat: Compat::Evenkeel,
        release_on_cancel: true,
        on_loss: OnLoss::Recover,
        ..Config::client_go(identity)
    }
}

fn token(uid: u32, transitions: i32) -> FencingToken {
    FencingToken {
        lease_uid: format!("uid-{uid}"),
        transitions,
    }
}
