use super::pause;
use std::future::ready;
use std::time::Duration;

#[tokio::test]
async fn what_is_due_comes_beside_a_socket_that_always_has_a_datagram() {
    for datagrams in 0.. {
        assert!(datagrams < 1_000, "what is due is held up");
        tokio::select! {
            () = ready(()) => {}
            () = pause(Duration::ZERO) => return,
        }
    }
}
