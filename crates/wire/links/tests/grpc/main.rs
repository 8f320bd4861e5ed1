//! Over real sockets of the loopback interface, roles reach each other as in one process.

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
