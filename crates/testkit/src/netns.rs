//! Network namespaces: machines of their own as far as TCP can tell, joined by wires, with a firewall that
//! drops packets and says nothing. Needs root, `ip` and `nft`; ask [`missing`] first.

use crate::find;
use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a test with namespaces cannot run here; `None` if it can.
///
/// ```
/// if let Some(why) = evenkeel_testkit::netns::missing() {
///     return evenkeel_testkit::skipped("packets_get_lost", &why);
/// }
/// ```
pub fn missing() -> Option<String> {
    if !Uid::effective().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(tool) = ["ip", "nft"].into_iter().find(|tool| find(&path, tool).is_none()) {
        return Some(format!("no {tool} on PATH"));
    }
    let name = unique("probe");
    let tried = run("ip", &["netns", "add", &name]).and_then(|()| {
        let works = run(
            "ip",
            &["netns", "exec", &name, "nft", "add", "table", "inet", "probe"],
        );
        run("ip", &["netns", "delete", &name]).and(works)
    });
    tried.err()
}

/// A name that no other test of this machine uses.
fn unique(label: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("ek-{}-{number}-{label}", std::process::id())
}

/// Runs a tool; `Err` is its command line with what it said.
fn run(tool: &str, args: &[&str]) -> Result<(), String> {
    output(tool, args, None).map(drop)
}

/// The same with a text on its standard input; its standard output.
fn output(tool: &str, args: &[&str], input: Option<&str>) -> Result<String, String> {
    let line = || format!("{tool} {}", args.join(" "));
    let failed = |error: std::io::Error| format!("{}: {error}", line());
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.unwrap_or_default().as_bytes())
            .map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", line(), said.trim()))
}

/// Lets so many machines know each other, twice over. The kernel counts the neighbours of all namespaces
/// together, 1,024 of each family unless set (`gc_thresh3`, arp(7)), and drops what is beyond: a cell of 64
/// machines has 4,032. The limit stays where it is put, for it is the machine's.
pub fn allow_neighbours(machines: usize) {
    let needed = 2 * machines * machines;
    for family in ["ipv4", "ipv6"] {
        let limit = format!("/proc/sys/net/{family}/neigh/default/gc_thresh3");
        let read = std::fs::read_to_string(&limit).map_err(|error| format!("{limit}: {error}"));
        if must(read)
            .trim()
            .parse::<usize>()
            .is_ok_and(|limit| limit >= needed)
        {
            continue;
        }
        // Below the first two nobody is forgotten before its time.
        for number in [3, 2, 1] {
            let path = format!("/proc/sys/net/{family}/neigh/default/gc_thresh{number}");
            let written = std::fs::write(&path, needed.to_string());
            must(written.map_err(|error| format!("{path}: {error}")));
        }
    }
}

