//! Roles reach each other over real sockets of the loopback interface as they do in one process.

mod cable;
mod callers;
mod calls;
mod double;
mod faults;
mod fences;
mod front;
mod process;
mod protocol;
mod roster;
mod streams;
mod tls;
