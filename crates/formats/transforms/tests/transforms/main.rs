//! What each transform makes of its inputs.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use sextant_transforms::{Error, Options, Transform};
use sextant_types::{Data, NamedTensor, Tensor};

mod boxes;
mod classes;
mod ctc;
mod large;
mod pictures;
mod pool;
mod tokenizers;
mod tokens;

/// A tokenizer of whole words.
const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
  {"id":0,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
  {"id":2,"content":"[CLS]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
  "normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},
  "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},
    {"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
    "special_tokens":{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]}}},
  "decoder":null,"model":{"type":"WordLevel","vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"good":3,"film":4},"unk_token":"[UNK]"}}"#;

fn transform(options: Value) -> Transform {
    with_files(options, &[], &[])
}

fn with_files(options: Value, files: &[(&str, &str)], mapped: &[&str]) -> Transform {
    let options: Options = serde_json::from_value(options).expect("options");
    let files: BTreeMap<String, Bytes> = files
        .iter()
        .map(|(path, content)| {
            (
                (*path).to_owned(),
                Bytes::copy_from_slice(content.as_bytes()),
            )
        })
        .collect();
    let mapped = mapped.iter().map(|name| (*name).to_owned()).collect();
    Transform::new(&options, &files, &mapped).expect("a transform")
}

fn refused(options: Value) -> Error {
    let options: Options = serde_json::from_value(options).expect("options");
    match Transform::new(&options, &BTreeMap::new(), &Default::default()) {
        Ok(_) => panic!("was made of {options:?}"),
        Err(error) => error,
    }
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor {
    NamedTensor::new(
        name,
        Tensor::from_elements(shape.to_vec(), values).expect("a tensor"),
    )
}

fn texts(name: &str, values: &[&[u8]]) -> NamedTensor {
    NamedTensor::new(
        name,
        Tensor::from_strings(vec![values.len()], values).expect("a tensor"),
    )
}

fn output<'a>(outputs: &'a [NamedTensor], name: &str) -> &'a Tensor {
    &outputs
        .iter()
        .find(|it| it.name == name)
        .unwrap_or_else(|| panic!("no `{name}`"))
        .tensor
}

fn strings(tensor: &Tensor) -> Vec<String> {
    match tensor.data() {
        Data::Strings(strings) => strings
            .iter()
            .map(|it| String::from_utf8_lossy(it).into_owned())
            .collect(),
        Data::Plain(_) => panic!("numbers"),
    }
}
