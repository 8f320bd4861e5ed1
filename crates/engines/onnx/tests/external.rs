//! Tensors that keep their data in files beside the model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use sextant_onnx::{
    Error, builder, decode, encode,
    external::{Files, embed, file_name, locations},
    inspect,
    proto::{EXTERNAL, StringStringEntryProto, TensorProto},
};

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_string()),
    }
}

/// A small model whose constants lie in `location`, and that file.
fn beside(location: &str) -> (Bytes, Bytes) {
    let mut model = decode(&builder::mlp(&[4, 8, 3], 1)).unwrap();
    let mut data = Vec::new();
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        let raw = tensor.raw_data.take().unwrap();
        tensor.data_location = Some(EXTERNAL);
        tensor.external_data = vec![
            entry("location", location),
            entry("offset", &data.len().to_string()),
            entry("length", &raw.len().to_string()),
        ];
        data.extend_from_slice(&raw);
    }
    (encode(&model), data.into())
}

fn files(name: &str, file: &Bytes) -> Files {
    [(name.to_owned(), file.clone())].into()
}

#[test]
fn data_beside_a_model_is_put_into_it() {
    for (location, name) in [
        ("model.onnx.data", "model.onnx.data"),
        ("./weights/part.bin", "part.bin"),
        ("weights/part.bin", "weights/part.bin"),
    ] {
        let (model, data) = beside(location);
        assert_eq!(
            locations(&model).unwrap().into_iter().collect::<Vec<_>>(),
            [location]
        );
        assert!(matches!(inspect(&model), Err(Error::ExternalData { .. })));
        let whole = embed(&model, &files(name, &data)).unwrap().unwrap();
        assert_eq!(whole, builder::mlp(&[4, 8, 3], 1));
    }
}

#[test]
fn a_model_with_its_data_inside_stays_as_it_is() {
    let model = builder::mlp(&[4, 8, 3], 1);
    assert!(locations(&model).unwrap().is_empty());
    assert_eq!(embed(&model, &Files::new()).unwrap(), None);
}

#[test]
fn a_file_that_is_missing_or_has_another_name_is_named() {
    let (model, data) = beside("model.onnx.data");
    for given in [Files::new(), files("other.data", &data)] {
        let error = embed(&model, &given).unwrap_err().to_string();
        assert!(
            error.contains("`model.onnx.data`") && error.contains("--data"),
            "{error}"
        );
    }
}

/// The model's first constant, changed.
fn changed(change: impl Fn(&mut TensorProto)) -> Result<Option<Bytes>, Error> {
    let (model, data) = beside("a.data");
    let mut model = decode(&model).unwrap();
    change(&mut model.graph.as_mut().unwrap().initializer[0]);
    embed(&encode(&model), &files("a.data", &data))
}

#[test]
fn bytes_beyond_a_file_and_numbers_that_are_none_are_refused() {
    for (key, value) in [
        ("offset", "100000"),
        ("offset", "18446744073709551615"),
        ("offset", "-1"),
        ("length", "1000000"),
        ("length", "3"),
        ("length", "many"),
    ] {
        let refused = changed(|tensor| {
            tensor.external_data.retain(|it| it.key() != key);
            tensor.external_data.push(entry(key, value));
        });
        assert!(
            matches!(refused, Err(Error::NotOnnx(_))),
            "{key} {value}: {refused:?}"
        );
    }
    let whole = changed(|tensor| tensor.external_data.retain(|it| it.key() != "length"));
    assert!(
        whole.unwrap().is_some(),
        "the length follows from the shape"
    );
}

#[test]
fn names_are_the_last_parts_of_paths() {
    for (path, name) in [
        ("a", "a"),
        ("b/a", "a"),
        ("../../etc/a", "a"),
        ("c:\\b\\a", "a"),
    ] {
        assert_eq!(file_name(path), name);
    }
}
