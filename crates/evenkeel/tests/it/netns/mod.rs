//! The host of the API server silently drops packets; every component works again within 30 s. And a lab
//! whose control plane is on another host.

mod cluster;
pub(crate) mod lab;
pub(crate) mod process;
mod shore;

use cluster::{Cluster, FIRST, GOAL, PORT};
use evenkeel_testkit::{netns, skipped};
use std::time::Duration;

/// For the record: how long each component took.
fn tell(took: Vec<(&'static str, Duration)>) {
    for (component, after) in took {
        eprintln!("{component} works again after {:.1} s", after.as_secs_f64());
    }
}

#[test]
fn connections_that_a_load_balancer_forgot_are_made_anew() {
    if let Some(why) = netns::missing() {
        return skipped("connections_that_a_load_balancer_forgot_are_made_anew", &why);
    }
    let cluster = Cluster::start(false);
    cluster.settle();
    let cut = cluster.cloud.drop_open(PORT);
    assert!(cut >= cluster::COMPONENTS.len(), "{cut} connections were open");
    tell(cluster.inside(async |cluster| cluster.all_work("connections are forgotten", GOAL).await));
    assert!(cluster.cloud.dropped() > 0, "the fault was no fault");
}

#[test]
fn an_address_that_went_silent_is_left_for_the_second_one() {
    if let Some(why) = netns::missing() {
        return skipped("an_address_that_went_silent_is_left_for_the_second_one", &why);
    }
    let cluster = Cluster::start(true);
    cluster.settle();
    cluster.cloud.drop_address(FIRST);
    tell(cluster.inside(async |cluster| cluster.all_work("the first address is silent", GOAL).await));
    assert!(cluster.cloud.dropped() > 0, "the fault was no fault");
}

#[test]
fn after_a_minute_without_the_api_server_everything_goes_on() {
    if let Some(why) = netns::missing() {
        return skipped("after_a_minute_without_the_api_server_everything_goes_on", &why);
    }
    let cluster = Cluster::start(false);
    cluster.settle();
    cluster.cloud.drop_all();
    // The fault itself, not a wait for something: an outage of a minute.
    std::thread::sleep(Duration::from_secs(60));
    assert!(cluster.cloud.dropped() > 0, "the fault was no fault");
    cluster.cloud.heal();
    tell(cluster.inside(async |cluster| cluster.all_work("the server is back", GOAL).await));
}
