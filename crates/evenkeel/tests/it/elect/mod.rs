//! `evenkeel elect` from outside: real runners, real commands, an API server whose link can be cut.

mod diary;
mod handover;
mod link;
mod loss;
mod refusals;
mod runner;
mod world;
