//! Files with absurd numbers are refused or run. They never cause a panic, and never take the memory that they ask for.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest};
use sextant_engine_cuda::{Config, CudaEngine, driver::recording::RecordingDriver, suite};
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::{ModelProto, dimension, type_proto},
};
use sextant_types::{DataType, Digest, Optimization, Precision};

const ABSURD: [i64; 7] = [0, -1, 7, 1 << 33, 1 << 62, i64::MAX, i64::MIN];

const SEED: u64 = 4;

fn engine() -> CudaEngine {
    let config = Config {
        page_bytes: 64 << 10,
        pages: Some(4),
        workspace_bytes: 1 << 20,
        io_bytes: 64 << 10,
        scratch_bytes: 0,
        largest_batch: 2,
        host_bytes: 256 << 10,
    };
    let driver = Arc::new(RecordingDriver::new(Default::default()));
    CudaEngine::new(driver, config).expect("the memory is there")
}

/// Loads a model and runs it; any result is accepted. The digests differ, because the files do.
fn load(engine: &CudaEngine, model: Bytes, number: usize) {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&(number as u64).to_le_bytes());
    let _ = engine.load(&LoadRequest {
        artefact: Digest::from_bytes(digest),
        model: model.into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    });
}

/// All files in which one number of `numbers` is replaced.
fn variations(file: &Bytes, numbers: fn(&mut ModelProto) -> Vec<&mut i64>) -> Vec<Bytes> {
    let model = sextant_onnx::decode(file).expect("a built model can be decoded");
    let count = numbers(&mut model.clone()).len();
    let mut files = Vec::new();
    for index in 0..count {
        for value in ABSURD {
            let mut model = model.clone();
            *numbers(&mut model)[index] = value;
            files.push(sextant_onnx::encode(&model));
        }
    }
    files
}

fn attributes(model: &mut ModelProto) -> Vec<&mut i64> {
    let nodes = model.graph.iter_mut().flat_map(|graph| &mut graph.node);
    let attributes = nodes.flat_map(|node| &mut node.attribute);
    attributes
        .flat_map(|it| it.i.iter_mut().chain(&mut it.ints))
        .collect()
}

/// Dimensions of inputs.
fn dimensions(model: &mut ModelProto) -> Vec<&mut i64> {
    let inputs = model.graph.iter_mut().flat_map(|graph| &mut graph.input);
    let types = inputs.filter_map(|input| input.r#type.as_mut()?.value.as_mut());
    let tensors = types.filter_map(|value| match value {
        type_proto::Value::TensorType(tensor) => tensor.shape.as_mut(),
        _ => None,
    });
    let dims = tensors.flat_map(|shape| &mut shape.dim);
    let fixed = dims.filter_map(|dim| match dim.value.as_mut() {
        Some(dimension::Value::DimValue(size)) => Some(size),
        _ => None,
    });
    fixed.collect()
}

fn check(numbers: fn(&mut ModelProto) -> Vec<&mut i64>) {
    let engine = engine();
    let mut number = 0;
    for case in suite::operators::cases(SEED) {
        for file in variations(&case.model, numbers) {
            number += 1;
            load(&engine, file, number);
        }
    }
    assert!(number > 500, "seed {SEED}: {number} files");
    assert_eq!(engine.free_pages(), 4);
}

#[test]
fn absurd_attributes_do_no_harm() {
    check(attributes);
}

#[test]
fn absurd_dimensions_do_no_harm() {
    check(dimensions);
}

/// A slice that leaves none of the channels of images.
#[test]
fn convolutions_over_no_channels_do_no_harm() {
    let mut model = ModelBuilder::new("nothing", 1);
    let image = |channels, side| {
        [
            BATCH,
            Dim::Fixed(channels),
            Dim::Fixed(side),
            Dim::Fixed(side),
        ]
    };
    model.input("x", DataType::Fp32, &image(3, 6));
    model.output("y", DataType::Fp32, &image(2, 4));
    model
        .constant("zero", &[1], &[0i64])
        .constant("one", &[1], &[1i64])
        .random("w", &[2, 0, 3, 3], 1.0);
    model.node("Slice", &["x", "zero", "zero", "one"], &["none"]);
    model.node("Conv", &["none", "w"], &["y"]);
    load(&engine(), model.build(), 1);
}

/// Constants of integers: shapes, axes, bounds, padding.
#[test]
fn absurd_constants_do_no_harm() {
    let engine = engine();
    let mut number = 0;
    for case in suite::operators::cases(SEED) {
        let model = sextant_onnx::decode(&case.model).expect("a built model can be decoded");
        let constants = model
            .graph
            .as_ref()
            .map_or(0, |graph| graph.initializer.len());
        for index in 0..constants {
            for value in ABSURD {
                let mut model = model.clone();
                let graph = model.graph.as_mut().expect("a built model has a graph");
                let tensor = &mut graph.initializer[index];
                let raw = tensor.raw_data.clone().unwrap_or_default();
                if tensor.data_type() != 7 || raw.len() < 8 {
                    continue;
                }
                let mut bytes = raw.to_vec();
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                tensor.raw_data = Some(bytes.into());
                number += 1;
                load(&engine, sextant_onnx::encode(&model), number);
            }
        }
    }
    assert!(number > 100, "seed {SEED}: {number} files");
}
