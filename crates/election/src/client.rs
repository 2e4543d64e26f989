//! A Kubernetes client whose writes pass the gate.

use crate::gate::Gate;
use kube::Client;
use tower::Layer as _;

impl Gate {
    /// A client that sends through `client`, but whose writes pass this gate. Use `client` itself for what
    /// must also work while not leading: the lock and Events.
    ///
    /// A refused write is a [`kube::Error::Service`] that [`is_gate_closed`](crate::gate::is_gate_closed)
    /// recognises.
    pub fn client(&self, client: &Client) -> Client {
        let inner = client.clone();
        let send = tower::service_fn(move |request| {
            let client = inner.clone();
            async move { client.send(request).await }
        });
        Client::new(self.layer().layer(send), client.default_namespace().to_owned())
    }
}
