//! Names to addresses, by the system's resolver.
//!
//! The resolver blocks a thread for as long as it likes, up to half a minute where no name server answers,
//! whether or not anybody still waits. As in Go, a lookup is shared by all who want the name: one thread for
//! each name at most, however often it is probed meanwhile. It is none of the runtime's, which others need,
//! and whose end it would delay.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Addresses (port 0), or the text of an error; `None` as long as nobody knows.
type Found = Option<Result<Vec<SocketAddr>, String>>;

/// Addresses of a name, all with `port`. The error is Go's text. The caller bounds the time.
pub(super) async fn lookup(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    static ALL: Lookups = Lookups(Mutex::new(BTreeMap::new()));
    let mut addresses = ALL.find(name, resolve).await?;
    for address in &mut addresses {
        address.set_port(port);
    }
    Ok(addresses)
}

fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// The lookups under way, by name.
struct Lookups(Mutex<BTreeMap<String, watch::Receiver<Found>>>);

impl Lookups {
    /// Joins the lookup of `name`, or begins one.
    async fn find(
        &'static self,
        name: &str,
        resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>, String> {
        let mut receiver = self.join(name, resolve);
        match receiver.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(found)) => found.clone(),
            // The thread was never started, or the resolver has panicked.
            _ => Err(format!("dial tcp: lookup {name}: the lookup broke off")),
        }
    }

    fn join(
        &'static self,
        name: &str,
        resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> watch::Receiver<Found> {
        let mut all = self.lock();
        if let Some(receiver) = all.get(name) {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(None);
        all.insert(name.to_owned(), receiver.clone());
        drop(all);
        let listed = Listed {
            all: self,
            name: name.to_owned(),
        };
        let work = move || {
            let found = resolve(&listed.name).map_err(|error| crate::wording::lookup(&listed.name, &error));
            // Who comes from now on asks anew.
            drop(listed);
            sender.send_replace(Some(found));
        };
        if let Err(error) = std::thread::Builder::new().name("lookup".to_owned()).spawn(work) {
            // Whoever waits is told by the sender's end.
            tracing::warn!(name, %error, "no thread to look a name up");
        }
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, watch::Receiver<Found>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name's place among the lookups, given up with it.
struct Listed {
    all: &'static Lookups,
    name: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn lookups() -> &'static Lookups {
        Box::leak(Box::new(Lookups(Mutex::new(BTreeMap::new()))))
    }

    fn address() -> SocketAddr {
        "192.0.2.1:0".parse().unwrap()
    }

    #[tokio::test]
    async fn a_resolver_that_hangs_holds_one_thread_for_each_name() {
        let (lookups, started) = (lookups(), Arc::new(AtomicUsize::new(0)));
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let hang = || {
            let (started, wait) = (started.clone(), wait.clone());
            move |_: &str| {
                started.fetch_add(1, Ordering::SeqCst);
                let _ = wait.lock().unwrap().recv();
                Ok(vec![address()])
            }
        };
        for _ in 0..1000 {
            // Given up at once, as a probe whose time is over does.
            let given_up = tokio::time::timeout(Duration::ZERO, lookups.find("a.test", hang())).await;
            assert!(given_up.is_err());
        }
        // Others are not held up.
        let other = lookups.find("b.test", |_| Ok(vec![address()]));
        assert_eq!(
            tokio::time::timeout(DEADLINE, other).await.unwrap(),
            Ok(vec![address()])
        );
        // Whoever still waits gets what the first one asked for.
        let last = tokio::spawn(lookups.find("a.test", hang()));
        tokio::task::yield_now().await;
        drop(release);
        let last = tokio::time::timeout(DEADLINE, last).await.unwrap().unwrap();
        assert_eq!(last, Ok(vec![address()]));
        assert_eq!(started.load(Ordering::SeqCst), 1);
        assert!(lookups.lock().is_empty());
    }

    #[test]
    fn a_resolver_that_hangs_does_not_hold_up_the_end_of_a_program() {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_time().build().unwrap();
            runtime.block_on(async {
                let hang = lookups().find("a.test", |_| {
                    loop {
                        std::thread::park();
                    }
                });
                assert!(tokio::time::timeout(Duration::ZERO, hang).await.is_err());
            });
            drop(runtime);
            done.send(()).unwrap();
        });
        ended.recv_timeout(DEADLINE).expect("the runtime ends");
    }

    #[tokio::test]
    async fn an_answer_is_not_kept() {
        let lookups = lookups();
        let failed = lookups.find("a.test", |_| Err(io::Error::other("no"))).await;
        assert_eq!(failed, Err("dial tcp: lookup a.test: no such host".to_owned()));
        let found = lookups.find("a.test", |_| Ok(vec![address()])).await;
        assert_eq!(found, Ok(vec![address()]));
    }

    #[tokio::test]
    async fn a_resolver_that_panics_fails_the_lookup_and_not_the_next_one() {
        let lookups = lookups();
        let broken = lookups.find("a.test", |_| panic!("on purpose")).await;
        assert_eq!(
            broken,
            Err("dial tcp: lookup a.test: the lookup broke off".to_owned())
        );
        let found = lookups.find("a.test", |_| Ok(vec![address()])).await;
        assert_eq!(found, Ok(vec![address()]));
    }

    #[tokio::test]
    async fn the_systems_resolver_keeps_port_and_zone() {
        let found = lookup("fe80::1%1", 80).await.unwrap();
        assert_eq!(found, ["[fe80::1%1]:80".parse().unwrap()]);
    }
}
