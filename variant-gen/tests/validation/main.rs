//! Validation sets: what is read, and how everything else is refused.

mod bounds;
mod metrics;

use std::io::Write;

use bytes::Bytes;
use npyz::{WriterBuilder, npz::NpzWriter};
use sextant_types::{DataType, Metric, Signature, Tensor, TensorSpec};
use sextant_variant_gen::validation::{
    Expectation, Invalid, Labels, Limits, ScoringTarget, SetRequirements, ValidationSet, read,
    with_labels,
};

/// The first output, whose columns have no names.
static FIRST: ScoringTarget = ScoringTarget {
    output: 0,
    classes: Vec::new(),
    own: Vec::new(),
};

fn spec(name: &str, data_type: DataType, shape: &[Option<u64>]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: shape.to_vec(),
    }
}

/// `x: FP32 [?, 2] -> y: FP32 [?, 3]`.
fn classifier() -> Signature {
    Signature {
        inputs: vec![spec("x", DataType::Fp32, &[None, Some(2)])],
        outputs: vec![spec("y", DataType::Fp32, &[None, Some(3)])],
        batched: true,
    }
}

fn expected(signature: &Signature, metric: Metric) -> SetRequirements<'_> {
    SetRequirements {
        signature,
        metric,
        scored: &FIRST,
        limits: Limits::default(),
    }
}

/// Builds an archive in memory.
struct Archive(Vec<(String, Vec<u8>)>);

impl Archive {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn array<T: npyz::AutoSerialize + npyz::Serialize + Copy>(
        mut self,
        name: &str,
        shape: &[u64],
        values: &[T],
    ) -> Self {
        let mut file = Vec::new();
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(shape)
            .writer(&mut file)
            .begin_nd()
            .expect("begins");
        writer.extend(values.iter().copied()).expect("writes");
        writer.finish().expect("finishes");
        self.0.push((name.to_owned(), file));
        self
    }

    fn zip(self) -> Bytes {
        let mut out = std::io::Cursor::new(Vec::new());
        let mut npz = NpzWriter::new(&mut out);
        for (name, file) in self.0 {
            let zip = npz.zip_writer();
            zip.start_file(format!("{name}.npy"), Default::default())
                .expect("starts");
            zip.write_all(&file).expect("writes");
        }
        drop(npz);
        out.into_inner().into()
    }
}

