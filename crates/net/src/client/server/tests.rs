use super::*;
use crate::pki::{Ca, Validity};
use clap::Parser as _;
use std::fs;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    server: ServerArgs,
}

/// A directory with what a user may name.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let validity = Validity {
            from: 0,
            until: 4_000_000_000,
        };
        let ca = Ca::new("test-ca", validity).unwrap();
        let client = ca.issue_client("me", &[], validity).unwrap();
        for (name, content) in [
            ("ca.pem", ca.certificate_pem()),
            ("client.pem", &*client.certificate_pem),
            ("client.key", &*client.key_pem),
            ("token", "a-token"),
            ("token-line", "a-token\n"),
            ("empty", "\n"),
            ("junk", "no PEM at all"),
            (
                "broken",
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            ),
        ] {
            fs::write(directory.path().join(name), content).unwrap();
        }
        Self(directory)
    }

    /// `@name` in a line stands for a file of the directory.
    async fn config(&self, line: &str, other: Option<&str>) -> Result<Option<Config>, ClientError> {
        let words = line
            .split_whitespace()
            .map(|word| word.replace('@', &format!("{}/", self.0.path().display())));
        let args = Command::try_parse_from(std::iter::once("test".to_owned()).chain(words))
            .unwrap()
            .server;
        args.config(other).await
    }
}

#[tokio::test]
async fn the_flags_make_a_whole_configuration() {
    let files = Files::new();
    assert!(files.config("", Some("--kubeconfig")).await.unwrap().is_none());
    let line = "--server https://10.0.0.7:6443 --certificate-authority @ca.pem --client-certificate @client.pem \
                --client-key @client.key --tls-server-name api.example";
    let config = files.config(line, None).await.unwrap().unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://10.0.0.7:6443/");
    assert_eq!(config.tls_server_name.as_deref(), Some("api.example"));
    assert_eq!(config.root_cert.map(|roots| roots.len()), Some(1));
    assert!(
        config
            .auth_info
            .client_key
            .is_some_and(|key| key.ends_with("/client.key"))
    );

    let line = "--server https://api.example --certificate-authority @ca.pem --token-file @token";
    let config = files.config(line, None).await.unwrap().unwrap();
    assert!(
        config
            .auth_info
            .token_file
            .is_some_and(|file| file.ends_with("/token"))
    );
    assert!(
        files
            .config("--server http://127.0.0.1:8001", None)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn what_does_not_hold_together_is_one_line_that_names_the_flag() {
    let files = Files::new();
    let https = "--server https://10.0.0.7:6443";
    for (line, other, expected) in [
        ("--token-file @token", None, "--token-file needs --server URL"),
        (
            "--client-key @client.key",
            None,
            "--client-key needs --server URL",
        ),
        (
            https,
            Some("--context"),
            "--server and --context exclude each other",
        ),
        (
            "--server 10.0.0.7:6443",
            None,
            "--server 10.0.0.7:6443: give https://HOST:PORT",
        ),
        (
            "--server ftp://10.0.0.7",
            None,
            "--server ftp://10.0.0.7: give https://HOST:PORT",
        ),
        (
            &format!("{https} --client-certificate @client.pem"),
            None,
            "--client-certificate needs --client-key FILE",
        ),
        (
            &format!("{https} --client-key @client.key"),
            None,
            "--client-key needs --client-certificate FILE",
        ),
        (
            &format!("{https} --client-certificate @client.pem --client-key @client.key --token-file @token"),
            None,
            "--client-certificate and --token-file exclude each other",
        ),
        (
            "--server http://10.0.0.7 --token-file @token",
            None,
            "--token-file needs TLS: give --server https://",
        ),
        (&format!("{https} --token-file @none"), None, "none: No such file"),
        (
            &format!("{https} --token-file @empty"),
            None,
            "empty: the file is empty",
        ),
        (
            &format!("{https} --token-file @token-line"),
            None,
            "token-line: there is a line break",
        ),
        (
            &format!("{https} --certificate-authority @junk"),
            None,
            "junk: the file is not PEM",
        ),
        (
            &format!("{https} --certificate-authority @broken"),
            None,
            "cannot use --server https://10.0.0.7:6443: ",
        ),
        (
            &format!("{https} --client-certificate @client.pem --client-key @client.pem"),
            None,
            "cannot use --server https://10.0.0.7:6443: ",
        ),
    ] {
        let error = files.config(line, other).await.unwrap_err();
        assert!(matches!(error, ClientError::Flags(_)), "{line}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains('\n'), "{line}: {text}");
    }
}

#[tokio::test]
async fn a_password_in_the_url_is_refused_and_not_repeated() {
    let args = ServerArgs {
        server: Some("https://me:secret@10.0.0.7".to_owned()),
        ..ServerArgs::default()
    };
    let text = args.config(None).await.unwrap_err().to_string();
    assert!(
        text.contains("--token-file") && !text.contains("secret"),
        "{text}"
    );
}
