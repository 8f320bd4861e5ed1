//! Messages to webhooks, over HTTP and HTTPS.
//!
//! Entry point: [`Webhooks`], a [`Notify`]. A message is a POST of a JSON document. With a secret it
//! carries `x-sextant-signature: t=<seconds>,v1=<hex>`, the HMAC-SHA-256 of `<seconds>.<body>`.
//!
//! **Invariant:** whoever may start a job may name an address, so no message goes to one that only
//! the machine or its network has for itself ([`is_refused`]): what a name resolves to is checked
//! and only then connected to, and redirections are not followed. Neither addresses nor the secret
//! appear in errors.

mod address;
mod send;

pub use address::is_refused;
pub use send::{Options, Webhooks, signature};

#[cfg(doc)]
use sextant_rpc::Notify;
