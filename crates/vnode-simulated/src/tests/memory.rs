use super::fixture::{pod, provider, start};
use crate::table::{Instance, Record};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn an_idle_pod_takes_three_hundred_bytes_at_the_most() {
    let (provider, _) = provider();
    for index in 0..200 {
        start(
            &provider,
            &pod(&index.to_string(), &[("readiness", "not-ready 5s, ready")]),
            "web",
        )
        .await
        .unwrap();
    }
    let table = provider.0.table();
    let mut shapes = std::collections::BTreeSet::new();
    for record in table.pods.values() {
        assert!(record.extra.is_none() && record.containers.capacity() == 1);
        let instance = &record.containers[0];
        assert!(instance.live.is_none() && instance.ended.is_none());
        shapes.insert(Arc::as_ptr(&instance.shape));
    }
    assert_eq!(shapes.len(), 1, "replicas share what they are");
    assert_eq!(provider.0.timers.len(), 0);
    // A box has a word of book-keeping; a hash table is half full at worst and has a byte of control per
    // place; a B-tree is two thirds full on the average.
    let key = size_of::<Arc<str>>();
    let bytes = size_of::<Record>() + 8 + size_of::<Instance>() + 8 + 2 * (key + 8 + 1) + key * 3 / 2;
    println!(
        "an idle simulated pod takes {bytes} bytes (record {}, container {})",
        size_of::<Record>(),
        size_of::<Instance>()
    );
    assert!(bytes <= 300, "{bytes}");
}
