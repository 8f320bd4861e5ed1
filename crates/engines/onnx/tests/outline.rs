//! Models whose large tensors stay in a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;

use bytes::Bytes;
use sextant_onnx::{
    Error, builder, calibration_graph, decode, encode,
    external::{Files, embed, resolve},
    inspect,
    outline::{
        self, LEAST_BYTES, Part, WEIGHTS, compose, filled, is_aligned, is_outline, of_parts,
        outline,
    },
    proto::{EXTERNAL, ModelProto, StringStringEntryProto, TensorProto},
    quantize::{Source, quantize_dynamic, quantize_weights_only},
};

/// Two matrices that stay in the file, and biases and a matrix that do not.
fn network() -> Bytes {
    builder::mlp(&[300, 256, 320, 7], 1)
}

fn part(file: &Bytes, range: Range<u64>) -> Option<Bytes> {
    let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
    (range.start <= range.end && range.end <= file.len()).then(|| file.slice(range))
}

fn outlined(file: &Bytes) -> Result<Bytes, Error> {
    outline(file.len() as u64, |range| part(file, range))
}

/// The parts as one file, whose tensors are copied from `file` whatever they call it.
fn joined(parts: &[Part], file: &Bytes) -> Bytes {
    let mut whole = Vec::new();
    for piece in parts {
        let before = whole.len();
        match piece {
            Part::Bytes(bytes) => whole.extend_from_slice(bytes),
            Part::Stored { range, .. } => {
                whole.extend_from_slice(&part(file, range.clone()).unwrap());
            }
        }
        assert_eq!((whole.len() - before) as u64, piece.length());
    }
    whole.into()
}

/// The model without what says nothing, its tensors by name.
fn content(model: &Bytes) -> ModelProto {
    let mut model = decode(model).unwrap();
    let graph = model.graph.as_mut().unwrap();
    graph
        .initializer
        .iter_mut()
        .for_each(|it| it.doc_string = None);
    graph.initializer.sort_by(|a, b| a.name().cmp(b.name()));
    model
}

fn large(model: &Bytes) -> Vec<TensorProto> {
    let initializers = decode(model).unwrap().graph.unwrap().initializer;
    let far = |tensor: &TensorProto| tensor.is_external();
    initializers.into_iter().filter(far).collect()
}

fn entry(tensor: &TensorProto, key: &str) -> u64 {
    let found = tensor.external_data.iter().find(|it| it.key() == key);
    found.unwrap().value().parse().unwrap()
}

#[test]
fn large_data_stays_in_the_file() {
    let file = network();
    let graph = outlined(&file).unwrap();
    assert!(is_outline(&decode(&graph).unwrap()) && !is_outline(&decode(&file).unwrap()));
    assert!((graph.len() as u64) < LEAST_BYTES);
    let tensors = large(&graph);
    assert_eq!(tensors.len(), 2);
    for tensor in &tensors {
        let begin = entry(tensor, "offset");
        let data = part(&file, begin..begin + entry(tensor, "length")).unwrap();
        let initializers = decode(&file).unwrap().graph.unwrap().initializer;
        let whole = initializers
            .into_iter()
            .find(|it| it.name() == tensor.name());
        assert_eq!(whole.unwrap().raw_data.unwrap(), data);
    }
    let (of_file, of_graph) = (inspect(&file).unwrap(), inspect(&graph).unwrap());
    assert_eq!(of_file, of_graph);
    let back = filled(&graph, |range| part(&file, range)).unwrap();
    assert_eq!(content(&back), content(&file));
}

#[test]
fn a_small_model_is_its_own_outline() {
    let file = builder::mlp(&[4, 8, 3], 1);
    let graph = outlined(&file).unwrap();
    assert_eq!(decode(&graph).unwrap(), decode(&file).unwrap());
}

#[test]
fn a_composed_file_has_its_data_where_engines_read_it_in_place() {
    let file = network();
    let graph = outlined(&file).unwrap();
    let parts = compose(&graph, |_, range| part(&file, range)).unwrap();
    let far = parts.iter().filter(|it| matches!(it, Part::Stored { .. }));
    assert_eq!(far.count(), 2);
    let again = joined(&parts, &file);
    assert_eq!(content(&again), content(&file));
    let tensors = large(&outlined(&again).unwrap());
    assert_eq!(tensors.len(), 2);
    for tensor in tensors {
        assert_eq!(entry(&tensor, "offset") % 64, 0, "{}", tensor.name());
    }
    assert!(is_aligned(&outlined(&again).unwrap()).unwrap());
    assert!(!is_aligned(&graph).unwrap());
}

#[test]
fn files_of_many_sizes_are_composed_alike() {
    // The lengths of lengths change on the way.
    for inputs in (1..400).step_by(7) {
        let file = builder::mlp(&[inputs, 300, 5], inputs as u64);
        let graph = outlined(&file).unwrap();
        let parts = compose(&graph, |_, range| part(&file, range)).unwrap();
        let again = joined(&parts, &file);
        assert_eq!(content(&again), content(&file), "{inputs} inputs");
    }
}

