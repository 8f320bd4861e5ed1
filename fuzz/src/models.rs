//! Models.

use bytes::Bytes;
use sextant_onnx::{
    Ranges,
    adapt::{DeclaredSignature, plain, widen},
    calibration_graph, decode, encode,
    external::{Files, embed, locations},
    inspect, quantize_dynamic, quantize_static, split_weights,
};

/// Smallest weight that is taken out, bytes.
const LEAST_WEIGHT_BYTES: usize = 16;

/// A model that is inspected, split and quantised. Whatever comes out is a model again, with the same
/// inputs and outputs.
pub fn onnx(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(model) = decode(&bytes) else {
        return;
    };
    adapted(&bytes);
    let Ok(info) = inspect(&bytes) else {
        // Rewriting refuses it, too, or does no harm.
        let _ = split_weights(&bytes, LEAST_WEIGHT_BYTES);
        let _ = quantize_dynamic(&bytes);
        let _ = calibration_graph(&bytes);
        return;
    };
    let again = decode(&encode(&model)).expect("what was read can be written and read");
    // Written once more, so that a NaN equals itself.
    assert_eq!(encode(&again), encode(&model));
    if let Ok(split) = split_weights(&bytes, LEAST_WEIGHT_BYTES) {
        decode(&split.skeleton).expect("a model without its weights is a model");
    }
    let rewritten = [
        quantize_dynamic(&bytes).ok(),
        quantize_static(&bytes, &observed(&bytes)).ok(),
    ];
    for quantized in rewritten.into_iter().flatten() {
        let quantized = inspect(&quantized.model).expect("what was quantised is a model");
        assert_eq!(quantized.signature, info.signature);
    }
}

/// A file as exporters write it: whatever it is brought to is a model, and a second time changes nothing.
fn adapted(bytes: &Bytes) {
    let data = Bytes::from_static(&[0; 64]);
    let locations = locations(bytes).unwrap_or_default();
    let files: Files = locations
        .into_iter()
        .map(|name| (name, data.clone()))
        .collect();
    let whole = embed(bytes, &files).ok().flatten();
    let bytes = whole.as_ref().unwrap_or(bytes);
    if let Ok(made) = plain(bytes, &DeclaredSignature::default()) {
        decode(&made.model).expect("what was made plain is a model");
        let again =
            plain(&made.model, &DeclaredSignature::default()).expect("it can be read again");
        assert!(again.classes.is_empty());
    }
    if let Ok(Some(wide)) = widen(bytes) {
        decode(&wide).expect("what was widened is a model");
    }
}

/// Ranges of whatever would be observed.
fn observed(model: &Bytes) -> Ranges {
    let mut ranges = Ranges::new();
    if let Ok(calibration) = calibration_graph(model) {
        for output in &calibration.tensors {
            ranges.observe(output, &[-1.0, 2.0]);
        }
    }
    ranges
}
