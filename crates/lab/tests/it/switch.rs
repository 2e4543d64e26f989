//! The switch with real sockets.

use evenkeel_lab::switch::{
    Plan, Switch, SwitchError,
    links::{End, Fault, Way},
};
use evenkeel_testkit::eventually;
use rstest::rstest;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

const SOON: Duration = Duration::from_secs(10);
/// How long silence is listened to: several times what a packet takes on loopback.
const QUIET: Duration = Duration::from_millis(300);

struct Net {
    switch: Switch,
    plan: Plan,
    _stop: DropGuard,
}

/// A subnet that no other test of this machine uses at the moment.
pub(crate) async fn subnet(nodes: u8) -> (Plan, TcpListener) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let subnet = 100 + (std::process::id() as u8).wrapping_mul(13).wrapping_add(offset) % 150;
        let claim = TcpListener::bind((Ipv4Addr::new(127, 79, subnet, 1), 1024)).await;
        if let Ok(claim) = claim {
            return (Plan::new(nodes, subnet), claim);
        }
    }
}

#[rstest]
#[case::of_the_first_machine("10.244.1.2", "127.129.7.2")]
#[case::of_the_last_one("10.244.3.9", "127.131.7.9")]
#[case::of_no_machine("10.244.4.2", "10.244.4.2")]
#[case::with_the_network_of_its_host("127.78.7.1", "127.78.7.1")]
#[case::of_another_network("fd00::7", "fd00::7")]
fn pods_that_are_processes_are_on_loopback_addresses(#[case] published: &str, #[case] real: &str) {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(Plan::new(3, 7).pod(ip(published)), ip(real));
}

/// A switch whose API server sends back what it gets.
async fn net(nodes: u8) -> Net {
    let (plan, claim) = subnet(nodes).await;
    net_of(plan, claim).await
}

async fn net_of(plan: Plan, claim: TcpListener) -> Net {
    let api = echo(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let stop = CancellationToken::new();
    let switch = Switch::start(plan, api, 7, stop.clone()).await.unwrap();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            drop(claim);
        }
    });
    Net {
        switch,
        plan,
        _stop: stop.drop_guard(),
    }
}

fn echo(listener: TcpListener) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

impl Net {
    async fn agent(&self, node: u8) -> UdpSocket {
        UdpSocket::bind((self.plan.inner(node), self.plan.agent_port))
            .await
            .unwrap()
    }

    async fn kubelet(&self, node: u8) {
        echo(TcpListener::bind(self.plan.kubelet_inside(node)).await.unwrap());
    }

    fn outer(&self, node: u8) -> SocketAddr {
        (self.plan.outer(node), self.plan.agent_port).into()
    }

    /// A connection from one node to another's kubelet.
    async fn call(&self, from: u8, to: u8) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.plan.inner(from), 0).into())?;
        socket.connect(self.plan.kubelet_of_peers(to)).await
    }
}

/// A connection from another machine to a node's kubelet; `None` if nobody answers.
async fn call_from_outside(address: SocketAddr) -> Option<TcpStream> {
    let connecting = timeout(QUIET, TcpStream::connect(address)).await.ok()?;
    Some(connecting.unwrap())
}

async fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    let (length, from) = timeout(QUIET, socket.recv_from(&mut buffer)).await.ok()?.unwrap();
    Some((buffer[..length].to_vec(), from))
}

/// Sends a word and waits for its echo.
async fn answers(stream: &mut TcpStream, word: &[u8]) -> bool {
    let mut back = vec![0; word.len()];
    stream.write_all(word).await.unwrap();
    matches!(timeout(QUIET, stream.read_exact(&mut back)).await, Ok(Ok(_))) && back == word
}

