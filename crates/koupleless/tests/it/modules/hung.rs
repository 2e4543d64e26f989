//! A base that hangs keeps what is its own waiting, and nobody else.

use super::world::{World, condition};
use evenkeel_testkit::arklet::Jar;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Pod;

/// More than there are operations at a time on a base, and places for calls of the fleet.
const MODULES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn all_modules_of_other_bases_are_ready_while_one_base_hangs() {
    let world = World::patient().await;
    let names: Vec<String> = (0..MODULES).map(|number| format!("m{number}")).collect();
    let urls: Vec<String> = names.iter().map(|name| world.jar(Jar::new(name, "1"))).collect();
    let mut bases = Vec::new();
    for identity in ["hung", "b", "c"] {
        bases.push(world.base(identity).await);
    }
    let (hung, _) = &bases[0];
    hung.hang();
    hung.forget();
    let pod = |base: usize, module: usize| format!("p{base}-{module}");
    let create = async |base: usize| {
        for (module, (name, url)) in names.iter().zip(&urls).enumerate() {
            let modules = [(name.as_str(), "1", url.as_str())];
            world.pod(&pod(base, module), &bases[base].1, &modules).await;
        }
    };
    create(0).await;
    until("its modules are asked about", async || {
        hung.requests("installBiz") + hung.requests("queryAllBiz") > 0
    })
    .await;
    for base in [1, 2] {
        create(base).await;
    }
    for base in [1, 2] {
        for module in 0..MODULES {
            world.ready::<Pod>(&pod(base, module)).await;
        }
        assert_eq!(bases[base].0.modules().len(), MODULES);
    }
    for module in 0..MODULES {
        let stuck = world.until(&pod(0, module), "is there", |_: &Pod| true).await;
        assert_ne!(condition(&stuck, "Ready"), "True");
    }
    // It recovers, and the connections on which it was silent break.
    hung.serve();
    hung.restart().await;
    for module in 0..MODULES {
        world.ready::<Pod>(&pod(0, module)).await;
    }
    assert_eq!(hung.modules().len(), MODULES);
}
