//! The settings of an installation, as flags.

use crate::error::InstallError;
use crate::objects::{Options, agent_image};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use evenkeel_api::names;
use evenkeel_api::policy::{ModePolicy, Profile};
use evenkeel_kube_values::names::{is_label_key, is_label_value};

/// How an installation is to be.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingArgs {
    /// Namespace of everything that has one [default: evenkeel-system].
    #[arg(long, value_name = "NAME", env = "EVENKEEL_NAMESPACE", value_parser = installable)]
    pub namespace: Option<String>,
    /// Image with the controller [default: localhost/evenkeel, with the version of this command].
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub image: Option<String>,
    /// Image with the agent [default: beside the other, as NAME-agent].
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub agent_image: Option<String>,
    /// Whether it acts [default: observe].
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModePolicy>,
    /// Defaults where no FailoverPolicy speaks [default: builtin].
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<Profile>,
    /// Zone of nodes without a label topology.kubernetes.io/zone. Without it they are in no zone, and stock
    /// Kubernetes alone cares for them; with the profile `edge` it is `default`. An empty name takes one
    /// back.
    #[arg(long, value_name = "NAME", value_parser = label_value)]
    pub zone_default: Option<String>,
    /// Label that nodes need to run the controller; once for each, `none` takes them back. Without it nodes
    /// of the control plane are preferred, then nodes without a zone.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub controller_nodes: Vec<Option<(String, String)>>,
}

impl SettingArgs {
    /// These settings, and `before` where there is no flag.
    pub(crate) fn over(&self, before: Options) -> Options {
        let image = self.image.clone().unwrap_or(before.image);
        let beside = self.image.is_some().then(|| agent_image(&image));
        Options {
            namespace: self.namespace.clone().unwrap_or(before.namespace),
            agent_image: self.agent_image.clone().or(beside).unwrap_or(before.agent_image),
            image,
            mode: self.mode.map_or(before.mode, |mode| mode.name().to_owned()),
            profile: self
                .profile
                .map_or(before.profile, |profile| profile.name().to_owned()),
            zone_default: match &self.zone_default {
                Some(zone) => Some(zone.clone()).filter(|zone| !zone.is_empty()),
                None => before.zone_default,
            },
            controller_nodes: match self.controller_nodes.as_slice() {
                [] => before.controller_nodes,
                named => named.iter().flatten().cloned().collect(),
            },
        }
    }
}

impl SettingArgs {
    /// Those of these flags that are not given. The agent's image may stand beside the other.
    pub(crate) fn lacking(&self, flags: &[&'static str]) -> Vec<&'static str> {
        let is_given = |flag: &str| match flag {
            "--mode" => self.mode.is_some(),
            "--profile" => self.profile.is_some(),
            "--image" => self.image.is_some(),
            "--agent-image" => self.agent_image.is_some() || self.image.is_some(),
            "--controller-nodes" => !self.controller_nodes.is_empty(),
            _ => self.zone_default.is_some(),
        };
        flags.iter().copied().filter(|flag| !is_given(flag)).collect()
    }

    /// Whether the flags go together.
    pub(crate) fn check(&self) -> Result<(), InstallError> {
        match (&self.image, &self.agent_image) {
            (Some(image), None) if image.contains('@') => Err(InstallError::Refused(format!(
                "--image {image}: a digest names one image alone: give --agent-image as well"
            ))),
            _ => Ok(()),
        }
    }
}

/// A namespace that an installation may have for itself, and take away at its end.
pub(crate) fn installable(text: &str) -> Result<String, &'static str> {
    if text == "default" || text.starts_with("kube-") {
        return Err("this namespace is Kubernetes' own: choose another one");
    }
    names::parse_namespace(text)
}

/// `KEY=VALUE`, or `none`.
fn label(text: &str) -> Result<Option<(String, String)>, &'static str> {
    match text.split_once('=') {
        None if text == "none" => Ok(None),
        Some((key, value)) if is_label_key(key) => Ok(Some((key.to_owned(), label_value(value)?))),
        _ => Err("give KEY=VALUE, as in tier=cloud, or none"),
    }
}

/// What a label of Kubernetes may hold.
fn label_value(text: &str) -> Result<String, &'static str> {
    if is_label_value(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "a label has up to 63 letters, digits, hyphens, underscores and dots, the first and last a letter or digit",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: SettingArgs,
    }

    fn over(line: &str, before: Options) -> Options {
        let words = std::iter::once("evenkeel").chain(line.split_whitespace());
        Cli::try_parse_from(words)
            .map(|cli| cli.settings.over(before))
            .unwrap()
    }

    #[test]
    fn without_flags_everything_stays() {
        let before = Options {
            namespace: "pier".to_owned(),
            controller_nodes: vec![("a".to_owned(), "b".to_owned())],
            mode: "act".to_owned(),
            agent_image: "other:1".to_owned(),
            ..Options::default()
        };
        assert_eq!(over("", before.clone()), before);
    }

    #[test]
    fn a_flag_changes_what_it_names() {
        let line =
            "--image mirror/evenkeel:2 --mode act --profile edge --zone-default shore --controller-nodes a=b";
        let changed = over(line, Options::default());
        let expected = Options {
            namespace: names::NAMESPACE.to_owned(),
            image: "mirror/evenkeel:2".to_owned(),
            agent_image: "mirror/evenkeel-agent:2".to_owned(),
            mode: "act".to_owned(),
            profile: "edge".to_owned(),
            zone_default: Some("shore".to_owned()),
            controller_nodes: vec![("a".to_owned(), "b".to_owned())],
        };
        assert_eq!(changed, expected);
        assert_eq!(
            over("--image a:1 --agent-image b:2", Options::default()).agent_image,
            "b:2"
        );
    }

    #[test]
    fn what_was_set_can_be_taken_back() {
        let set = over("--zone-default shore --controller-nodes a=b", Options::default());
        assert_eq!(
            over("--zone-default= --controller-nodes none", set),
            Options::default()
        );
    }

    #[test]
    fn a_digest_names_one_image_alone() {
        let check = |line: &str| {
            let words = std::iter::once("evenkeel").chain(line.split_whitespace());
            Cli::try_parse_from(words).unwrap().settings.check()
        };
        let refused = check("--image a@sha256:0").unwrap_err().to_string();
        assert!(refused.contains("give --agent-image"), "{refused}");
        assert!(check("--image a@sha256:0 --agent-image b@sha256:1").is_ok());
        assert!(check("--image a:1").is_ok());
    }

    #[rstest]
    #[case("--controller-nodes cloud", "KEY=VALUE")]
    #[case("--controller-nodes a/b/c=d", "KEY=VALUE")]
    #[case("--controller-nodes a=b!", "a label has up to 63")]
    #[case("--zone-default a/b", "a label has up to 63")]
    #[case("--namespace kube-system", "Kubernetes' own")]
    #[case("--namespace default", "Kubernetes' own")]
    #[case("--namespace Pier", "lower case")]
    #[case("--image=", "a value is required for '--image <IMAGE>'")]
    #[case("--agent-image=", "a value is required for '--agent-image <IMAGE>'")]
    fn what_no_cluster_takes_is_refused_at_once(#[case] line: &str, #[case] words: &str) {
        let line = std::iter::once("evenkeel").chain(line.split_whitespace());
        let refused = Cli::try_parse_from(line).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}
