//! Koupleless: modules (biz) that are installed into running Java processes (bases).
//!
//! | module | what it holds |
//! |---|---|
//! | [`arklet`] | the client of arklet, the agent in a base, over HTTP and MQTT |

pub mod arklet;
