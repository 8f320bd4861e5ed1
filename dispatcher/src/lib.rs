//! One query's way: choose, queue, batch, send, answer.
