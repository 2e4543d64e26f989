//! The table on a terminal.

use super::world::{Server, World};
use std::process::{Command, Stdio};

#[test]
fn the_table_is_drawn_and_the_terminal_is_left_as_it_was() {
    let found = Command::new("script")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        return evenkeel_testkit::skipped(
            "the_table_is_drawn_and_the_terminal_is_left_as_it_was",
            "no script(1) to make a terminal",
        );
    }
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&format!(
        "readinessProbe: {{httpGet: {{port: {}}}, periodSeconds: 1}}",
        server.port
    ));
    let inner = format!(
        "stty cols 70 rows 20; stty -g; {} probe run -f {file} --for 2s; echo code $?; stty -g",
        env!("CARGO_BIN_EXE_evenkeel")
    );
    let output = Command::new("script")
        .args(["-qec", &inner, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [
        "CONTAINER  PROBE",
        "web        readiness",
        "pod default/web",
        "the pod is Ready",
        "code 0",
        // Longer than the terminal is wide, and not cut.
        "new container: readiness counts as Failure until it succeeds",
    ] {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
    // Drawn again over itself, on the one screen, with the cursor always in sight.
    assert!(text.contains("\x1b[J") && text.contains("F\x1b[J"), "{text:?}");
    assert!(
        !text.contains("\x1b[?1049") && !text.contains("\x1b[?25l"),
        "{text:?}"
    );
    let settings: Vec<&str> = text
        .lines()
        .filter(|line| line.matches(':').count() > 20)
        .collect();
    assert_eq!(settings.len(), 2, "{text}");
    assert_eq!(settings[0].trim(), settings[1].trim());
}
