//! The part of `evenkeel vnode` that is about this provider.

use crate::{Settings, Simulated};
use evenkeel_api::names;
use evenkeel_kube_values::duration;
use evenkeel_kube_values::names::is_subdomain;
use evenkeel_vnode::cli::{Prepared, VnodeError};
use evenkeel_vnode::provider::NodeTemplate;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Name of the provider, and of its fleet.
pub const NAME: &str = "simulated";

/// The simulated provider's own.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulatedArgs {
    /// simulated: how many nodes; they are called PREFIX-0, PREFIX-1 and so on.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub nodes: u32,
    /// simulated: what the names of nodes begin with.
    #[arg(long, value_name = "PREFIX", default_value = "vnode")]
    pub node_prefix: String,
    /// simulated: name of a node, instead of --nodes; repeatable.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["nodes", "node_prefix"])]
    pub node_name: Vec<String>,
    /// simulated: taint that new nodes get, KEY[=VALUE]:EFFECT; repeatable. Without it
    /// `virtual-kubelet.io/provider=simulated:NoSchedule`.
    #[arg(long, value_name = "TAINT", value_parser = taint)]
    pub taint: Vec<Taint>,
    /// simulated: new nodes get no taint.
    #[arg(long, conflicts_with = "taint")]
    pub no_taint: bool,
    /// simulated: how long a container takes to start.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub simulated_start_delay: Duration,
}

/// A taint as kubectl writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = text
        .rsplit_once(':')
        .ok_or("a taint is KEY=VALUE:EFFECT or KEY:EFFECT")?;
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(format!(
            "effect {effect:?}: must be NoSchedule, PreferNoSchedule or NoExecute"
        ));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    if key.is_empty() {
        return Err("a taint needs a key".to_owned());
    }
    Ok(Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    })
}

impl SimulatedArgs {
    /// Names of the nodes. `Err` names the flag and what is wrong with it.
    pub fn node_names(&self) -> Result<BTreeSet<String>, String> {
        let named: Vec<String> = if self.node_name.is_empty() {
            (0..self.nodes)
                .map(|index| format!("{}-{index}", self.node_prefix))
                .collect()
        } else {
            self.node_name.clone()
        };
        let flag = if self.node_name.is_empty() {
            "--node-prefix"
        } else {
            "--node-name"
        };
        for name in &named {
            if !is_subdomain(name) {
                return Err(format!(
                    "{flag}: {name:?} is no name for a node: use lower-case letters, digits, '-' and '.', 253 characters at most"
                ));
            }
        }
        let count = named.len();
        let names: BTreeSet<String> = named.into_iter().collect();
        if names.len() < count {
            return Err("--node-name: the same name is given twice".to_owned());
        }
        Ok(names)
    }

    /// Taints of new nodes.
    pub fn taints(&self) -> Vec<(String, String, String)> {
        if self.no_taint {
            return Vec::new();
        }
        if self.taint.is_empty() {
            let key = names::vnode::PROVIDER_TAINT.to_owned();
            return vec![(key, NAME.to_owned(), "NoSchedule".to_owned())];
        }
        let parts = |taint: &Taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone());
        self.taint.iter().map(parts).collect()
    }
}

/// The simulated provider, with the nodes that the flags name.
pub fn prepare(args: &SimulatedArgs) -> Result<Prepared, VnodeError> {
    let nodes = args.node_names().map_err(VnodeError::Config)?;
    let provider = Simulated::new(Settings {
        start_delay: args.simulated_start_delay,
        template: NodeTemplate {
            taints: args.taints(),
            ..NodeTemplate::default()
        },
        ..Settings::default()
    });
    Ok(Prepared {
        provider: Arc::new(provider),
        nodes: nodes.len(),
        files: 0,
        change: Box::new(|_| {}),
        metrics: Box::new(|_| {}),
        begin: Box::new(move |fleet| {
            for node in &nodes {
                fleet.add(node);
            }
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        simulated: SimulatedArgs,
    }

    fn parse(line: &str) -> Result<SimulatedArgs, clap::Error> {
        let words = std::iter::once("evenkeel").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.simulated)
    }

    #[test]
    fn nodes_are_numbered_from_zero() {
        let args = parse("--nodes 3 --node-prefix edge").unwrap();
        let names: Vec<_> = args.node_names().unwrap().into_iter().collect();
        assert_eq!(names, ["edge-0", "edge-1", "edge-2"]);
    }

    #[test]
    fn nodes_may_be_named_one_by_one() {
        let args = parse("--node-name b --node-name a.c").unwrap();
        let names: Vec<_> = args.node_names().unwrap().into_iter().collect();
        assert_eq!(names, ["a.c", "b"]);
    }

    #[rstest]
    #[case("--node-prefix Edge", "--node-prefix: \"Edge-0\"")]
    #[case("--node-name a --node-name a", "given twice")]
    #[case("--node-name -", "no name for a node")]
    #[case("--node-name a..b", "no name for a node")]
    fn a_bad_name_is_refused_with_its_flag(#[case] line: &str, #[case] words: &str) {
        let args = parse(line).unwrap();
        let error = args.node_names().unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[rstest]
    #[case("", &[("virtual-kubelet.io/provider", "simulated", "NoSchedule")])]
    #[case("--no-taint", &[])]
    #[case("--taint a=b:NoExecute --taint c:PreferNoSchedule", &[("a", "b", "NoExecute"), ("c", "", "PreferNoSchedule")])]
    fn taints(#[case] line: &str, #[case] expected: &[(&str, &str, &str)]) {
        let got = parse(line).unwrap().taints();
        let got: Vec<_> = got
            .iter()
            .map(|(key, value, effect)| (key.as_str(), value.as_str(), effect.as_str()))
            .collect();
        assert_eq!(got, expected);
    }

    #[rstest]
    #[case("--nodes 0", "1..=50000")]
    #[case("--taint a", "KEY=VALUE:EFFECT")]
    #[case("--taint a:Never", "NoExecute")]
    #[case("--taint =b:NoExecute", "needs a key")]
    fn a_wrong_flag_is_named_with_what_to_write(#[case] line: &str, #[case] words: &str) {
        let error = parse(line).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
