//! Messages to webhooks, over HTTP and HTTPS.
//!
//! Entry point: [`Webhooks`], a [`Notify`]. A message is a POST of a JSON document. With a secret
//! it has the header `x-sextant-signature: t=<seconds>,v1=<hex>`, the HMAC-SHA-256 of
//! `<seconds>.<body>`.
//!
//! **Invariant:** every client that may start a job may name an address. So no message is sent to
//! an address that is only for the machine or its network ([`is_refused`]): the addresses of a name
//! are resolved and checked before the connection is made, and redirections are not followed.
//! Errors contain neither addresses nor the secret.

mod address;
mod send;

pub use address::is_refused;
pub use send::{Options, Webhooks, signature};

#[cfg(doc)]
use sextant_rpc::Notify;