#[tokio::test]
async fn a_datagram_arrives_from_the_senders_published_address() {
    let net = net(2).await;
    let (one, two) = (net.agent(1).await, net.agent(2).await);
    one.send_to(b"hello", net.outer(2)).await.unwrap();
    assert_eq!(receive(&two).await, Some((b"hello".to_vec(), net.outer(1))));
    two.send_to(b"back", net.outer(1)).await.unwrap();
    assert_eq!(receive(&one).await, Some((b"back".to_vec(), net.outer(2))));
}

#[tokio::test]
async fn a_cut_link_swallows_datagrams_both_ways_until_it_is_repaired() {
    let net = net(3).await;
    let (one, two, three) = (net.agent(1).await, net.agent(2).await, net.agent(3).await);
    net.switch
        .change(|links| links.set(1, End::Node(2), Way::Both, Fault::CUT));
    one.send_to(b"lost", net.outer(2)).await.unwrap();
    two.send_to(b"lost", net.outer(1)).await.unwrap();
    one.send_to(b"other link", net.outer(3)).await.unwrap();
    assert_eq!(receive(&three).await.unwrap().0, b"other link");
    assert_eq!(receive(&two).await, None);
    assert_eq!(receive(&one).await, None);
    net.switch.change(|links| links.repair(Some(2)));
    one.send_to(b"again", net.outer(2)).await.unwrap();
    assert_eq!(receive(&two).await.unwrap().0, b"again");
}

#[tokio::test]
async fn a_one_way_cut_swallows_one_direction_only() {
    let net = net(2).await;
    let (one, two) = (net.agent(1).await, net.agent(2).await);
    net.switch
        .change(|links| links.set(1, End::Node(2), Way::From, Fault::CUT));
    one.send_to(b"lost", net.outer(2)).await.unwrap();
    two.send_to(b"passes", net.outer(1)).await.unwrap();
    assert_eq!(receive(&one).await.unwrap().0, b"passes");
    assert_eq!(receive(&two).await, None);
}

#[tokio::test]
async fn a_slow_link_delays_and_a_lossy_one_loses() {
    let net = net(2).await;
    let (one, two) = (net.agent(1).await, net.agent(2).await);
    let delay = Duration::from_millis(150);
    let slow = Fault {
        delay,
        ..Fault::default()
    };
    net.switch
        .change(|links| links.set(1, End::Node(2), Way::From, slow));
    let sent = std::time::Instant::now();
    one.send_to(b"late", net.outer(2)).await.unwrap();
    assert_eq!(timeout(SOON, receive(&two)).await.unwrap().unwrap().0, b"late");
    assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());
    let lossy = Fault {
        drop_percent: 50,
        ..Fault::default()
    };
    net.switch
        .change(|links| links.set(1, End::Node(2), Way::From, lossy));
    for number in 0..100_u8 {
        one.send_to(&[number], net.outer(2)).await.unwrap();
    }
    let mut arrived = 0;
    while receive(&two).await.is_some() {
        arrived += 1;
    }
    assert!(
        (20..=80).contains(&arrived),
        "of 100 datagrams {arrived} arrived over a link that loses half"
    );
}

#[tokio::test]
async fn an_outsider_cannot_speak_to_an_agent() {
    let net = net(1).await;
    let one = net.agent(1).await;
    let outsider = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    outsider.send_to(b"hello", net.outer(1)).await.unwrap();
    assert_eq!(receive(&one).await, None);
}

#[tokio::test]
async fn connections_cross_the_switch() {
    let net = net(2).await;
    net.kubelet(2).await;
    assert!(answers(&mut net.call(1, 2).await.unwrap(), b"to a kubelet").await);
    let mut cloud = TcpStream::connect(net.plan.cloud_link(1)).await.unwrap();
    assert!(answers(&mut cloud, b"to the API server").await);
    // The end of a connection crosses it too, one direction at a time.
    cloud.write_all(b"last").await.unwrap();
    cloud.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, cloud.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rest, b"last");
}

