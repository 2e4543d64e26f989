use super::*;

fn pods() -> Table {
    Table::new("", "pods")
}

fn pod(name: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "text": text})
}

fn create(store: &Store, name: &str) -> u64 {
    let object = store
        .create(&pods(), &key("n", name), pod(name, "a"))
        .expect("a new name");
    resource_version(&object)
}

fn names(listed: &Listed) -> Vec<&str> {
    listed.items.iter().map(|(key, _)| key.as_str()).collect()
}

#[test]
fn a_write_on_an_outdated_object_is_refused() {
    let store = Store::new(10);
    let first = create(&store, "x");
    let second = store
        .update(&pods(), "n/x", first, pod("x", "b"))
        .expect("nobody else wrote");
    assert!(resource_version(&second) > first);
    assert_eq!(
        store.update(&pods(), "n/x", first, pod("x", "c")),
        Err(StoreError::Changed)
    );
    assert_eq!(store.delete(&pods(), "n/x", first), Err(StoreError::Changed));
    assert_eq!(
        store.create(&pods(), "n/x", pod("x", "a")),
        Err(StoreError::Exists)
    );
    assert_eq!(store.delete(&pods(), "n/y", first), Err(StoreError::Missing));
}

#[test]
fn a_write_that_changes_nothing_is_no_event() {
    let store = Store::new(10);
    let first = create(&store, "x");
    let same = store
        .update(&pods(), "n/x", first, pod("x", "a"))
        .expect("nobody else wrote");
    assert_eq!(resource_version(&same), first);
    assert_eq!(
        store.events(&pods(), first, 10).map(|(events, _)| events.len()),
        Ok(0)
    );
}

#[test]
fn a_namespace_holds_only_its_own_objects() {
    let store = Store::new(10);
    for place in ["a/x", "a-b/x", "a0/x", "ab/x"] {
        store.create(&pods(), place, pod("x", "")).expect("a new name");
    }
    assert_eq!(names(&store.list(&pods(), Some("a"))), ["a/x"]);
    assert_eq!(
        names(&store.list(&pods(), None)),
        ["a-b/x", "a/x", "a0/x", "ab/x"],
        "in the order of etcd's keys"
    );
}

#[test]
fn past_states_can_be_listed_while_history_reaches_back() {
    let store = Store::new(3);
    let a = create(&store, "a");
    let b = create(&store, "b");
    store
        .update(&pods(), "n/a", a, pod("a", "changed"))
        .expect("current");
    store.delete(&pods(), "n/b", b).expect("current");
    let then = store.list_at(&pods(), Some("n"), b).expect("in the history");
    assert_eq!(names(&then), ["n/a", "n/b"]);
    assert_eq!(then.items[0].1["text"], "a");
    let first = store
        .list_at(&pods(), None, a)
        .expect("the state before the oldest event is known");
    assert_eq!(names(&first), ["n/a"]);
    assert!(matches!(
        store.list_at(&pods(), None, a - 1),
        Err(HistoryError::TooOld { .. })
    ));
    assert!(matches!(
        store.list_at(&pods(), None, 1_000),
        Err(HistoryError::TooLarge { .. })
    ));
}

#[test]
fn events_come_in_order_and_in_portions() {
    let store = Store::new(10);
    let start = store.resource_version();
    let a = create(&store, "a");
    let b = create(&store, "b");
    store
        .create(&Table::new("", "nodes"), "n", json!({"metadata": {}}))
        .expect("a new name");
    let (events, complete) = store.events(&pods(), start, 1).expect("recent");
    assert_eq!((events.len(), complete), (1, a));
    let (events, complete) = store.events(&pods(), a, 10).expect("recent");
    assert_eq!((events[0].resource_version, events[0].change), (b, Change::Added));
    assert_eq!(
        complete,
        store.resource_version(),
        "writes to other tables do not hold a watcher back"
    );
}

#[test]
fn a_compacted_store_has_no_past() {
    let store = Store::new(10);
    let a = create(&store, "a");
    let b = create(&store, "b");
    store.compact();
    assert_eq!(
        store.events(&pods(), a, 10).err(),
        Some(HistoryError::TooOld { oldest: b })
    );
    assert!(store.events(&pods(), b, 10).is_ok());
}

#[test]
fn a_reader_that_has_read_everything_reads_on_after_a_compaction() {
    let store = Store::new(10);
    let last_pod = create(&store, "a");
    let node = store.create(&Table::new("", "nodes"), "n", json!({"metadata": {"name": "n"}}));
    let compacted = resource_version(&node.expect("a new name"));
    store.compact();
    assert!(store.events(&pods(), last_pod, 10).is_ok());
    assert_eq!(
        store.reaches_back(&pods(), last_pod),
        Err(HistoryError::TooOld { oldest: compacted }),
        "whoever begins there may have missed something"
    );
    assert_eq!(store.reaches_back(&pods(), compacted), Ok(()));
}

#[tokio::test]
async fn a_write_wakes_subscribers() {
    let store = Store::new(10);
    let mut changed = store.subscribe(&pods());
    let version = create(&store, "a");
    changed.changed().await.expect("the store lives");
    assert_eq!(*changed.borrow(), version);
}
