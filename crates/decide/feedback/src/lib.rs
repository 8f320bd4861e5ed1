//! Users' feedback on answers, and what is computed from it.
//!
//! An answer of an application that takes feedback carries a [`Token`]: what answered, when, and what was predicted,
//! signed with a key of the service. Nothing is stored for a query, because the client returns the token with its
//! feedback. The feedback is scored against the prediction in the token ([`score`]), summed by the hour ([`Sums`]),
//! compared with the measurement at registration ([`online`]), and monitored for models that become worse ([`alarms`]).
//!
//! Clipper (NSDI 2017, section 4.2) joins feedback with a cache of predictions, and loses feedback on predictions that
//! the cache has dropped. A token held by the client loses nothing and costs the service no memory.
//!
//! **Invariant:** no clock, no I/O, no randomness: times and keys are arguments.

mod alarm;
mod bytes;
mod outcome;
mod prediction;
mod score;
mod sums;
mod token;

pub use alarm::{Alarm, AlarmKind, MOST_DROP, alarms};
pub use outcome::outcome;
pub use prediction::{MOST_PREDICTION_BYTES, Prediction};
pub use score::{Label, LabelMismatch, score};
pub use sums::{Hour, Kind, Sums, online, rewarded};
pub use token::{
    AnswerSource, Forgery, KEY_BYTES, Keys, LATEST_MS, SigningKey, Token, check_bytes, serial_of,
    serial_text,
};
