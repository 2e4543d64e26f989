//! The machine that `evenkeel doctor --machine` runs on: kernel settings by which a dead peer becomes a hang
//! of a quarter of an hour, and the agent's ports.

use super::findings::{Finding, Severity};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;

/// A kernel setting, the most that is good, and why.
const SETTINGS: [(&str, u64, &str); 2] = [
    (
        "net.ipv4.tcp_retries2",
        8,
        "a connection to a machine that lost its power hangs for a quarter of an hour (at 8: 100 s)",
    ),
    (
        "net.ipv4.tcp_keepalive_time",
        600,
        "an idle connection to a machine that lost its power is kept for hours",
    ),
];

/// Looks at this machine. `root` is `/`, or what stands for it in tests.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for (setting, most, why) in SETTINGS {
        let file = root.join("proc/sys").join(setting.replace('.', "/"));
        let (problem, fix) = match std::fs::read_to_string(&file) {
            Err(error) => (
                format!("cannot read {}: {error}", file.display()),
                "run doctor --machine on a Linux node".to_owned(),
            ),
            Ok(text) => match text.trim().parse::<u64>() {
                Ok(value) if value <= most => continue,
                _ => (
                    format!("{setting} is {}: {why}", text.trim()),
                    format!("sysctl -w {setting}={most}, and the same line in /etc/sysctl.d"),
                ),
            },
        };
        found.push(Finding {
            severity: Severity::Warning,
            check: "kernel",
            problem,
            fix,
        });
    }
    found
}

/// Whether somebody else has the agent's ports. An agent that runs has them itself.
pub(super) fn ports() -> Vec<Finding> {
    let mut found = Vec::new();
    let any = Ipv4Addr::UNSPECIFIED;
    let tried = [
        ("UDP port 7959", UdpSocket::bind((any, 7959)).map(drop)),
        ("TCP port 9851", TcpListener::bind((any, 9851)).map(drop)),
    ];
    for (port, bound) in tried {
        if let Err(error) = bound {
            found.push(Finding {
                severity: Severity::Note,
                check: "ports",
                problem: format!("{port} cannot be had: {error}"),
                fix: "nothing if the agent runs here; else find who has it: ss -lnp".to_owned(),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(retries: &str, keepalive: &str) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/net/ipv4");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("tcp_retries2"), retries).unwrap();
        std::fs::write(directory.join("tcp_keepalive_time"), keepalive).unwrap();
        findings(root.path())
    }

    #[test]
    fn settings_by_which_a_dead_peer_hangs_are_named_with_their_fix() {
        assert_eq!(machine("8\n", "600\n"), []);
        let usual = machine("15\n", "7200\n");
        assert_eq!(usual.len(), 2);
        assert!(
            usual[0].problem.starts_with("net.ipv4.tcp_retries2 is 15: "),
            "{usual:?}"
        );
        assert!(
            usual[0].fix.starts_with("sysctl -w net.ipv4.tcp_retries2=8"),
            "{usual:?}"
        );
    }

    #[test]
    fn a_machine_that_is_no_linux_says_so() {
        let found = findings(Path::new("/no/such/root"));
        assert_eq!(found.len(), 2);
        assert!(found[0].problem.starts_with("cannot read"), "{found:?}");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7959));
        let found = ports();
        assert!(
            found
                .iter()
                .any(|finding| finding.problem.starts_with("UDP port 7959")),
            "{found:?} {taken:?}"
        );
    }
}
