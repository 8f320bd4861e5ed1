//! A front end apart from the dispatcher: queries travel as metadata to the dispatcher, and their
//! tensors straight to the worker that it names.
//!
//! ```text
//! front end --- ToDispatcher: Ask ------------> dispatcher (the leader)
//! front end <-- FromDispatcher: Assign -------- dispatcher --- batch with tickets ---> worker
//! front end --- ToMailbox: Inputs ------------------------------------------> worker's mailbox
//! front end <-- FromMailbox: Outputs ---------------------------------------- worker's mailbox
//! ```
//!
//! All four are messages of a [`Link`](crate::link::Link).

mod connector;
mod end;
mod mailbox;
mod serve;
pub mod wire;

pub use connector::{Connector, DispatcherLink, MailboxLink, Unreachable};
pub use end::{FrontEnd, FrontOptions};
pub use mailbox::{INPUTS_MISSING, Mailbox, MailboxOptions, serve_mailbox};
pub use serve::{DispatcherHalf, serve};
