//! The quality of service of a pod (`status.qosClass`).

use crate::Quantity;

/// The resources that count.
pub const COUNTED: [&str; 2] = ["cpu", "memory"];

/// What the class of a pod is made of: of one container, or of the pod as a whole, the quantities of
/// [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources<'a> {
    /// `requests`.
    pub requests: [Option<&'a str>; 2],
    /// `limits`.
    pub limits: [Option<&'a str>; 2],
}

/// `Guaranteed` if every container has equal requests and limits of CPU and memory, `BestEffort` if none has
/// any, else `Burstable`. Resources of the pod as a whole go before its containers'. A request that is not
/// there is the limit, as the API server fills it in; nothing and zero are the same.
pub fn class<'a>(pod: Resources<'a>, containers: impl IntoIterator<Item = Resources<'a>>) -> &'static str {
    let whole = Amounts::of(pod);
    let all: Vec<Amounts> = if whole.has_any() {
        vec![whole]
    } else {
        containers.into_iter().map(Amounts::of).collect()
    };
    if !all.iter().any(Amounts::has_any) {
        "BestEffort"
    } else if all.iter().all(Amounts::is_guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Requests and limits, each `None` where it is zero or cannot be read.
struct Amounts {
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
}

impl Amounts {
    fn of(resources: Resources<'_>) -> Self {
        let amount = |text: Option<&str>| {
            let quantity = Quantity::parse(text?).ok()?;
            (!quantity.is_zero()).then_some(quantity)
        };
        Self {
            requests: resources.requests.map(amount),
            limits: resources.limits.map(amount),
        }
    }

    fn has_any(&self) -> bool {
        self.requests.iter().chain(&self.limits).any(Option::is_some)
    }

    fn is_guaranteed(&self) -> bool {
        let mut pairs = self.requests.iter().zip(&self.limits);
        pairs.all(|(request, limit)| limit.is_some() && request.or(*limit) == *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn of(requests: [&'static str; 2], limits: [&'static str; 2]) -> Resources<'static> {
        let given = |text: &'static str| (!text.is_empty()).then_some(text);
        Resources {
            requests: requests.map(given),
            limits: limits.map(given),
        }
    }

    const NONE: [&str; 2] = ["", ""];

    #[rstest]
    #[case::nothing(&[of(NONE, NONE)], "BestEffort")]
    #[case::zero_is_nothing(&[of(["0", "0Mi"], NONE)], "BestEffort")]
    #[case::a_request(&[of(["1", ""], NONE), of(NONE, NONE)], "Burstable")]
    #[case::equal(&[of(["1", "1Gi"], ["1", "1Gi"])], "Guaranteed")]
    #[case::equal_in_other_words(&[of(["1000m", "1024Mi"], ["1", "1Gi"])], "Guaranteed")]
    #[case::limits_alone(&[of(NONE, ["1", "1Gi"])], "Guaranteed")]
    #[case::one_limit(&[of(NONE, ["1", ""])], "Burstable")]
    #[case::lower_request(&[of(["1", "1Gi"], ["2", "1Gi"])], "Burstable")]
    #[case::one_container_without(&[of(NONE, ["1", "1Gi"]), of(NONE, NONE)], "Burstable")]
    fn the_class_follows_from_all_containers(
        #[case] containers: &[Resources<'static>],
        #[case] expected: &str,
    ) {
        assert_eq!(class(Resources::default(), containers.iter().copied()), expected);
    }

    #[test]
    fn the_pods_own_resources_go_first() {
        let containers = [of(["1", ""], NONE)];
        assert_eq!(class(of(NONE, ["1", "1Gi"]), containers), "Guaranteed");
        assert_eq!(class(of(NONE, ["0", ""]), containers), "Burstable");
    }
}
