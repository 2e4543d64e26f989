//! The kubelet's own handlers and ours, asked the same questions of the same servers: verdict, output and
//! error text, and what the servers received, must be the same, but for the differences that are listed with
//! their reasons.

mod case;
mod exec;
mod grpc;
mod h2;
mod http;
mod kubelet;
mod server;
mod tcp;
mod tls;
