//! Inputs of queries, from a signature and from files.

use std::fs;

use sextant_bench_client::{
    Question,
    inputs::{self, Sizes},
};
use sextant_formats::npy::Header;
use sextant_types::{DataType, Signature, TensorSpec};

fn signature(batched: bool, inputs: &[(&str, DataType, &[Option<u64>])]) -> Signature {
    let inputs = inputs.iter().map(|(name, data_type, shape)| TensorSpec {
        name: (*name).to_owned(),
        data_type: *data_type,
        shape: shape.to_vec(),
    });
    Signature {
        inputs: inputs.collect(),
        outputs: Vec::new(),
        batched,
    }
}

fn tokens() -> Signature {
    let open = [None, None];
    let ids = ("ids", DataType::Int64, &open[..]);
    signature(true, &[ids, ("words", DataType::Bytes, &[None, Some(2)])])
}

#[test]
fn random_inputs_fill_what_the_signature_leaves_open() {
    let mut sizes = Sizes {
        rows: 3,
        dynamic: 5,
        integers: 10..20,
        ..Sizes::default()
    };
    let queries = inputs::random(&tokens(), &sizes, 4, 1).expect("inputs");
    assert_eq!(queries.len(), 4);
    assert_eq!(queries[0][0].tensor.shape(), [3, 5]);
    assert_eq!(queries[0][1].tensor.shape(), [3, 2]);
    let ids: Vec<i64> = queries[0][0].tensor.to_vec().expect("integers");
    assert!(ids.iter().all(|id| (10..20).contains(id)), "{ids:?}");
    assert_eq!(
        queries,
        inputs::random(&tokens(), &sizes, 4, 1).expect("inputs")
    );
    assert_ne!(
        queries,
        inputs::random(&tokens(), &sizes, 4, 2).expect("inputs")
    );
    sizes.shapes.insert("ids".to_owned(), vec![1, 7]);
    let queries = inputs::random(&tokens(), &sizes, 1, 1).expect("inputs");
    assert_eq!(queries[0][0].tensor.shape(), [1, 7]);
    sizes.shapes.insert("ids".to_owned(), vec![7]);
    let error = inputs::random(&tokens(), &sizes, 1, 1).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "input `ids`: the shape [7] does not fit [?, ?]"
    );
    sizes.shapes = [("pixels".to_owned(), vec![1])].into();
    let error = inputs::random(&tokens(), &sizes, 1, 1).expect_err("refused");
    assert!(
        error.to_string().contains("the inputs `ids`, `words`"),
        "{error}"
    );
}

#[test]
fn integers_that_a_type_cannot_hold_are_refused() {
    let small = signature(false, &[("x", DataType::Uint8, &[Some(64)])]);
    let sizes = Sizes {
        integers: 1_000..2_000,
        ..Sizes::default()
    };
    let error = inputs::random(&small, &sizes, 1, 1)
        .expect_err("refused")
        .to_string();
    assert!(error.contains("is no UINT8"), "{error}");
}

#[test]
fn files_are_read_as_offline_jobs_read_them() {
    let pixels = signature(true, &[("pixels", DataType::Fp32, &[None, Some(2)])]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.npy");
    let mut array = Header::write(DataType::Fp32, &[4, 2]).expect("a header");
    array.extend((0..8).flat_map(|value: u8| f32::from(value).to_le_bytes()));
    fs::write(&path, array).expect("a file");
    let queries = inputs::file(&path, &pixels, 2, 10).expect("records");
    assert_eq!(queries.len(), 2);
    assert_eq!(queries[1][0].tensor.shape(), [2, 2]);
    let values: Vec<f32> = queries[1][0].tensor.to_vec().expect("floats");
    assert_eq!(values, [4.0, 5.0, 6.0, 7.0]);
    let lines = folder.path().join("records.jsonl");
    fs::write(
        &lines,
        "{\"inputs\": {\"pixels\": [1, 2]}}\n\n{\"pixels\": [3, 4]}\n",
    )
    .expect("a file");
    let queries = inputs::file(&lines, &pixels, 1, 10).expect("records");
    assert_eq!(queries[1][0].tensor.shape(), [1, 2]);
    let message = Question::default().message(&queries[1]);
    assert!(format!("{message:?}").contains("[3.0,4.0]"), "{message:?}");
    fs::write(&lines, "{\"pixels\": [1, 2]}\n{\"pixel\": [3, 4]}\n").expect("a file");
    let error = inputs::file(&lines, &pixels, 1, 10)
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("line 2: the model has no input `pixel`"),
        "{error}"
    );
}
