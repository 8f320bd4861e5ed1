//! 8-bit variants of 32-bit float models.
//!
//! [`quantize_weights_only`] makes large matrices small and leaves everything else unchanged. Apart from that there are
//! two ways, both with constant weights turned into symmetric signed bytes when the variant is made. **Dynamic**
//! quantisation ([`quantize_dynamic`]) finds the range of each activation anew in every batch: it needs no calibration,
//! but results depend on the other rows of the batch. **Static** quantisation ([`quantize_static`]) fixes the ranges
//! beforehand on sample data ([`calibration_graph`], [`Ranges`]) and expresses the result with pairs of
//! `QuantizeLinear` and `DequantizeLinear`, which engines fuse into 8-bit kernels.
//!
//! There is one scale per output channel: it is no slower than one per tensor, and closer to the original. Weights use
//! -64..=64 ([`Weights::reduced`]): on processors without dot-product instructions (AVX2, first AVX-512), sums of two
//! products of unsigned and signed bytes saturate with larger ones, and a variant must give the same answers on every
//! worker. It costs one bit of a weight.

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

/// The model to quantise: a file, or an outline and a function that reads the data of its tensors ([`crate::outline`]).
/// The result of an outline is an outline of the same file; it contains the new data itself.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The file, or its outline.
    pub graph: &'a bytes::Bytes,
    /// Returns a range of the outline's file.
    pub weights: Option<&'a Read<'a>>,
}

/// Returns a range of a file; `None` if it cannot.
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
    /// Names of the nodes that now compute in 8 bits, in the graph's order; a node without a name is given by its first
    /// output.
    pub nodes: Vec<String>,
}