#[test]
fn data_beside_a_model_is_put_together_without_being_read() {
    let whole = network();
    let (mut model, mut data) = (decode(&whole).unwrap(), vec![7; 3]);
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        let raw = tensor.raw_data.take().unwrap();
        let entry = |key: &str, value: String| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value),
        };
        tensor.data_location = Some(EXTERNAL);
        tensor.external_data = vec![
            entry("location", "./some/where/w.bin".to_owned()),
            entry("offset", data.len().to_string()),
            entry("length", raw.len().to_string()),
        ];
        data.extend_from_slice(&raw);
    }
    let (model, data) = (encode(&model), Bytes::from(data));
    let size = |name: &str| (name == "w.bin").then_some(data.len() as u64);
    let named = resolve(&model, size).unwrap();
    let read = |name: &str, range| {
        assert_eq!(name, "w.bin");
        part(&data, range)
    };
    let parts = compose(&named, read).unwrap();
    let joined = joined(&parts, &data);
    assert_eq!(content(&joined), content(&whole));
    // It can be looked at without being put together.
    let ahead = of_parts(&parts, read).unwrap();
    assert_eq!(ahead, outlined(&joined).unwrap());
    // As where it is held in memory.
    let files = Files::from([("w.bin".to_owned(), data.clone())]);
    assert_eq!(
        content(&embed(&model, &files).unwrap().unwrap()),
        content(&whole)
    );

    let short = resolve(&model, |_| Some(data.len() as u64 - 1));
    let refused = short.unwrap_err().to_string();
    assert!(refused.contains("beyond the"), "{refused}");
    let missing = resolve(&model, |_| None).unwrap_err();
    assert!(matches!(missing, Error::ExternalData { .. }), "{missing}");
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let file = network();
    for length in (0..file.len()).step_by(997).chain([file.len() - 1]) {
        let cut = file.slice(..length);
        let refused = outlined(&cut).and_then(|graph| inspect(&graph));
        assert!(refused.is_err(), "{length} of {} bytes", file.len());
    }
    let unread = outline(file.len() as u64, |_| None);
    assert!(matches!(unread, Err(Error::NotOnnx(_))));
    for noise in [
        &b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"PK\x03\x04",
        b"{}",
    ] {
        assert!(outlined(&Bytes::from_static(noise)).is_err());
    }
}

#[test]
fn a_file_that_is_all_outline_is_refused_before_it_fills_the_memory() {
    // A text of three gigabytes, of which nobody has more than is asked for.
    let length = 3u64 << 30;
    let mut head = vec![0x32];
    prost::encoding::encode_varint(length, &mut head);
    let size = head.len() as u64 + length;
    let read = |range: Range<u64>| {
        assert!(range.end - range.start < 1 << 20, "{range:?}");
        let byte = |at| head.get(at as usize).copied().unwrap_or(b'x');
        Some(range.map(byte).collect())
    };
    let refused = outline(size, read).unwrap_err().to_string();
    assert!(refused.contains("beside the raw data"), "{refused}");
}

#[test]
fn nobody_can_have_data_read_that_is_not_in_the_file() {
    // A file that looks like an outline has nothing that it could be one of.
    let graph = outlined(&network()).unwrap();
    let refused = embed(&graph, &Files::new()).unwrap_err();
    assert!(matches!(refused, Error::ExternalData { .. }), "{refused}");
    assert!(filled(&graph, |_| None).is_err());
    // Its data is what its dimensions need, or it is refused before anything is read.
    let mut model = decode(&graph).unwrap();
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        for entry in &mut tensor.external_data {
            if entry.key() == "length" {
                entry.value = Some("80000".to_owned());
            }
        }
    }
    let refused = inspect(&encode(&model)).unwrap_err().to_string();
    assert!(refused.contains("has 80000 bytes where"), "{refused}");
    // Data here and elsewhere: the tensor is left as it is, and refused.
    let mut model = decode(&network()).unwrap();
    model.graph.as_mut().unwrap().initializer[0].data_location = Some(EXTERNAL);
    let both = outlined(&encode(&model)).unwrap();
    assert!(matches!(inspect(&both), Err(Error::ExternalData { .. })));
}

#[test]
fn what_is_made_of_an_outline_is_what_is_made_of_the_file() {
    let file = builder::mlp(&[1200, 1000, 300, 7], 3);
    let graph = outlined(&file).unwrap();
    let read = |range: Range<u64>| part(&file, range);
    let source = Source {
        graph: &graph,
        weights: Some(&read),
    };
    let whole = |made: &Bytes| content(&filled(made, read).unwrap());
    let (of_graph, of_file) = (
        quantize_dynamic(source).unwrap(),
        quantize_dynamic(&file).unwrap(),
    );
    assert_eq!(whole(&of_graph.model), content(&of_file.model));
    let of_graph = quantize_weights_only(source, 4).unwrap();
    let of_file = quantize_weights_only(&file, 4).unwrap();
    assert_eq!(whole(&of_graph.model), content(&of_file.model));
    let of_graph = calibration_graph(source).unwrap();
    let of_file = calibration_graph(&file).unwrap();
    assert_eq!(of_graph.tensors, of_file.tensors);
    assert_eq!(whole(&of_graph.model), content(&of_file.model));
    // What stays as it was still lies in the file.
    assert!(!large(&of_graph.model).is_empty());
}

#[test]
fn an_outline_may_call_its_file_by_another_name() {
    let graph = outlined(&network()).unwrap();
    let located = outline::located(&graph, "weights").unwrap();
    for (tensor, before) in large(&located).iter().zip(large(&graph)) {
        let location = tensor
            .external_data
            .iter()
            .find(|it| it.key() == "location");
        assert_eq!(location.unwrap().value(), "weights");
        assert_eq!(entry(tensor, "offset"), entry(&before, "offset"));
    }
    assert_eq!(outline::located(&located, WEIGHTS).unwrap(), located);
}
