use super::*;
use std::fs;

const GOOD: &str = r"
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: here
  cluster: {server: 'https://127.0.0.1:6443', insecure-skip-tls-verify: true}
contexts:
- name: one
  context: {cluster: here, user: me, namespace: ns1}
- name: two
  context: {cluster: here, user: me, namespace: ns2}
- name: broken
  context: {cluster: nowhere, user: me}
users:
- name: me
  user: {token: abc}
";

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn args(path: &Path, context: Option<&str>) -> ClientArgs {
    ClientArgs {
        kubeconfig: Some(path.to_owned()),
        context: context.map(str::to_owned),
        ..ClientArgs::default()
    }
}

async fn error_of(args: &ClientArgs, around: &Surroundings) -> String {
    let error = args.config_in(around).await.unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[tokio::test]
async fn the_flag_and_the_context_choose() {
    let (_directory, path) = file(GOOD);
    for (context, namespace) in [(None, "ns1"), (Some("two"), "ns2")] {
        let config = args(&path, context)
            .config_in(&Surroundings::default())
            .await
            .unwrap();
        assert_eq!(config.default_namespace, namespace);
    }
}

#[tokio::test]
async fn without_the_flag_the_variable_comes_before_the_pod_and_the_home() {
    let (_one, path) = file(GOOD);
    let (_two, home) = file(&GOOD.replace("ns1", "from-home"));
    let around = Surroundings {
        kubeconfig: Some(format!("/no/such/file:{}", path.display())),
        in_cluster: true,
        home: Some(home.clone()),
    };
    let none = ClientArgs::default();
    assert_eq!(none.config_in(&around).await.unwrap().default_namespace, "ns1");
    // This machine is no pod, so the account's files are missing, and that is what the message says.
    let around = Surroundings {
        kubeconfig: None,
        ..around
    };
    let error = error_of(&none, &around).await;
    assert!(
        error.starts_with(
            "no API server configured: give --kubeconfig FILE or --server URL (the in-cluster account"
        ),
        "{error}"
    );
    let around = Surroundings {
        in_cluster: false,
        ..around
    };
    assert_eq!(
        none.config_in(&around).await.unwrap().default_namespace,
        "from-home"
    );
}

#[tokio::test]
async fn errors_are_one_line_with_file_and_reason() {
    let (_directory, good) = file(GOOD);
    let none = Surroundings::default();
    for (text, reason) in [
        ("clusters: [", "failed to parse kubeconfig YAML"),
        ("kind: [1]\nclusters: 5\n", "failed to parse kubeconfig YAML"),
        ("", "it has no current-context: give --context NAME"),
        ("current-context: gone\n", "gone"),
        (
            &GOOD.replace("current-context: one", "current-context: broken"),
            "nowhere",
        ),
        (
            &GOOD.replace("https://127.0.0.1:6443", "http://bad host"),
            "cluster url",
        ),
    ] {
        let (_directory, path) = file(text);
        let error = error_of(&args(&path, None), &none).await;
        let expected = format!("cannot use kubeconfig {}: ", path.display());
        assert!(error.starts_with(&expected) && error.contains(reason), "{error}");
    }
    let error = error_of(&args(&good, Some("three")), &none).await;
    assert!(
        error.ends_with("it has no context `three`, only: one, two, broken"),
        "{error}"
    );

    let error = error_of(&args(Path::new("/no/such/file"), None), &none).await;
    assert_eq!(
        error,
        "cannot use kubeconfig /no/such/file: No such file or directory (os error 2)"
    );
    let around = Surroundings {
        kubeconfig: Some("/no/such/one:/no/such/two".to_owned()),
        ..Surroundings::default()
    };
    let error = error_of(&ClientArgs::default(), &around).await;
    assert!(
        error.starts_with("cannot use kubeconfig /no/such/one:/no/such/two: No such file"),
        "{error}"
    );

    let around = Surroundings {
        home: Some("/no/home/.kube/config".into()),
        ..Surroundings::default()
    };
    let error = error_of(&ClientArgs::default(), &around).await;
    assert!(error.contains("there is no /no/home/.kube/config"), "{error}");
    let error = error_of(&ClientArgs::default(), &none).await;
    assert!(error.contains("$KUBECONFIG and $HOME are not set"), "{error}");
}

#[tokio::test]
async fn a_proxy_is_refused_not_passed_by() {
    let (_directory, path) = file(&GOOD.replace(
        "insecure-skip",
        "proxy-url: 'http://127.0.0.1:3128', insecure-skip",
    ));
    let error = args(&path, None).client("test").await.err().unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        matches!(error, ClientError::Build(_)) && source.contains("127.0.0.1:3128"),
        "{source}"
    );
}
