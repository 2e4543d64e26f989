use super::*;
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(20);

/// An address that answers no SYN: the kernel does not once the accept queue is full. The sockets keep it so.
pub(crate) async fn silent() -> (SocketAddr, (Socket, Vec<TcpStream>)) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut held = Vec::new();
    loop {
        let attempt = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address));
        match attempt.await {
            Ok(stream) => held.push(stream.unwrap()),
            Err(_) => return (address, (socket, held)),
        }
        assert!(held.len() < 100, "the queue never fills");
    }
}

#[tokio::test]
async fn a_connection_that_takes_its_time_is_waited_for() {
    let (address, (socket, held)) = silent().await;
    let attempt = tokio::spawn(async move { connect(address, None).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!attempt.is_finished());
    // With room in the queue again the next SYN, a second later, is answered.
    drop(held);
    socket.set_nonblocking(true).unwrap();
    let accepted = tokio::time::timeout(DEADLINE, async {
        while !attempt.is_finished() {
            let _ = socket.accept();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        attempt.await.unwrap()
    });
    let connection = accepted.await.unwrap().unwrap();
    assert!(matches!(connection.socket, Unregistered::Tokio(_)));
    assert_eq!(connection.ends().peer, address);
}

#[tokio::test]
async fn on_one_machine_the_reactor_is_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connection = connect(address, None).await.unwrap();
    assert!(matches!(connection.socket, Unregistered::Std(_)));
}

/// A socket bound to the very port it connects to connects with itself; the kernel does that by chance, we on
/// purpose.
#[test]
fn a_socket_can_connect_with_itself() {
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&address.into()).unwrap();
    let own = socket.local_addr().unwrap();
    socket.connect(&own).unwrap();
    assert_eq!(socket.peer_addr().unwrap().as_socket(), own.as_socket());
}

#[tokio::test]
async fn a_dead_port_never_answers_itself() {
    // As many attempts as there are ephemeral ports to choose from would meet it surely; these meet it often
    // enough to have found the defect, were it there, in one run of ten.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for _ in 0..3000 {
        assert!(connect(address, None).await.is_err());
    }
}

#[test]
fn a_text_is_an_address_or_a_name() {
    let address = |text: &str| Destination::Address(text.parse().unwrap());
    assert_eq!(Destination::new("10.0.0.1", 80), address("10.0.0.1:80"));
    assert_eq!(Destination::new("::1", 80), address("[::1]:80"));
    assert_eq!(Destination::new("a.b", 80), Destination::Name("a.b".into(), 80));
    assert_eq!(
        Destination::new("fe80::1%lo", 80),
        Destination::Name("fe80::1%lo".into(), 80)
    );
}

#[tokio::test]
async fn a_destination_that_keeps_silent_has_a_text() {
    assert_eq!(
        Destination::new("10.0.0.1", 80).timed_out(),
        "dial tcp 10.0.0.1:80: i/o timeout"
    );
    assert_eq!(
        Destination::new("a.b", 80).timed_out(),
        "dial tcp: lookup a.b: i/o timeout"
    );
}
