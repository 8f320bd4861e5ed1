//! What users say of answers, and what follows from it.
//!
//! An answer of an application that takes feedback carries a [`Token`]: who answered, when, what was predicted, signed
//! with a key of the service. Nothing is stored for a query: whoever gives feedback brings the token back. What is
//! given is scored against the prediction in it ([`score`]), summed up by the hour ([`Sums`]), compared with what was
//! measured at registration ([`online`]), and watched for models that become worse ([`alarms`]).
//!
//! Clipper (NSDI 2017, section 4.2) joins feedback with a cache of predictions, which loses what the cache has
//! dropped; a token in the client's hands loses nothing, and costs the service no memory.
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