#[expect(clippy::panic, reason = "a test without its network has failed")]
fn must<T>(done: Result<T, String>) -> T {
    match done {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// The bridge of a switch.
const SWITCH: &str = "switch";

/// A network namespace with a loopback device; gone, with its wires, when it is dropped. Processes in it must
/// have ended before.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    wires: AtomicUsize,
}

impl Namespace {
    /// A fresh one. `label` is for those who look at the machine while the test runs.
    pub fn new(label: &str) -> Self {
        let name = unique(label);
        must(run("ip", &["netns", "add", &name]));
        let namespace = Self {
            name,
            wires: AtomicUsize::new(0),
        };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    fn ip(&self, args: &[&str]) {
        let all: Vec<&str> = ["-n", &self.name]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        must(run("ip", &all));
    }

    /// Takes all addresses of a range for its own.
    pub fn own(&self, range: &str) {
        self.ip(&["route", "add", "local", range, "dev", "lo"]);
    }

    /// A wire to another namespace, with an address at each end; both are in one network of 24 bits.
    pub fn wire(&self, other: &Self, here: Ipv4Addr, there: Ipv4Addr) {
        let ends = [self, other].map(|end| format!("wire{}", end.wires.fetch_add(1, Ordering::Relaxed)));
        let [near, far] = &ends;
        self.ip(&[
            "link",
            "add",
            near,
            "type",
            "veth",
            "peer",
            far,
            "netns",
            &other.name,
        ]);
        for (end, device, address) in [(self, near, here), (other, far, there)] {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", device]);
            end.ip(&["link", "set", device, "up"]);
        }
    }

    /// Makes it a switch, into which machines are plugged.
    pub fn be_switch(&self) {
        // With an address of its own: a bridge without one takes the lowest of its ports, and who was
        // answered by the bridge for an address of this machine loses it with the next port.
        let address = "02:00:00:00:00:01";
        self.ip(&["link", "add", SWITCH, "address", address, "type", "bridge"]);
        self.ip(&["link", "set", SWITCH, "up"]);
    }

    /// A machine's device, plugged into this switch, with its addresses, each with the length of its network.
    pub fn plug(&self, machine: &Self, device: &str, addresses: &[String]) {
        let port = format!("port{}", self.wires.fetch_add(1, Ordering::Relaxed));
        let there = &machine.name;
        self.ip(&[
            "link", "add", &port, "type", "veth", "peer", device, "netns", there,
        ]);
        self.ip(&["link", "set", &port, "master", SWITCH, "up"]);
        for address in addresses {
            // An IPv6 address is of use at once: nobody else can have it.
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            let words = ["address", "add", address, "dev", device];
            machine.ip(&[&words, nodad].concat());
        }
        machine.ip(&["link", "set", device, "up"]);
    }

    /// Pulls the plug of a device, or puts it back in.
    pub fn set_link(&self, device: &str, up: bool) {
        self.ip(&["link", "set", device, if up { "up" } else { "down" }]);
    }

    /// Bytes that a device has received and sent, all headers included.
    pub fn bytes(&self, device: &str) -> (u64, u64) {
        let table = self.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let table = must(table.map_err(|error| format!("/proc/thread-self/net/dev: {error}")));
        let line = table
            .lines()
            .find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let mut fields = line.unwrap_or_default().split_whitespace();
        let mut next = |skipped| fields.nth(skipped).and_then(|field| field.parse().ok());
        let counted = next(0).zip(next(7));
        must(counted.ok_or_else(|| format!("no device {device} in {}", self.name)))
    }

    /// A command inside: the process started is the program itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Does something on a thread inside; sockets that it makes, and those of a runtime that it builds, are
    /// inside.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let path = format!("/run/netns/{}", self.name);
            let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
            setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| format!("setns to {path}: {error}"))
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                must(enter());
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Drops, from now on and in both directions, what belongs to the TCP connections that are open to `port`
    /// of this namespace over a wire; connections made later are let through. How many there are.
    pub fn drop_open(&self, port: u16) -> usize {
        let peers = self.inside(|| must(peers_of(port)));
        let set: Vec<String> = peers
            .iter()
            .map(|(address, peer)| format!("{address} . {peer}"))
            .collect();
        if !set.is_empty() {
            let set = set.join(", ");
            self.drop_packets(
                &format!("tcp dport {port} ip saddr . tcp sport {{ {set} }}"),
                &format!("tcp sport {port} ip daddr . tcp dport {{ {set} }}"),
            );
        }
        peers.len()
    }

    /// Drops everything from and to one address of this namespace.
    pub fn drop_address(&self, address: Ipv4Addr) {
        self.drop_packets(&format!("ip daddr {address}"), &format!("ip saddr {address}"));
    }

    /// Drops everything but what stays inside.
    pub fn drop_all(&self) {
        self.drop_packets("iifname != \"lo\"", "oifname != \"lo\"");
    }

    fn drop_packets(&self, incoming: &str, outgoing: &str) {
        self.drop_matching(&[incoming], &[outgoing]);
    }

    /// Drops, from now on and instead of what was dropped before, the packets that match one of these
    /// expressions of nftables: those that come in, and those that go out.
    pub fn drop_matching(&self, incoming: &[&str], outgoing: &[&str]) {
        let drop = |rules: &[&str]| -> String {
            let rules = rules.iter().map(|rule| format!(" {rule} counter drop\n"));
            rules.collect::<Vec<_>>().concat()
        };
        let (incoming, outgoing) = (drop(incoming), drop(outgoing));
        let rules = format!(
            "table inet faults {{}}\ndelete table inet faults\n\
             table inet faults {{\n\
             chain incoming {{\n type filter hook input priority 0; policy accept;\n{incoming} }}\n\
             chain outgoing {{\n type filter hook output priority 0; policy accept;\n{outgoing} }}\n\
             }}\n"
        );
        self.nft(&["-f", "-"], Some(&rules));
    }

    fn nft(&self, args: &[&str], input: Option<&str>) -> String {
        let all: Vec<&str> = ["netns", "exec", &self.name, "nft"]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        must(output("ip", &all, input))
    }

    /// How many packets were dropped since the fault began, of those that came in and of those that went out.
    /// 0 also says that the fault did nothing.
    pub fn dropped(&self) -> u64 {
        let rules = self.nft(&["list", "table", "inet", "faults"], None);
        let counters = rules.split("counter packets ").skip(1);
        counters
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.nft(&["delete", "table", "inet", "faults"], None);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = run("ip", &["netns", "delete", &self.name]) {
            // A test may be failing already; whoever reads its output can clean up.
            let _ = writeln!(std::io::stderr(), "a network namespace is left behind: {error}");
        }
    }
}

/// The other ends of established connections to a local port, loopback left out (proc(5), `/proc/net/tcp`).
fn peers_of(port: u16) -> Result<Vec<(Ipv4Addr, u16)>, String> {
    const ESTABLISHED: &str = "01";
    let mut peers = Vec::new();
    for file in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let table = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, remote, ESTABLISHED, ..] = fields[..] else {
                continue;
            };
            let (Some((_, local)), Some(remote)) = (end(local), end(remote)) else {
                continue;
            };
            if local == port && !remote.0.is_loopback() {
                peers.push(remote);
            }
        }
    }
    Ok(peers)
}

