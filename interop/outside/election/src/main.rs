//! A program of which one replica works: it holds the Lease `default/outside` while it leads.

use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, State, unique_identity};
use kube::Client;
use std::error::Error;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let lock = LeaseLock::new(client, "default", "outside")?;
    let mut election = Elector::new(lock, Config::new(&unique_identity()))?.run(CancellationToken::new());
    while let Some(state) = election.next().await {
        match state {
            State::Leading { token, .. } => println!("leading, with the fencing token {token}"),
            State::Following { leader } => println!("led by {leader:?}"),
            other => println!("{other:?}"),
        }
    }
    Ok(())
}
