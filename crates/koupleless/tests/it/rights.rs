//! Rights that `deploy/koupleless.yaml` grants.

use std::fs;
use std::path::Path;

/// Defect 21d: rights that features need, and that nobody can do without.
#[test]
fn the_published_rights_hold_what_peers_and_logs_need() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/koupleless.yaml");
    let manifest = fs::read_to_string(path).unwrap();
    for (resources, verb) in [
        ("[deployments]", "patch"),
        ("[pods]", "patch"),
        ("[pods/log]", "get"),
        ("[pods/exec, pods/attach]", "create"),
        ("[events]", "create"),
    ] {
        let rule = format!("resources: {resources}\n    verbs: [");
        let granted = manifest.match_indices(&rule).any(|(at, _)| {
            let verbs = &manifest[at + rule.len()..];
            let verbs = &verbs[..verbs.find(']').unwrap()];
            verbs.split(", ").any(|one| one == verb)
        });
        assert!(granted, "{verb} {resources}");
    }
}
