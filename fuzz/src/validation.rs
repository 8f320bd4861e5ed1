//! Validation sets.

use bytes::Bytes;
use sextant_types::{DataType, Metric, Signature, TensorSpec};
use sextant_variant_gen::validation::{Limits, ScoringTarget, SetRequirements, read};

/// Most records that are taken out of one set.
const MOST_RECORDS: usize = 64;

/// NumPy's archive. The first byte says what model the set is for.
pub fn validation_npz(bytes: &[u8]) {
    check(bytes);
}

/// Lines of JSON. The first byte says what model the set is for.
pub fn validation_jsonl(bytes: &[u8]) {
    check(bytes);
}

/// Whatever is accepted gives its records one by one and repeated.
fn check(bytes: &[u8]) {
    let Some((first, file)) = bytes.split_first() else {
        return;
    };
    let signature = signature(*first);
    let metric = match first >> 5 {
        0 | 1 => Metric::Top1,
        2 | 3 => Metric::TopK(2),
        4 | 5 => Metric::Exact,
        _ => Metric::MeanAbsoluteError,
    };
    let limits = Limits {
        bytes: 1 << 20,
        records: 10_000,
    };
    let scored = ScoringTarget::by(metric, &signature);
    let expected = SetRequirements {
        signature: &signature,
        metric,
        scored: &scored,
        limits,
    };
    let set = match read(&Bytes::copy_from_slice(file), expected) {
        Ok(set) => set,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    assert!(set.records() > 0 && set.records() <= limits.records);
    for record in 0..set.records().min(MOST_RECORDS) {
        let inputs = set.rows(record, 1).expect("a record of the set");
        assert_eq!(inputs.len(), signature.inputs.len());
    }
    set.repeated(3).expect("a batch of the set");
}

/// One of eight models: batched or not, one input or two, floats or integers.
fn signature(byte: u8) -> Signature {
    let batched = byte & 1 == 0;
    let spec = |name: &str, data_type, columns| TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: match batched {
            true => vec![None, columns],
            false => vec![Some(1), columns],
        },
    };
    let data_type = match byte & 4 {
        0 => DataType::Fp32,
        _ => DataType::Int64,
    };
    let mut inputs = vec![spec("x", data_type, Some(2))];
    if byte & 2 != 0 {
        inputs.push(spec("mask", DataType::Bool, None));
    }
    Signature {
        inputs,
        outputs: vec![spec("y", DataType::Fp32, Some(3))],
        batched,
    }
}
