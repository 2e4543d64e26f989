//! kubectl in a terminal.

use super::kubectl::all;
use super::stand_in::StandIn;
use nix::pty::{Winsize, openpty};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt as _;

fn window(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_in_a_terminal_tells_its_size_and_its_keys() {
    let server = StandIn::start().await;
    for kubectl in all(
        "kubectl_in_a_terminal_tells_its_size_and_its_keys",
        &server,
        "http",
    ) {
        let pty = openpty(Some(&window(91, 17)), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut child = kubectl
            .command(&["exec", "-it", "pod", "--", "sizes"])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut screen, text) = (std::fs::File::from(pty.master.try_clone().unwrap()), seen.clone());
        // Ends with the terminal.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = std::io::Read::read(&mut screen, &mut buffer) {
                text.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let shows = async |wanted: &str| {
            evenkeel_testkit::until(&format!("{kubectl} shows {wanted:?}"), async || {
                seen.lock().unwrap().contains(wanted)
            })
            .await;
        };
        shows("size 91x17").await;
        resize(&pty.slave, &child, 120, 40);
        shows("size 120x40").await;
        let mut keys = tokio::fs::File::from_std(std::fs::File::from(pty.master.try_clone().unwrap()));
        keys.write_all(b"q").await.unwrap();
        keys.flush().await.unwrap();
        shows("bye").await;
        let ended = evenkeel_testkit::ends("it ends", child.wait()).await.unwrap();
        assert_eq!(ended.code(), Some(7), "{kubectl}: {}", seen.lock().unwrap());
        drop((keys, pty));
        reader.join().unwrap();
    }
}

/// Changes the terminal's size, and says so to kubectl, which does not have it as its controlling one.
fn resize(terminal: &OwnedFd, child: &tokio::process::Child, columns: u16, rows: u16) {
    let size = format!("cols {columns} rows {rows}");
    let path = format!("/proc/{}/fd/{}", std::process::id(), terminal.as_raw_fd());
    let status = std::process::Command::new("stty")
        .args(["-F", &path])
        .args(size.split(' '))
        .status();
    assert!(status.unwrap().success(), "stty");
    let child = nix::unistd::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGWINCH).unwrap();
}
