//! Proxies that the environment names.

use super::ClientError;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::Kubeconfig;
use std::net::IpAddr;

/// Whether the cluster of a context, else of the current one, names a proxy of its own.
pub(super) fn is_named(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let wanted = context.or(kubeconfig.current_context.as_deref());
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|context| Some(&*context.name) == wanted);
    let cluster = context.and_then(|context| Some(&context.context.as_ref()?.cluster));
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|known| Some(&known.name) == cluster);
    let proxy = cluster.and_then(|known| known.cluster.as_ref()?.proxy_url.as_ref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// The configuration without the proxy that `$HTTPS_PROXY` names, where `$NO_PROXY` excepts the server from
/// it; the client takes the one and does not look at the other. No client speaks through a proxy.
pub(super) fn passed_by(mut config: Config, environment: &Matcher) -> Result<Config, ClientError> {
    let Some(proxy) = config.proxy_url.take() else {
        return Ok(config);
    };
    let server = &config.cluster_url;
    if is_this_machine(server) || environment.intercept(server).is_none() {
        return Ok(config);
    }
    // Not the whole URL, which may hold a password.
    Err(ClientError::Flags(format!(
        "$HTTPS_PROXY names a proxy on {}, and Evenkeel reaches API servers without one: add {} to $NO_PROXY",
        proxy.host().unwrap_or_default(),
        server.host().unwrap_or_default(),
    )))
}

/// Nobody means a proxy for that.
fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_environment_is_passed_by_where_it_says_so() {
        for (server, excepted, passes) in [
            ("https://api.example:6443", "other.example", false),
            ("https://api.example:6443", "api.example", true),
            ("https://api.example:6443", ".example", true),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
        ] {
            let proxy = "http://me:secret@proxy.example:3128";
            let environment = Matcher::builder().https(proxy).no(excepted).build();
            let server: Uri = server.parse().unwrap();
            let mut config = Config::new(server.clone());
            config.proxy_url = Some(proxy.parse().unwrap());
            match passed_by(config, &environment) {
                Ok(config) => assert!(passes && config.proxy_url.is_none(), "{server}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!passes && !said.contains("secret"), "{said}");
                    assert!(said.contains("a proxy on proxy.example,"), "{said}");
                    let asked = format!("add {} to $NO_PROXY", server.host().unwrap());
                    assert!(said.ends_with(&asked), "{said}");
                }
            }
        }
    }
}