#[tokio::test]
async fn a_cut_connection_stays_open_and_delivers_what_it_held() {
    for way in [Way::Both, Way::From, Way::To] {
        let net = net(2).await;
        let mut cloud = TcpStream::connect(net.plan.cloud_link(1)).await.unwrap();
        assert!(answers(&mut cloud, b"before").await);
        net.switch
            .change(|links| links.set(1, End::Cloud, way, Fault::CUT));
        assert!(!answers(&mut cloud, b"during").await, "{way}");
        net.switch.change(|links| links.repair(None));
        let mut held = [0; 6];
        timeout(SOON, cloud.read_exact(&mut held)).await.unwrap().unwrap();
        assert_eq!(&held, b"during", "{way}");
        assert!(answers(&mut cloud, b"after").await, "{way}");
    }
}

#[tokio::test]
async fn the_end_of_a_connection_does_not_cross_a_cut_link() {
    let net = net(1).await;
    let (mut api, cloud) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let (plan, _claim) = subnet(1).await;
        let switch = Switch::start(plan, listener.local_addr().unwrap(), 7, stop.clone())
            .await
            .unwrap();
        let cloud = TcpStream::connect(plan.cloud_link(1)).await.unwrap();
        let (api, _) = listener.accept().await.unwrap();
        ((api, switch, stop.drop_guard()), cloud)
    };
    drop(net);
    api.1
        .change(|links| links.set(1, End::Cloud, Way::Both, Fault::CUT));
    drop(cloud);
    let mut byte = [0; 1];
    assert!(
        timeout(QUIET, api.0.read(&mut byte)).await.is_err(),
        "the server learned of a client it is cut from"
    );
    api.1.change(|links| links.repair(None));
    assert_eq!(timeout(SOON, api.0.read(&mut byte)).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_machine_without_power_answers_no_connection_attempt() {
    let net = net(2).await;
    net.kubelet(2).await;
    assert!(answers(&mut net.call(1, 2).await.unwrap(), b"on").await);
    net.switch.change(|links| links.power_off(2));
    // The queue fills within milliseconds; from then on an attempt is neither accepted nor refused.
    eventually("no answer to a SYN", SOON, || async {
        match timeout(QUIET, net.call(1, 2)).await {
            Err(_) => Some(()),
            Ok(Ok(_)) => None,
            Ok(Err(error)) => panic!("a machine without power refused a connection: {error}"),
        }
    })
    .await;
    for from in [1, 2] {
        assert!(
            timeout(QUIET, net.call(from, 2)).await.is_err(),
            "from node {from}"
        );
    }
    assert!(
        timeout(QUIET, TcpStream::connect(net.plan.cloud_link(2)))
            .await
            .is_err()
    );
    assert!(
        TcpStream::connect(net.plan.cloud_link(1)).await.is_ok(),
        "the neighbour has power"
    );
    // A connection attempt that began while the power was off is answered once it is back, as a SYN is
    // repeated.
    let waiting = net.call(1, 2);
    tokio::pin!(waiting);
    assert!(timeout(QUIET, &mut waiting).await.is_err());
    net.switch.change(|links| links.power_on(2));
    assert!(answers(&mut timeout(SOON, waiting).await.unwrap().unwrap(), b"on again").await);
    assert!(
        answers(
            &mut timeout(SOON, net.call(1, 2)).await.unwrap().unwrap(),
            b"and new"
        )
        .await
    );
}

#[tokio::test]
async fn connections_of_a_machine_that_lost_power_are_reset_when_it_is_back() {
    let net = net(2).await;
    net.kubelet(2).await;
    let mut peer = net.call(1, 2).await.unwrap();
    assert!(answers(&mut peer, b"before").await);
    net.switch.change(|links| links.power_off(2));
    assert!(!answers(&mut peer, b"during").await);
    net.switch.change(|links| links.power_on(2));
    let mut byte = [0; 1];
    let error = timeout(SOON, peer.read(&mut byte)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_link_cut_between_two_nodes_is_silent_to_them_alone() {
    for way in [Way::Both, Way::From, Way::To] {
        let net = net(3).await;
        net.kubelet(2).await;
        let mut held = net.call(1, 2).await.unwrap();
        assert!(answers(&mut held, b"before").await);
        net.switch
            .change(|links| links.set(1, End::Node(2), way, Fault::CUT));
        assert!(!answers(&mut held, b"held").await, "{way}");
        // An attempt of the first moment may be accepted and held. After that a SYN is not answered.
        eventually("no answer to a SYN", SOON, || async {
            match timeout(QUIET, net.call(1, 2)).await {
                Err(_) => Some(()),
                Ok(Ok(_)) => None,
                Ok(Err(error)) => panic!("a cut link refused a connection: {error}"),
            }
        })
        .await;
        assert!(
            answers(&mut net.call(3, 2).await.unwrap(), b"free").await,
            "{way}"
        );
        let waiting = net.call(1, 2);
        tokio::pin!(waiting);
        assert!(timeout(QUIET, &mut waiting).await.is_err());
        net.switch.change(|links| links.repair(None));
        let mut word = [0; 4];
        timeout(SOON, held.read_exact(&mut word)).await.unwrap().unwrap();
        assert_eq!(&word, b"held", "{way}");
        let mut late = timeout(SOON, waiting).await.unwrap().unwrap();
        assert!(answers(&mut late, b"as a SYN is repeated").await, "{way}");
        assert!(
            answers(&mut net.call(1, 2).await.unwrap(), b"and new").await,
            "{way}"
        );
    }
}

#[tokio::test]
async fn a_crashed_kubelet_refuses_as_a_running_machine_does() {
    let net = net(2).await;
    let mut stream = net.call(1, 2).await.unwrap();
    let mut byte = [0; 1];
    let error = timeout(SOON, stream.read(&mut byte)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let net = net(1).await;
    let stop = CancellationToken::new();
    let second = Switch::start(net.plan, "127.0.0.1:1".parse().unwrap(), 7, stop).await;
    let Err(error @ SwitchError::Bind { .. }) = second else {
        panic!("two switches on one address")
    };
    let message = error.to_string();
    assert!(message.contains(&net.outer(1).to_string()), "{message}");
    assert!(message.contains("agent of node 1"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[rstest]
#[case::ipv4("127.0.0.1")]
#[case::ipv6("::1")]
#[tokio::test]
async fn a_server_elsewhere_reaches_each_kubelet_at_a_port_of_its_own(#[case] address: IpAddr) {
    let (plan, claim) = subnet(2).await;
    let plan = Plan {
        outside: Some(address),
        ..plan
    };
    let net = net_of(plan, claim).await;
    let (one, two) = (plan.kubelet(1), plan.kubelet(2));
    assert_eq!(
        (one.ip(), two.ip(), two.port()),
        (address, address, one.port() + 1)
    );
    for node in [1, 2] {
        net.kubelet(node).await;
    }
    let mut open = call_from_outside(one).await.unwrap();
    assert!(answers(&mut open, b"hello").await);
    assert!(answers(&mut call_from_outside(two).await.unwrap(), b"hello").await);

    net.switch
        .change(|links| links.set(1, End::Cloud, Way::Both, Fault::CUT));
    assert!(!answers(&mut open, b"lost").await);
    // An attempt of the first milliseconds may be accepted, into a queue that nobody serves.
    eventually("no answer to a SYN", SOON, || async move {
        call_from_outside(one).await.is_none().then_some(())
    })
    .await;
    assert!(answers(&mut call_from_outside(two).await.unwrap(), b"hello").await);
    let mut peer = net.call(2, 1).await.unwrap();
    assert!(answers(&mut peer, b"hello").await, "peers still reach it");

    net.switch.change(|links| links.repair(Some(1)));
    let mut again = eventually("an answer", SOON, || call_from_outside(one)).await;
    assert!(answers(&mut again, b"hello").await);
}
