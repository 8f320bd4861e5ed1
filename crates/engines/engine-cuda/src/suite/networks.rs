//! Whole networks with seeded weights, as exporters write them.

use sextant_engine::Engine;
use sextant_onnx::builder;
use sextant_types::Precision;

use super::{Case, Comparison, compare};

mod encoder;
mod residual;

pub use encoder::{Encoder, encoder};
pub use residual::{Residual, resnet};

/// How large the networks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Small images and widths, for a host that computes instead of a device.
    Small,
    /// As published.
    Full,
}

/// Largest error that is allowed, relative to the largest output.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 => 1e-4,
        Precision::Tf32 => 1e-2,
        Precision::Fp16 => 2e-2,
        _ => 1e-1,
    }
}

/// Compares every network at every precision of the engine.
pub fn all(engine: &dyn Engine, reference: &dyn Engine, scale: Scale) -> Vec<Comparison> {
    let cases = cases(scale);
    let each = |case: &Case| compare(engine, reference, case, tolerance);
    cases.iter().flat_map(each).collect()
}

/// An MLP, ResNet-18, ResNet-50 and a BERT-like encoder.
pub fn cases(scale: Scale) -> Vec<Case> {
    let full = scale == Scale::Full;
    let widths = if full {
        [784, 4096, 4096, 10]
    } else {
        [32, 96, 64, 10]
    };
    let (size, width) = if full { (224, 64) } else { (32, 4) };
    let (rows, length) = if full { (8, 128) } else { (3, 11) };
    let residual = |depths, bottleneck| Residual {
        depths,
        bottleneck,
        width,
        size,
        classes: if full { 1000 } else { 10 },
    };
    let case = |operator, model, dynamic: &[usize]| Case {
        operator,
        detail: format!("{scale:?}, {dynamic:?}"),
        model,
        dynamic: dynamic.to_vec(),
        seed: 7,
    };
    let shallow = residual([2, 2, 2, 2], false);
    let deep = residual([3, 4, 6, 3], true);
    let text = if full { Encoder::BASE } else { Encoder::SMALL };
    vec![
        case("MLP", builder::mlp(&widths, 1), &[rows]),
        case("ResNet-18", resnet(&shallow, 2), &[rows]),
        case("ResNet-50", resnet(&deep, 3), &[rows]),
        case("BERT-like encoder", encoder(&text, 4), &[rows, length]),
    ]
}
