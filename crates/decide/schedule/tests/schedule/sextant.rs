//! The rule of `sextant`, candidate by candidate: each term of each formula by values worked out by hand.
//!
//! A batch of n rows takes n + 4 ms, at most 16, where nothing else is said: alpha is 1 ms, beta 4 ms. With a
//! request a millisecond (lambda) a queue has an overlap beta lambda of 4 rows, and keeps alpha lambda = 1
//! device busy beside that. With 24 ms for each, a batch that waits as long as it can has
//! (1 + lambda (24 - 4)) / (1 + lambda alpha) = 10.5 rows, with which 1 + 4 / 10.5 = 1.38 devices are busy.

mod bench;
mod drops;
mod eagerness;
mod lone;
mod waiting;