fn good() -> Archive {
    Archive::new()
        .array("x", &[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
        .array("labels", &[3], &[0i64, 2, 1])
}

fn top1(bytes: &Bytes) -> Result<ValidationSet, Invalid> {
    read(bytes, expected(&classifier(), Metric::Top1))
}

#[test]
fn npz_and_jsonl_say_the_same() {
    let npz = top1(&good().zip()).expect("reads");
    let jsonl = r#"
        {"inputs": {"x": [1, 2.0]}, "label": 0}
        {"label": 2, "inputs": {"x": [3, 4]}}

        {"inputs": {"x": [5, 6]}, "label": 1}
    "#;
    let jsonl = top1(&Bytes::from(jsonl)).expect("reads");
    for set in [&npz, &jsonl] {
        assert_eq!(set.records(), 3);
        assert_eq!(set.labels().values, Expectation::Classes(vec![0, 2, 1]));
        let rows = set.rows(1, 2).expect("rows");
        assert_eq!(rows[0].name, "x");
        assert_eq!(rows[0].tensor.shape(), [2, 2]);
        assert_eq!(rows[0].tensor.to_vec(), Some(vec![3f32, 4.0, 5.0, 6.0]));
    }
}

#[test]
fn profiling_batches_repeat_the_records() {
    let set = top1(&good().zip()).expect("reads");
    let batch = set.repeated(7).expect("repeats");
    assert_eq!(batch[0].tensor.shape(), [7, 2]);
    let values = batch[0].tensor.to_vec::<f32>().expect("floats");
    assert_eq!(values[..2], values[6..8]);
    assert_eq!(values[..2], values[12..]);
    assert_eq!(set.repeated(6).expect("repeats")[0].tensor.rows(), 6);
    assert_eq!(set.repeated(2).expect("repeats")[0].tensor.rows(), 2);
}

#[test]
fn inputs_take_the_models_type_when_nothing_is_lost() {
    let bytes = |archive: Archive| archive.array("labels", &[1], &[0u8]).zip();
    for archive in [
        Archive::new().array("x", &[1, 2], &[1u8, 2]),
        Archive::new().array("x", &[1, 2], &[1f64, 2.0]),
        Archive::new().array("x", &[1, 2], &[1i64, 2]),
        Archive::new().array("x", &[1, 2], &[half::f16::ONE, half::f16::from_f32(2.0)]),
    ] {
        let set = top1(&bytes(archive)).expect("reads");
        let rows = set.rows(0, 1).expect("rows");
        assert_eq!(rows[0].tensor.to_vec(), Some(vec![1f32, 2.0]));
    }
    for archive in [
        Archive::new().array("x", &[1, 2], &[1e39f64, 0.0]),
        Archive::new().array("x", &[1, 2], &[(1i64 << 24) + 1, 0]),
    ] {
        let result = top1(&bytes(archive));
        assert!(matches!(result, Err(Invalid::Convert { .. })), "{result:?}");
    }
    let mut signature = classifier();
    signature.inputs[0].data_type = DataType::Int32;
    for archive in [
        Archive::new().array("x", &[1, 2], &[1f32, 2.0]),
        Archive::new().array("x", &[1, 2], &[1i64 << 40, 2]),
    ] {
        let result = read(&bytes(archive), expected(&signature, Metric::Top1));
        assert!(matches!(result, Err(Invalid::Convert { .. })), "{result:?}");
    }
}

#[test]
fn sets_that_do_not_fit_are_refused() {
    let x = || Archive::new().array("x", &[2, 2], &[0f32; 4]);
    let cases: Vec<(&str, Archive)> = vec![
        ("no input", Archive::new().array("labels", &[2], &[0i64; 2])),
        ("unknown array", x().array("z", &[2], &[0f32; 2])),
        ("counts differ", x().array("labels", &[3], &[0i64; 3])),
        ("class too large", x().array("labels", &[2], &[0i64, 3])),
        ("negative class", x().array("labels", &[2], &[0i64, -1])),
        ("label shape", x().array("labels", &[2, 3], &[0i64; 6])),
        ("scalar labels", x().array("labels", &[], &[0i64])),
        (
            "input shape",
            Archive::new()
                .array("x", &[2, 3], &[0f32; 6])
                .array("labels", &[2], &[0i64; 2]),
        ),
        (
            "no records",
            Archive::new()
                .array::<f32>("x", &[0, 2], &[])
                .array::<i64>("labels", &[0], &[]),
        ),
        ("boolean labels", x().array("labels", &[2], &[true, false])),
    ];
    for (what, archive) in cases {
        let result = top1(&archive.zip());
        println!("{what}: {result:?}");
        assert!(result.is_err(), "{what}");
    }
}

/// An archive has one array of a name, and `labels` is what is compared with: JSONL keeps both apart.
#[test]
fn a_model_with_an_input_called_labels_is_told_what_to_do() {
    let mut signature = classifier();
    signature
        .inputs
        .push(spec("labels", DataType::Int64, &[None]));
    let error = read(&good().zip(), expected(&signature, Metric::Top1));
    assert!(matches!(error, Err(Invalid::LabelsAreAnInput)), "{error:?}");
    let line = "{\"inputs\": {\"x\": [1, 2], \"labels\": 1}, \"label\": 0}\n";
    let set = read(&line.into(), expected(&signature, Metric::Top1)).expect("it is read");
    assert_eq!(set.records(), 1);
}

#[test]
fn files_of_other_kinds_are_named() {
    let kinds: [(&[u8], &str); 4] = [
        (b"\x93NUMPY\x01\x00v", "a single array (`.npy`)"),
        (b"PAR1\x15", "Parquet"),
        (b"\x80\x05\x95", "a pickle"),
        (b"\x1f\x8b\x08", "gzip"),
    ];
    for (bytes, kind) in kinds {
        let error = top1(&Bytes::copy_from_slice(bytes)).expect_err("it is none");
        let error = error.to_string();
        assert!(error.contains(kind) && error.contains("`.npz`"), "{error}");
    }
}

#[test]
fn bad_lines_name_their_record() {
    let good = r#"{"inputs": {"x": [1, 2]}, "label": 0}"#;
    for bad in [
        "{",
        "[]",
        "null",
        r#"{"inputs": {"x": [1, 2]}}"#,
        r#"{"inputs": {}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 2], "z": 1}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 2]}, "label": 0, "weight": 1}"#,
        r#"{"inputs": {"x": [1, [2]]}, "label": 0}"#,
        r#"{"inputs": {"x": [[1], 2]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 2, 3]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, "2"]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, "nan"]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 2]}, "label": null}"#,
        r#"{"inputs": {"x": [1, 1e39]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 1e999]}, "label": 0}"#,
        r#"{"inputs": {"x": [1, 2]}, "label": 0.5}"#,
        r#"{"inputs": {"x": [1, 2]}, "label": "0"}"#,
        r#"{"inputs": {"x": [1, 2]}, "label": [0, 1]}"#,
        "\u{fffd}",
    ] {
        let result = top1(&Bytes::from(format!("{good}\n{bad}\n")));
        println!("{bad}: {result:?}");
        let named = matches!(result, Err(Invalid::Record { record: 2, .. }));
        assert!(named, "{bad}");
    }
    assert_eq!(top1(&Bytes::new()).err(), Some(Invalid::NoRecords));
    assert_eq!(top1(&Bytes::from("\n\n")).err(), Some(Invalid::NoRecords));
    let deep = format!("{{\"inputs\": {{\"x\": {}", "[".repeat(100_000));
    assert!(top1(&Bytes::from(deep)).is_err());
}

#[test]
fn records_of_one_length_run_together() {
    let mut signature = classifier();
    signature.inputs[0].shape[1] = None;
    let line = |x: &str, label| format!("{{\"inputs\": {{\"x\": {x}}}, \"label\": {label}}}\n");
    let lines = [
        line("[1, 2]", 0),
        line("[3]", 1),
        line("[4, 5]", 2),
        line("[6, 7, 8]", 1),
        line("[9, 10]", 1),
    ];
    let set = read(
        &Bytes::from(lines.concat()),
        expected(&signature, Metric::Top1),
    );
    let set = set.expect("reads");
    assert_eq!(set.records(), 5);
    let mut seen = Vec::new();
    for part in set.parts(2) {
        let rows = set.rows(part.start, part.count).expect("rows");
        let values = rows[0].tensor.to_vec::<f32>().expect("floats");
        seen.push((rows[0].tensor.shape().to_vec(), values[0], part.begins));
    }
    let wanted = [
        (vec![2, 2], 1.0, true),
        (vec![1, 2], 9.0, false),
        (vec![1, 1], 3.0, true),
        (vec![1, 3], 6.0, true),
    ];
    assert_eq!(seen, wanted);
    let labels: Vec<_> = set
        .parts(9)
        .map(|part| part.labels.values.clone())
        .collect();
    let classes = [vec![0, 2, 1], vec![1], vec![1]].map(Expectation::Classes);
    assert_eq!(labels, classes);
    // Half of all are at most as long as those of two elements.
    assert_eq!(set.repeated(4).expect("repeats")[0].tensor.shape(), [4, 2]);
}

#[test]
fn a_set_without_labels_takes_those_that_are_put_in_front_of_it() {
    let npz = Archive::new().array("x", &[3, 2], &[0f32; 6]).zip();
    let lines = Bytes::from("{\"inputs\": {\"x\": [1, 2]}}\n".repeat(3));
    let table = Bytes::from("a,b\n1,2\n3,4\n5,6\n");
    for file in [npz, lines, table] {
        let set = top1(&file).expect("reads");
        assert!(!set.is_labelled());
        assert_eq!((set.records(), set.parts(2).count()), (3, 2));
        let labels = |classes: &[u64]| Labels {
            per_record: 1,
            values: Expectation::Classes(classes.to_vec()),
        };
        let labelled = with_labels(&file, &[labels(&[2, 0, 1])]).expect("is written");
        let set = top1(&labelled).expect("reads");
        assert!(set.is_labelled());
        assert_eq!(*set.labels(), labels(&[2, 0, 1]));
        for wrong in [vec![], vec![labels(&[1, 2])], vec![labels(&[0, 1, 2]); 2]] {
            let wrong = with_labels(&file, &wrong).expect("is written");
            assert!(matches!(top1(&wrong), Err(Invalid::Archive(_))));
        }
        for end in 0..labelled.len() - file.len() {
            assert!(top1(&labelled.slice(..end)).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn models_without_a_batch_dimension_take_one_record_at_a_time() {
    let signature = Signature {
        inputs: vec![spec("x", DataType::Fp32, &[Some(1), Some(2)])],
        outputs: vec![spec("y", DataType::Fp32, &[Some(1), Some(3)])],
        batched: false,
    };
    for (x, labels) in [(&[3, 2][..], &[3][..]), (&[3, 1, 2], &[3, 1])] {
        let archive = Archive::new()
            .array("x", x, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .array("labels", labels, &[0i64, 2, 1]);
        let set = read(&archive.zip(), expected(&signature, Metric::Top1)).expect("reads");
        let row = set.rows(1, 1).expect("row");
        let wanted = Tensor::from_elements(vec![1, 2], &[3f32, 4.0]).expect("fits");
        assert_eq!(row[0].tensor, wanted);
        assert_eq!(set.repeated(64).expect("one")[0].tensor.shape(), [1, 2]);
    }
}

#[test]
fn what_a_model_takes_one_of_may_lack_its_first_dimension() {
    // As recordings of any length with a state that has no dimension for records.
    let signature = Signature {
        inputs: vec![
            spec("x", DataType::Fp32, &[None, Some(2), None]),
            spec("state", DataType::Fp32, &[Some(2), Some(1)]),
            spec("length", DataType::Fp32, &[None]),
        ],
        outputs: vec![spec("y", DataType::Fp32, &[None, Some(3)])],
        batched: false,
    };
    let values: Vec<f32> = (0..12).map(|value| value as f32).collect();
    let archive = |x: &[u64], length: &[u64]| {
        Archive::new()
            .array("x", x, &values)
            .array("state", &[2, 2, 1], &[1f32, 2.0, 3.0, 4.0])
            .array("length", length, &[3f32, 3.0])
            .array("labels", &[2], &[0i64, 2])
    };
    for x in [&[2, 2, 3][..], &[2, 1, 2, 3]] {
        let archive = archive(x, &[2, 1]).zip();
        let set = read(&archive, expected(&signature, Metric::Top1)).expect("reads");
        let row = set.rows(1, 1).expect("row");
        let wanted = Tensor::from_elements(vec![1, 2, 3], &values[6..]).expect("fits");
        assert_eq!(row[0].tensor, wanted);
        assert_eq!(row[1].tensor.shape(), [2, 1]);
    }
    // A number alone may as well be an element of what the input takes.
    let alone = archive(&[2, 2, 3], &[2]).zip();
    let refused = read(&alone, expected(&signature, Metric::Top1));
    assert!(matches!(refused, Err(Invalid::Shape { .. })), "{refused:?}");
}

#[test]
fn flat_rows_and_strings_are_read() {
    let signature = Signature {
        inputs: vec![
            spec("image", DataType::Uint8, &[None, Some(2), Some(2)]),
            spec("text", DataType::Bytes, &[None, Some(1)]),
        ],
        outputs: vec![spec("y", DataType::Bytes, &[None, Some(1)])],
        batched: true,
    };
    let lines = r#"{"inputs": {"image": [1, 2, 3, 4], "text": ["a"]}, "label": ["b"]}
{"inputs": {"image": [[5, 6], [7, 255]], "text": ["é"]}, "label": ["c"]}"#;
    let set = read(&Bytes::from(lines), expected(&signature, Metric::Exact)).expect("reads");
    let rows = set.rows(0, 2).expect("rows");
    assert_eq!(rows[0].tensor.shape(), [2, 2, 2]);
    assert_eq!(
        rows[0].tensor.to_vec(),
        Some(vec![1u8, 2, 3, 4, 5, 6, 7, 255])
    );
    let result = read(&Bytes::from(lines), expected(&signature, Metric::Top1));
    assert!(matches!(result, Err(Invalid::MetricType { .. })));
}

#[test]
fn dimensions_of_one_may_be_written_or_left_out() {
    let column = || Archive::new().array("x", &[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let classes = column().array("labels", &[3, 1], &[0i64, 2, 1]).zip();
    let classes = top1(&classes).expect("reads");
    assert_eq!(classes.labels().values, Expectation::Classes(vec![0, 2, 1]));
    let mut signature = classifier();
    signature.outputs[0].shape = vec![None, Some(1)];
    let real = column().array("labels", &[3], &[0.5f64, 2.0, 1.0]).zip();
    let set = read(&real, expected(&signature, Metric::MeanAbsoluteError)).expect("reads");
    assert_eq!(set.labels().values, Expectation::Real(vec![0.5, 2.0, 1.0]));
    assert_eq!(set.labels().per_record, 1);
    let lines = "{\"inputs\": {\"x\": [1, 2]}, \"label\": 0.5}\n";
    let set = read(
        &lines.into(),
        expected(&signature, Metric::MeanAbsoluteError),
    );
    assert_eq!(
        set.expect("reads").labels().values,
        Expectation::Real(vec![0.5])
    );
    let wide = Archive::new()
        .array("x", &[3, 1, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
        .array("labels", &[3], &[0i64, 2, 1]);
    let rows = top1(&wide.zip()).expect("reads").rows(0, 3).expect("rows");
    assert_eq!(rows[0].tensor.shape(), [3, 2]);
}
