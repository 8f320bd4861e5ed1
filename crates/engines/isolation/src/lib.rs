//! Engines in processes of their own.
//!
//! A file or an input may crash an engine, take all memory or never end. In a child process that is the
//! end of one run: the child has a limit of memory ([`confine`]), and whoever has started it
//! ([`Program`]) kills it when it takes too long.
//!
//! Entry points: [`Program`] starts a child and explains its end, for whatever it does; [`IsolatedEngine`]
//! is an engine whose models are served by such children, each of which calls [`serve`]; [`frame`] is how
//! both sides write messages.
//!
//! **Invariant:** what a child says is read as what a user sends is: it may lie, and then its models fail.

mod child;
mod confine;
mod engine;
pub mod frame;
mod host;
mod link;
mod message;
mod model;
mod program;
mod spawner;

pub use child::serve;
pub use confine::{confine, confine_program};
pub use engine::{IsolatableEngine, IsolatedEngine};
pub use program::{Child, Death, LIBRARIES, Program};
