//! 8-bit variants of 32-bit float models.
//!
//! [`quantize_weights_only`] makes large matrices small and leaves everything else as it is. Besides, there are two
//! ways, both with constant weights turned into symmetric signed bytes when the variant is
//! made. **Dynamic** ([`quantize_dynamic`]) finds the range of each activation again in every batch:
//! nothing to calibrate, but results depend on what shares the batch. **Static** ([`quantize_static`])
//! fixes the ranges beforehand on sample data ([`calibration_graph`], [`Ranges`]) and expresses the
//! result with pairs of `QuantizeLinear` and `DequantizeLinear`, which engines fuse into 8-bit
//! kernels.
//!
//! Scales are one per output channel: no slower than one per tensor, and closer to the original.
//! Weights use -64..=64 ([`Weights::reduced`]): on processors without dot-product instructions (AVX2,
//! first AVX-512) sums of two products of unsigned and signed bytes saturate with larger ones, and a
//! variant has to answer alike on every worker. It costs one bit of a weight.

mod dynamic;
mod editor;
mod linear;
mod numeric;
mod plan;
mod qdq;
mod ranges;
mod weights_only;

pub use dynamic::{Dynamic, quantize_dynamic, quantize_dynamic_with};
pub use numeric::Weights;
pub use qdq::{
    Calibration, activation_graph, calibration_graph, quantize_static, quantize_static_with,
};
pub use ranges::Ranges;
pub use weights_only::quantize_weights_only;

/// What is quantised: a file, or an outline and what reads the data of its tensors ([`crate::outline`]). What comes of an
/// outline is one, too, of the same file: it has what was made new in itself.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The file, or its outline.
    pub graph: &'a bytes::Bytes,
    /// Gives a range of the file that the outline is of.
    pub weights: Option<&'a Read<'a>>,
}

/// Gives a range of a file; `None` where it cannot.
pub type Read<'a> = dyn Fn(std::ops::Range<u64>) -> Option<bytes::Bytes> + Sync + 'a;

impl<'a> From<&'a bytes::Bytes> for Source<'a> {
    fn from(graph: &'a bytes::Bytes) -> Self {
        Self {
            graph,
            weights: None,
        }
    }
}

/// A quantised model.
#[derive(Debug, Clone)]
pub struct QuantizedModel {
    /// The rewritten file.
    pub model: bytes::Bytes,
    /// Names of the nodes that compute in 8 bits now, in the graph's order; a node without name
    /// is given by its first output.
    pub nodes: Vec<String>,
}
