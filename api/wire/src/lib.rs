//! Requests and answers as bytes: JSON, tensors, bodies and files within limits, problem documents.
//!
//! Entry points: [`body`], [`codec`], [`json`], [`problem`], [`Limits`].
//!
//! **Invariant:** this package knows no store's client, no key and no route: it reads bytes and headers alone.

pub mod body;
pub mod classification;
pub mod codec;
pub mod extract;
pub mod footprint;
pub mod json;
pub mod limits;
pub mod page;
pub mod precondition;
pub mod problem;
pub mod resources;
pub mod room;
pub mod signature;
pub mod targets;
pub mod trace;
pub mod upload;

pub use limits::Limits;
