mod answers;
mod failures;
mod hostile;
mod redirects;
pub(crate) mod server;
mod strict;
mod tls;
