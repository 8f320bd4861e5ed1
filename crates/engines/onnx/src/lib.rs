//! ONNX files: reading, checking, rewriting, quantising.
//!
//! Entry points: [`adapt`] makes a file from an exporter servable; [`fit`] fits it to its application's models;
//! [`inspect()`] describes a model and refuses models that no engine should get; [`split_weights`] takes the weights
//! out so that sessions can share them; [`quantize_dynamic`] and [`quantize_static`] make 8-bit variants; [`builder`]
//! writes small models; [`outline`] leaves large weights in their file; [`proto`] has the messages themselves.
//!
//! Half precision is left out on purpose: no CPU engine computes in it faster than in 32-bit floats, so such a variant
//! would only lose accuracy.
//!
//! **Invariant:** no I/O, no clock, no engine: bytes in, bytes out. Nothing in a file can cause a panic.

use bytes::Bytes;
use prost::Message;

pub mod adapt;
pub mod builder;
pub mod error;
pub mod external;
pub mod fit;
mod guard;
mod indices;
pub mod inspect;
mod integers;
mod make;
pub mod outline;
pub mod proto;
pub mod quantize;
pub mod ranks;
pub mod rows;
pub mod tensor;
pub mod turn;
mod walk;
pub mod weights;

pub use error::Error;
pub use inspect::{ModelInfo, inspect};
pub use quantize::{
    Calibration, QuantizedModel, Ranges, Weights, calibration_graph, quantize_dynamic,
    quantize_static,
};
pub use weights::{SHARED_LOCATION, Split, Weight, split_weights, stored_weights};

use proto::ModelProto;

/// Reads a model. Weights share the given buffer. Nesting deeper than 100 messages is
/// refused, and so is a file whose parts would take far more memory than itself.
///
/// # Errors
/// [`Error::NotOnnx`] when the bytes are no model or are cut short.
pub fn decode(bytes: &Bytes) -> Result<ModelProto, Error> {
    if bytes.is_empty() {
        return Err(Error::NotOnnx("the file is empty".to_owned()));
    }
    if let Some(kind) = foreign(bytes) {
        let reason = format!("it is {kind}: export the model to ONNX");
        return Err(Error::NotOnnx(reason));
    }
    guard::check(bytes)?;
    ModelProto::decode(bytes.clone())
        .map_err(|error| Error::NotOnnx(format!("it cannot be decoded ({error})")))
}

/// The name of another model format, by its first bytes.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x80, 2..=5, ..] => Some("a pickle, whose Python objects are never unpickled"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive, as PyTorch and Keras save their own models"),
        [0x89, b'H', b'D', b'F', ..] => Some("HDF5, as Keras saves its own models"),
        _ => None,
    }
}

/// Writes a model.
pub fn encode(model: &ModelProto) -> Bytes {
    Bytes::from(model.encode_to_vec())
}
