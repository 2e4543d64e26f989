//! Makes a case smaller for as long as it shows the same difference.

use super::case::{Case, Payload};
use super::compare::Difference;
use super::generate::{places, remove};
use super::play::Pair;

/// Runs for one case: each is a few requests.
const TRIES: usize = 160;

/// The smallest case that was found with a difference of the same pattern.
pub(super) async fn shrink(pair: &Pair, mut case: Case, pattern: &str) -> anyhow::Result<Case> {
    let mut tries = 0;
    let mut at = 0;
    while tries < TRIES {
        let Some(smaller) = smaller(&case, at) else { break };
        tries += 1;
        if shows(pair, &smaller, pattern).await?.is_some() {
            case = smaller;
        } else {
            at += 1;
        }
    }
    Ok(case)
}

/// The difference of that pattern, if the case shows it.
pub(super) async fn shows(pair: &Pair, case: &Case, pattern: &str) -> anyhow::Result<Option<Difference>> {
    let found = pair.play(case).await?.found;
    Ok(found.and_then(|(_, list)| list.into_iter().find(|one| one.pattern == pattern)))
}

/// The case without the part of that number: steps first, the last of them first, then parameters, then
/// parts of bodies from the outside in.
fn smaller(case: &Case, number: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let mut number = number;
    if number < case.steps.len() {
        smaller.steps.remove(case.steps.len() - 1 - number);
        return Some(smaller);
    }
    number -= case.steps.len();
    for (at, step) in case.steps.iter().enumerate() {
        if number < step.query.len() {
            smaller.steps[at].query.remove(number);
            return Some(smaller);
        }
        number -= step.query.len();
        let Payload::Object(object) = &step.payload else {
            continue;
        };
        let mut places = places(object);
        // Without these it is another request.
        places.retain(|place| {
            !matches!(
                place.as_str(),
                "/apiVersion" | "/kind" | "/metadata" | "/metadata/name"
            )
        });
        if let Some(place) = places.get(number) {
            let mut object = object.clone();
            remove(&mut object, place);
            smaller.steps[at].payload = Payload::Object(object);
            return Some(smaller);
        }
        number -= places.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::case::Step;
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_that_can_go_is_offered_once() {
        let step = Step::new("POST", "/x")
            .ask("dryRun", "All")
            .with(json!({"kind": "X", "a": {"b": 1}}));
        let case = Case {
            seed: 1,
            number: 1,
            scenario: "create",
            kind: "X".to_owned(),
            steps: vec![step],
            leaves: None,
        };
        let offered: Vec<String> = (0..)
            .map_while(|number| smaller(&case, number))
            .map(|case| case.steps.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(
            offered,
            [
                "",
                r#"POST /x (application/json) {"a":{"b":1},"kind":"X"}"#,
                r#"POST /x?dryRun=All (application/json) {"kind":"X"}"#,
                r#"POST /x?dryRun=All (application/json) {"a":{},"kind":"X"}"#,
            ]
        );
    }
}
