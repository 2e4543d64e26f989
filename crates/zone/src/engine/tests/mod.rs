//! Whole zones in virtual time: engines, links, a cloud and a reader.

mod datagrams;
mod hazards;
mod link;
mod net;
mod properties;
mod scenarios;
mod votes;
