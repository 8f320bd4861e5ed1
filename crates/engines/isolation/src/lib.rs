//! Engines in processes of their own.
//!
//! A file or an input may crash an engine, take all memory or never end. In a child process this ends one run: the
//! child has a limit of memory ([`confine`]), and its parent ([`Program`]) kills it if it takes too long.
//!
//! Entry points: [`Program`] starts a child and explains its end, for any purpose; [`IsolatedEngine`] is an engine
//! whose models are served by such children, each of which calls [`serve`]; [`frame`] is the form of the messages of
//! both sides.
//!
//! **Invariant:** a child's message is treated as a user's: it may be false, and then the child's models fail.

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
