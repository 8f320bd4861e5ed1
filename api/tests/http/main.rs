//! The wire format, through the complete router and without a socket.

mod documents;
mod double;
mod errors;
mod protocol;
mod queries;
mod resources;
mod serving;
mod worker;
