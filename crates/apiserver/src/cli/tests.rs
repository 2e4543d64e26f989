use super::*;
use clap::Parser;
use std::os::unix::fs::PermissionsExt;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: ApiServerArgs,
}

fn args(line: &[&str]) -> ApiServerArgs {
    let line = std::iter::once("apiserver")
        .chain(["--port", "0"])
        .chain(line.iter().copied());
    Command::try_parse_from(line).unwrap().args
}

/// Runs until it has printed its line, then stops; the line.
async fn run_once(args: ApiServerArgs) -> Result<String, CliError> {
    evenkeel_net::init_crypto();
    let shutdown = CancellationToken::new();
    // Stopped before it serves: it prints its line first all the same.
    shutdown.cancel();
    let mut out = Vec::new();
    run_to(args, shutdown, &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn it_says_where_it_listens_and_writes_what_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let certificates = dir.path().join("certs");
    let line = run_once(args(&[
        "--kubeconfig-out",
        kubeconfig.to_str().unwrap(),
        "--cert-dir",
        certificates.to_str().unwrap(),
    ]))
    .await
    .unwrap();
    assert!(
        line.starts_with("API server listens on https://127.0.0.1:"),
        "{line}"
    );
    assert!(
        line.ends_with("get namespaces\n") && line.lines().count() == 1,
        "{line}"
    );
    assert_eq!(entries(dir.path()), ["certs", "kubeconfig"]);
    assert_eq!(
        entries(&certificates),
        ["admin.crt", "admin.key", "ca.crt", "ca.key"]
    );
    for file in [
        &kubeconfig,
        &certificates.join("ca.key"),
        &certificates.join("admin.key"),
    ] {
        assert_eq!(
            std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            file.display()
        );
    }
    let url = line.split(' ').nth(4).unwrap().trim_end_matches(';');
    assert!(
        std::fs::read_to_string(&kubeconfig).unwrap().contains(url),
        "{url}"
    );
}

#[tokio::test]
async fn an_authority_that_is_there_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["--cert-dir", dir.path().to_str().unwrap()];
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    run_once(args(&line)).await.unwrap();
    let (first, admin) = (read("ca.crt"), read("admin.crt"));
    run_once(args(&line)).await.unwrap();
    assert_eq!(read("ca.crt"), first);
    assert_ne!(read("admin.crt"), admin);

    std::fs::remove_file(dir.path().join("ca.key")).unwrap();
    let error = run_once(args(&line)).await.unwrap_err();
    assert!(matches!(error, CliError::Authority { .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing/kubeconfig");
    for path in [path.as_path(), dir.path()] {
        let error = run_once(args(&["--kubeconfig-out", path.to_str().unwrap()]))
            .await
            .unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("--kubeconfig-out {}: ", path.display())),
            "{text}"
        );
    }
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_port_that_is_taken_is_one_clear_line_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut args = args(&["--kubeconfig-out", dir.path().join("k").to_str().unwrap()]);
    args.port = address.port();
    let error = run_once(args).await.unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string()),
        (
            2,
            format!("{address} is taken by another process; choose another --port, or --port 0 for any")
        )
    );
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn flags_become_options() {
    let options = args(&[
        "--default-unreachable-toleration-seconds=15",
        "--anonymous-auth=false",
        "--authorization-mode=always-allow",
    ])
    .options()
    .unwrap();
    assert_eq!(
        (
            options.default_unreachable_toleration_seconds,
            options.default_not_ready_toleration_seconds
        ),
        (15, 300)
    );
    assert!(!options.anonymous_auth && !options.rbac);
    assert!(Command::try_parse_from(["apiserver", "--default-not-ready-toleration-seconds=-1"]).is_err());
}

#[test]
fn a_wildcard_address_is_reached_at_the_loopback() {
    assert_eq!(url("0.0.0.0:1".parse().unwrap()), "https://127.0.0.1:1");
    assert_eq!(url("[::]:1".parse().unwrap()), "https://[::1]:1");
    assert_eq!(url("10.0.0.1:1".parse().unwrap()), "https://10.0.0.1:1");
}

#[test]
fn flags_say_how_kubelets_are_reached() {
    let plain = args(&[]).options().unwrap();
    assert_eq!(plain.kubelet, KubeletOptions::default());
    assert!(!plain.approve_kubelet_serving);
    let set = args(&[
        "--kubelet-preferred-address-types",
        "Hostname,InternalIP",
        "--kubelet-insecure-tls",
        "--approve-kubelet-serving",
        "--proxy-to-any-address",
    ]);
    let set = set.options().unwrap();
    assert_eq!(set.kubelet.address_types, ["Hostname", "InternalIP"]);
    assert_eq!(set.kubelet.trust, KubeletTrust::Anything);
    assert!(set.approve_kubelet_serving && set.kubelet.proxy_to_any_address);
}

#[test]
fn an_authority_of_kubelets_that_cannot_be_read_is_the_callers_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let flag = ["--kubelet-certificate-authority", file.to_str().unwrap()];
    for text in [None, Some("no certificate")] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = args(&flag).options().unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(
            error.to_string().starts_with("--kubelet-certificate-authority "),
            "{error}"
        );
    }
    let ca = Ca::new(
        "kubelets",
        evenkeel_net::pki::Validity {
            from: 0,
            until: 4_000_000_000,
        },
    )
    .unwrap();
    std::fs::write(&file, ca.certificate_pem()).unwrap();
    let trust = args(&flag).options().unwrap().kubelet.trust;
    assert_eq!(trust, KubeletTrust::Authority(ca.certificate_pem().to_owned()));
}

#[tokio::test]
async fn whoever_allows_everything_is_warned() {
    let log = evenkeel_testkit::log::Log::capture();
    let all = "--authorization-mode=always-allow";
    for (line, warning) in [
        (&[][..], ""),
        (
            &[all],
            "may do everything, without a credential; leave the flag out",
        ),
        (
            &[all, "--anonymous-auth=false"],
            "every user with a credential may do everything; ",
        ),
        (
            &[all, "--bind=0.0.0.0"],
            "and --bind 0.0.0.0 lets other machines reach it; ",
        ),
    ] {
        run_once(args(line)).await.unwrap();
        let warned = log.with(&["WARN", "--authorization-mode always-allow", warning]);
        assert_eq!(
            warned.len(),
            usize::from(!warning.is_empty()),
            "{line:?}: {log:?}"
        );
    }
}

#[test]
fn only_this_machine_reaches_it_unless_told_otherwise() {
    assert!(args(&[]).bind.is_loopback());
    assert!(!args(&["--bind=::"]).bind.is_loopback());
}
