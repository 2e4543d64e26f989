//! The keys of real agents change, with the real controller, while nobody is doubted (hazard 53).

use super::{Ip, Shore, name};
use crate::support::evenkeel;
use evenkeel_agent::key::KeyFile;
use evenkeel_api::crd::AgentStatus;
use evenkeel_testkit::{eventually, netns, skipped};
use kube::Api;
use std::time::Duration;

/// Two waits of a minute, and what rosters take.
const CHANGE: Duration = Duration::from_secs(240);
const DEATH: Duration = Duration::from_secs(20);

#[test]
#[ignore = "takes minutes; .ci/real plays it"]
fn keys_change_and_nobody_is_doubted() {
    const TEST: &str = "keys_change_and_nobody_is_doubted";
    if let Some(why) = netns::missing() {
        return skipped(TEST, &why);
    }
    let mut shore = Shore::start(3, Ip::V4);
    let holder = shore.inside(async |shore| {
        let client = shore.client().await;
        shore.holder(&client, |_| true).await
    });
    // Of three members nobody can be found dead without both others: one of them keeps its key.
    let changing = [holder, holder % 3 + 1];
    let next: Vec<(String, KeyFile, String)> = changing
        .into_iter()
        .map(|number| {
            let path = shore.home.path().join(format!("{}.key", name(number)));
            let made = evenkeel()
                .args(["agent", "rotate-key", "--key"])
                .arg(&path)
                .output();
            assert!(made.expect("it runs").status.success());
            let file = KeyFile::new(&path);
            let next = file.load_next().expect("it was made").expect("it was made");
            (name(number), file, next.public().to_base64())
        })
        .collect();
    std::thread::scope(|scope| {
        // Longer than the change takes where nothing goes wrong.
        scope.spawn(|| shore.quiet_for(Duration::from_secs(170)));
        shore.inside(async |shore| {
            let agents: Api<AgentStatus> = Api::all(shore.client().await);
            for (node, file, next) in &next {
                eventually(
                    "the key has changed, and the former one is gone",
                    CHANGE,
                    || async {
                        let said = agents.get(node).await.ok()?.spec;
                        let is_said = said.public_key == *next && said.next_public_key.is_none();
                        let present = file.load_or_make().expect("there is a key");
                        let is_gone = file.load_former(&present).expect("a directory").is_none();
                        (is_said && is_gone && present.public().to_base64() == *next).then_some(())
                    },
                )
                .await;
            }
        });
    });
    let victim = 6 - changing[0] - changing[1];
    shore.power_off(victim);
    shore.until_state(victim, "Dead", DEATH);
}