/// `0100007F:1F90` is 127.0.0.1:8080 on little-endian machines; of IPv6 addresses the last four bytes count.
fn end(text: &str) -> Option<(Ipv4Addr, u16)> {
    let (address, port) = text.split_once(':')?;
    let last = address.get(address.len().checked_sub(8)?..)?;
    let address = u32::from_str_radix(last, 16).ok()?;
    Some((
        Ipv4Addr::from(address.to_ne_bytes()),
        u16::from_str_radix(port, 16).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn an_end_is_read_as_the_kernel_writes_it() {
        let written = format!("{:08X}:1F90", u32::from_ne_bytes([10, 77, 1, 2]));
        assert_eq!(end(&written), Some((Ipv4Addr::new(10, 77, 1, 2), 8080)));
        let mapped = format!("0000000000000000FFFF0000{written}");
        assert_eq!(end(&mapped), end(&written));
        for odd in ["", "1:2", "0100007F", "0100007G:0050"] {
            assert_eq!(end(odd), None, "{odd}");
        }
    }

    #[test]
    fn open_connections_are_cut_in_silence_and_new_ones_work() {
        if let Some(why) = missing() {
            return crate::skipped("open_connections_are_cut_in_silence_and_new_ones_work", &why);
        }
        let (one, two) = (Namespace::new("one"), Namespace::new("two"));
        let (here, there) = (Ipv4Addr::new(10, 77, 1, 1), Ipv4Addr::new(10, 77, 1, 2));
        one.wire(&two, here, there);
        let address = SocketAddr::from((here, 6443));
        let listener = one.inside(|| TcpListener::bind(address).unwrap());
        let connect = || {
            let client = two.inside(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap());
            (client, listener.accept().unwrap().0)
        };
        // Whether a byte arrives while a loss-free wire would have carried it many times.
        let passes = |(client, server): &mut (TcpStream, TcpStream)| {
            client.write_all(b"x").unwrap();
            server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            match server.read_exact(&mut [0]) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) => panic!("{error}"),
            }
        };
        let mut old = connect();
        assert!(passes(&mut old));
        assert_eq!(one.drop_open(6443), 1);
        assert!(!passes(&mut old));
        assert!(passes(&mut connect()));
        assert!(one.dropped() > 0);
        one.heal();

        one.drop_address(here);
        let refused = two.inside(|| TcpStream::connect_timeout(&address, Duration::from_millis(300)));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut);
        one.heal();
        assert!(passes(&mut connect()));
    }
}
