//! The webhook of a whole controller: real TLS, real admission, real evidence.

mod certificate;
mod guarding;
