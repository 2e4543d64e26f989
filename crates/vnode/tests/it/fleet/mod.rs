//! Whole fleets over the embedded API server, with a provider that does what it is told.

mod bench;
mod fake;
mod faults;
mod lifecycle;
mod refusals;
mod restart;
mod sharing;
mod strays;

use bench::*;
use evenkeel_testkit::objects::{is_ready, phase, restarts, waits, waits_for};
use evenkeel_testkit::{ApiServer, SOON, api_server, eventually, until};

use evenkeel_vnode::provider::PodId;
use fake::{Fake, World};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
