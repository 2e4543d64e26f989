//! Writes of the stock endpoint controllers to `endpoints`, the legacy kind. The rule is that of `slices`.

use super::slices::Kept;
use super::{Correction, PassReason, Request, View};
use serde_json::{Map, Value, json};

/// Addresses that were ready in the old object and whose node is protected move back from `notReadyAddresses`
/// to `addresses` of their subset. Terminating pods are in neither list, so they are never kept.
pub(super) fn keep_ready(request: &Request, view: &View) -> Result<Correction, PassReason> {
    let mut kept_here = Kept::new(view);
    let old = &request.old_object;
    let corrected: Vec<Value> = request.object["subsets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|subset| {
            let (kept, left): (Vec<&Value>, Vec<&Value>) = addresses(subset, "notReadyAddresses")
                .partition(|address| position(old, address).is_some() && kept_here.keeps(address));
            rebuilt(subset, &kept, &left, old)
        })
        .collect();
    kept_here.correction(request, "subsets", corrected, "addresses of endpoints")
}

/// The subset with `kept` among its ready addresses. They come in the order of the old object, so that a
/// write that changes nothing else becomes no change at all.
fn rebuilt(subset: &Value, kept: &[&Value], left: &[&Value], old: &Value) -> Value {
    let mut rebuilt: Map<String, Value> = subset.as_object().cloned().unwrap_or_default();
    if kept.is_empty() {
        return rebuilt.into();
    }
    let mut ready: Vec<&Value> = addresses(subset, "addresses")
        .chain(kept.iter().copied())
        .collect();
    ready.sort_by_key(|address| position(old, address).unwrap_or(usize::MAX));
    rebuilt.insert("addresses".to_owned(), json!(ready));
    if left.is_empty() {
        rebuilt.remove("notReadyAddresses");
    } else {
        rebuilt.insert("notReadyAddresses".to_owned(), json!(left));
    }
    rebuilt.into()
}

fn addresses<'a>(subset: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    subset[list].as_array().into_iter().flatten()
}

/// Where an address stands among the ready ones of `endpoints`.
fn position(endpoints: &Value, address: &Value) -> Option<usize> {
    endpoints["subsets"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|subset| addresses(subset, "addresses"))
        .position(|before| {
            !before["targetRef"]["uid"].is_null()
                && before["targetRef"]["uid"] == address["targetRef"]["uid"]
                && before["ip"] == address["ip"]
                && before["nodeName"] == address["nodeName"]
        })
}
