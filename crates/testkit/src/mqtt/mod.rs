//! MQTT 3.1.1 for tests: a broker inside the process, and Debian's mosquitto as the real one.

mod broker;
mod mosquitto;
mod sessions;
#[cfg(test)]
mod tests;

pub use broker::{Broker, BrokerSetup};
pub use mosquitto::{Mosquitto, MosquittoSetup, MosquittoTls};
pub use sessions::Published;
