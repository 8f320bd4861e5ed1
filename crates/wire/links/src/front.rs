//! A front end in a process other than the dispatcher's.
//!
//! The inputs of a small query travel with it: the dispatcher puts them into a batch and returns the answer. The inputs
//! of a large query go directly to the worker that the dispatcher names, and the outputs come back directly
//! ([`FrontOptions::inline_bytes`] sets the limit).
//!
//! ```text
//! small:  front end --- Ask with inputs ----> dispatcher (the leader) --- batch ---> worker
//!         front end <-- Answered ------------ dispatcher <--- outputs -------------- worker
//!
//! large:  front end --- Ask ----------------> dispatcher (the leader)
//!         front end <-- Assign -------------- dispatcher --- batch with tickets ---> worker
//!         front end --- Inputs ------------------------------------------> worker's mailbox
//!         front end <-- Outputs ------------------------------------------ worker's mailbox
//! ```
//!
//! All are messages of a [`Link`](crate::link::Link).

mod connector;
mod end;
mod messages;
mod serve;

pub use connector::{Connector, DispatcherLink, MailboxLink, Unreachable};
pub use end::{FrontEnd, FrontOptions};
pub use messages::{
    FromDispatcher, FrontReport, FrontRequest, QueryInputs, QueryMessage, ToDispatcher,
};
pub use serve::{DispatcherHalf, serve};
