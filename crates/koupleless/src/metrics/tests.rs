use super::*;
use crate::core::profile::KOUPLELESS;
use crate::core::registry;
use crate::discovery::Discovery;
use futures::FutureExt as _;

/// Answers as its name says.
struct Fixed;

fn unsupported(base: &Base, command: Command) -> TunnelError {
    TunnelError {
        base: base.to_string(),
        command,
        kind: ErrorKind::Unsupported { over: "a test" },
    }
}

impl Tunnel for Fixed {
    fn health<'a>(&'a self, base: &'a Base) -> Answer<'a, Health> {
        async { Err(unsupported(base, Command::Health)) }.boxed()
    }

    fn modules<'a>(&'a self, _: &'a Base) -> Answer<'a, ModuleList> {
        async { Ok(ModuleList::default()) }.boxed()
    }

    fn install<'a>(&'a self, _: &'a Base, _: &'a Install) -> Answer<'a, Outcome> {
        let message = "it is there".to_owned();
        async { Ok(Outcome::Repeat { message }) }.boxed()
    }

    fn uninstall<'a>(&'a self, _: &'a Base, _: &'a ModuleId) -> Answer<'a, Outcome> {
        let message = "it is not there".to_owned();
        async { Ok(Outcome::NotFound { message }) }.boxed()
    }

    fn switch<'a>(&'a self, base: &'a Base, _: &'a ModuleId) -> Answer<'a, Outcome> {
        async { Err(unsupported(base, Command::SwitchBiz)) }.boxed()
    }

    fn batch<'a>(&'a self, base: &'a Base, _: &'a [Install]) -> Answer<'a, BatchOutcome> {
        async { Err(unsupported(base, Command::BatchInstallBiz)) }.boxed()
    }
}

#[tokio::test]
async fn operations_are_counted_by_their_ends() {
    let metrics = Metrics::default();
    let tunnel = metrics.counting(Arc::new(Fixed));
    let base = Base {
        identity: "a".to_owned(),
        environment: "dev".to_owned(),
        address: None,
    };
    let id = ModuleId::new("biz1", "1");
    assert!(tunnel.health(&base).await.is_err());
    for _ in 0..2 {
        assert!(tunnel.modules(&base).await.is_ok());
    }
    assert!(
        tunnel
            .install(&base, &Install::new(id.clone(), "u"))
            .await
            .is_ok()
    );
    assert!(tunnel.uninstall(&base, &id).await.is_ok());
    let mut registry = Registry::default();
    let discovery = Discovery::new(registry::Settings::default(), Arc::new(KOUPLELESS.clone()), "dev");
    metrics.register(&discovery, &mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "evenkeel_koupleless_base_calls_total{command=\"health\",result=\"Unanswered\"} 1",
        "evenkeel_koupleless_base_calls_total{command=\"queryAllBiz\",result=\"Ok\"} 2",
        "evenkeel_koupleless_base_calls_total{command=\"installBiz\",result=\"Failed\"} 1",
        "evenkeel_koupleless_base_calls_total{command=\"uninstallBiz\",result=\"Ok\"} 1",
        "evenkeel_koupleless_base_call_duration_seconds_count{command=\"queryAllBiz\"} 2",
        "evenkeel_koupleless_bases{life=\"Alive\"} 0",
        "evenkeel_koupleless_bases{life=\"Lost\"} 0",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\n{text}");
    }
}
