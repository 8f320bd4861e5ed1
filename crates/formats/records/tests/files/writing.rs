//! Writing: chunks of answers become parts, parts become a file.

use std::io::Cursor;

use ::parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
};
use bytes::Bytes;
use npyz::{NpyFile, npz::NpzArchive};
use proptest::prelude::*;
use serde_json::{Value, json};
use sextant_formats::zip::Archive;
use sextant_objects::ObjectPath;
use sextant_records::{
    Chunk, Error, Join, PartHeader, RecordAnswer, RecordFailure, Tally, check_output,
};
use sextant_types::{Code, Data, DataType, NamedTensor, Signature, Tensor, offline::RecordFormat};

use crate::support::{Store, block_on, model, path, spec};

fn signature() -> Signature {
    let outputs = vec![
        spec("scores", DataType::Fp32, &[Some(3)]),
        spec("class", DataType::Int64, &[]),
    ];
    model(vec![], outputs)
}

fn only_scores() -> Signature {
    model(vec![], vec![spec("scores", DataType::Fp32, &[Some(3)])])
}

/// The answer to record `n`; every number below `failing` in `0..4` of the last two bits fails.
fn answer(n: u64, failing: u64, outputs: usize) -> RecordAnswer {
    if n % 4 < failing {
        return Err(RecordFailure {
            code: Code::InvalidRecord,
            message: format!("record {n}"),
        });
    }
    let scores = [n as f32, n as f32 + 0.5, -1.0];
    let scores = Tensor::from_elements(vec![1, 3], &scores).expect("a tensor");
    let class = Tensor::from_elements(vec![1], &[n as i64]).expect("a tensor");
    let named = [("scores", scores), ("class", class)];
    let named = named.into_iter().take(outputs);
    Ok(named
        .map(|(name, tensor)| NamedTensor::new(name, tensor))
        .collect())
}

fn part(chunk: u64) -> Result<ObjectPath, sextant_objects::InvalidPath> {
    ObjectPath::parse(&format!("out.parts/{chunk}"))
}

/// Writes `answers` in chunks of these sizes over and over, joins them, and returns the file and
/// the lines about failures.
async fn write(
    store: &Store,
    format: RecordFormat,
    answers: &[RecordAnswer],
    (sizes, signature): (&[usize], &Signature),
) -> Result<(Vec<u8>, Option<String>), Error> {
    let mut tally = Tally::default();
    let (mut chunks, mut first) = (0, 0);
    while first < answers.len() {
        let size = sizes[chunks as usize % sizes.len()];
        let end = (first + size).min(answers.len());
        let chunk = Chunk {
            first: first as u64,
            answers: &answers[first..end],
            batched: true,
            names: &[],
        };
        let bytes = tally.encode(format, chunk)?;
        store
            .files
            .put(&part(chunks).expect("a path"), bytes)
            .await?;
        let header = PartHeader::read(&store.files, &part(chunks).expect("a path")).await?;
        // What a later runner takes up.
        tally = header.tally;
        (chunks, first) = (chunks + 1, end);
    }
    let failed = answers.iter().filter(|answer| answer.is_err()).count() as u64;
    assert_eq!(tally.failed, failed);
    let join = Join::new(&store.files, format, 0..chunks, part, signature).await?;
    let yes = || std::future::ready(true);
    let bytes = join.write(&path("out"), yes).await?.expect("confirmed");
    let whole = store.files.get(&path("out")).await?;
    assert_eq!(whole.len() as u64, bytes);
    let errors = match join.has_errors() {
        false => None,
        true => {
            join.write_errors(&path("errors"), yes).await?;
            let text = store.files.get(&path("errors")).await?;
            Some(String::from_utf8(text.to_vec()).expect("text"))
        }
    };
    Ok((whole.to_vec(), errors))
}

/// Those that this build writes.
fn formats() -> Vec<RecordFormat> {
    let has_parquet = cfg!(feature = "parquet");
    let all = RecordFormat::WRITTEN.into_iter();
    all.filter(|format| *format != RecordFormat::Parquet || has_parquet)
        .collect()
}

/// The rows of a Parquet file.
fn rows(bytes: Vec<u8>) -> Vec<Value> {
    let file = SerializedFileReader::new(Bytes::from(bytes)).expect("a file");
    let rows = file.get_row_iter(None).expect("rows");
    let row = |row: Result<Row, _>| {
        let row = row.expect("a row");
        let columns = row.get_column_iter();
        let columns = columns.map(|(name, field)| (name.clone(), value(field)));
        Value::Object(columns.collect())
    };
    rows.map(row).collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(it) => json!(it),
        Field::Byte(it) => json!(it),
        Field::Long(it) => json!(it),
        Field::ULong(it) => json!(it),
        Field::Float(it) => json!(it),
        Field::Str(it) => json!(it),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        other => panic!("nobody writes {other:?}"),
    }
}

fn array<T: npyz::Deserialize>(bytes: &[u8]) -> (Vec<u64>, Vec<T>) {
    let file = NpyFile::new(bytes).expect("an array");
    let shape = file.shape().to_vec();
    (shape, file.into_vec().expect("elements"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_same_answers_make_the_same_file_however_they_are_cut(
        records in 0u64..40,
        failing in 0u64..5,
        sizes in prop::collection::vec(1usize..9, 1..4),
        format in prop::sample::select(formats()),
    ) {
        let outputs = if format == RecordFormat::Npy { 1 } else { 2 };
        let signature = if outputs == 1 { only_scores() } else { signature() };
        let answers: Vec<RecordAnswer> = (0..records).map(|n| answer(n, failing, outputs)).collect();
        let (one, many) = block_on(async {
            let whole = write(&Store::new(), format, &answers, (&[1000], &signature)).await;
            let many = write(&Store::new(), format, &answers, (&sizes, &signature)).await;
            (whole.expect("a file"), many.expect("a file"))
        });
        prop_assert_eq!(&one, &many);
        let (bytes, errors) = one;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let row = |n: u64| if n % 4 < failing { [0.0; 3] } else { [n as f32, n as f32 + 0.5, -1.0] };
        let scores: Vec<f32> = (0..records).flat_map(row).collect();
        match format {
            RecordFormat::Jsonl => {
                let text = String::from_utf8(bytes).expect("text");
                prop_assert_eq!(text.lines().count() as u64, records);
                for (n, line) in text.lines().enumerate() {
                    let line: Value = serde_json::from_str(line).expect("JSON");
                    prop_assert_eq!(&line["index"], n);
                    prop_assert_eq!(line["error"].is_object(), answers[n].is_err());
                }
            }
            RecordFormat::Npy => {
                prop_assert_eq!(array::<f32>(&bytes), (vec![records, 3], scores));
            }
            RecordFormat::Npz => {
                let mut archive = NpzArchive::new(Cursor::new(bytes)).expect("an archive");
                let found = archive.by_name("scores").expect("readable").expect("there");
                prop_assert_eq!(found.shape(), [records, 3]);
                prop_assert_eq!(found.into_vec::<f32>().expect("elements"), scores);
                let found = archive.by_name("class").expect("readable").expect("there");
                let class = |n: u64| if n % 4 < failing { 0 } else { n as i64 };
                let classes: Vec<i64> = (0..records).map(class).collect();
                prop_assert_eq!(found.into_vec::<i64>().expect("elements"), classes);
            }
            RecordFormat::Csv => {
                let text = String::from_utf8(bytes).expect("text");
                let row = |n: u64| match n % 4 < failing {
                    true => ",,,\n".to_owned(),
                    false => format!("{n}.0,{n}.5,-1.0,{n}\n"),
                };
                let rows: String = (0..records).map(row).collect();
                prop_assert_eq!(text, format!("scores.0,scores.1,scores.2,class\n{rows}"));
            }
            RecordFormat::Parquet => {
                let row = |n: u64| match n % 4 < failing {
                    true => json!({"scores": null, "class": null}),
                    false => json!({"scores": [n as f32, n as f32 + 0.5, -1.0], "class": n}),
                };
                prop_assert_eq!(rows(bytes), (0..records).map(row).collect::<Vec<_>>());
            }
            RecordFormat::File => unreachable!("it is only read"),
        }
        let lines = errors.map_or(0, |errors| errors.lines().count());
        prop_assert_eq!(lines, if format == RecordFormat::Jsonl { 0 } else { failed });
    }
}

#[tokio::test]
async fn an_output_that_is_not_confirmed_does_not_appear() {
    let store = Store::new();
    let answers: Vec<RecordAnswer> = (0..5).map(|n| answer(n, 0, 2)).collect();
    let sizes: &[usize] = &[2];
    let format = RecordFormat::Jsonl;
    let written = write(&store, format, &answers, (sizes, &signature())).await;
    let (before, _) = written.expect("a file");
    let join = Join::new(&store.files, format, 0..2, part, &signature()).await;
    let join = join.expect("parts");
    let no = || std::future::ready(false);
    assert_eq!(join.write(&path("out"), no).await.expect("asked"), None);
    assert_eq!(join.write(&path("new"), no).await.expect("asked"), None);
    let after = store.files.get(&path("out")).await.expect("the old one");
    assert_eq!(after, before);
    assert_eq!(store.files.stat(&path("new")).await.expect("asked"), None);
}

#[tokio::test]
async fn damage_in_a_part_is_found_before_the_file_appears() {
    let store = Store::new();
    let answers: Vec<RecordAnswer> = (0..6).map(|n| answer(n, 1, 2)).collect();
    for format in formats().into_iter().filter(|f| *f != RecordFormat::Npy) {
        let written = write(&store, format, &answers, (&[3], &signature())).await;
        written.expect("a file");
        let second = part(1).expect("a path");
        let sound = store.files.get(&second).await.expect("the part");
        let header = PartHeader::read(&store.files, &second).await;
        assert_eq!(header.expect("sound").records, 3);
        // The lines of failures come last and are not joined here.
        for damage in [sound.len() - 200, 0] {
            let mut bytes = sound.to_vec();
            bytes[damage] ^= 1;
            store.put(second.as_str(), bytes).await;
            let join = Join::new(&store.files, format, 0..2, part, &signature()).await;
            let yes = || std::future::ready(true);
            let ended = match join {
                Ok(join) => join.write(&path("damaged"), yes).await.map(drop),
                Err(error) => Err(error),
            };
            assert!(matches!(ended, Err(Error::Part { .. })), "{ended:?}");
            let appeared = store.files.stat(&path("damaged")).await;
            assert_eq!(appeared.expect("asked"), None);
        }
        store
            .put(second.as_str(), sound[..sound.len() - 30].to_vec())
            .await;
        let join = Join::new(&store.files, format, 0..2, part, &signature()).await;
        let join = join.expect("headers are whole");
        let yes = || std::future::ready(true);
        let ended = match format {
            RecordFormat::Jsonl => join.write(&path("damaged"), yes).await,
            _ => join.write_errors(&path("damaged"), yes).await,
        };
        assert!(ended.is_err(), "{ended:?}");
    }
}

#[tokio::test]
async fn answers_that_are_no_array_are_refused_with_advice() {
    let refused = |format, outputs: Vec<_>| {
        let error = check_output(format, &model(vec![], outputs));
        let error = error.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidRequest);
        error.to_string()
    };
    let scores = spec("scores", DataType::Fp32, &[None]);
    let two = vec![scores.clone(), scores.clone()];
    assert!(refused(RecordFormat::Npy, two).contains("npz"));
    assert!(check_output(RecordFormat::Npz, &model(vec![], vec![scores])).is_ok());
    let uneven: Vec<RecordAnswer> = [2usize, 3]
        .map(|size| {
            let tensor = Tensor::from_elements(vec![1, size], &vec![0f32; size]);
            Ok(vec![NamedTensor::new("scores", tensor.expect("a tensor"))])
        })
        .to_vec();
    let store = Store::new();
    let parts: (&[usize], _) = (&[1], &only_scores());
    for format in [RecordFormat::Npy, RecordFormat::Csv] {
        let error = write(&store, format, &uneven, parts).await;
        assert!(error.expect_err("uneven").to_string().contains("jsonl"));
    }
}

#[tokio::test]
async fn an_output_that_the_first_record_lacks_is_not_left_out() {
    let store = Store::new();
    let (answers, signature) = ([answer(0, 0, 1), answer(1, 0, 2)], signature());
    for sizes in [&[1][..], &[2]] {
        for format in [RecordFormat::Npz, RecordFormat::Csv, RecordFormat::Parquet] {
            let error = write(&store, format, &answers, (sizes, &signature)).await;
            let error = error.expect_err("not every record has `class`").to_string();
            assert!(error.contains("jsonl"), "{error}");
        }
        let lines = write(&store, RecordFormat::Jsonl, &answers, (sizes, &signature));
        let (bytes, _) = lines.await.expect("a file");
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("\"class\"").count(), 1, "{text}");
    }
}

/// Labels of different lengths, one of them beyond ASCII, one missing.
fn labels() -> (Vec<RecordAnswer>, Signature) {
    let label = |text: &&str| {
        let strings = vec![Bytes::copy_from_slice(text.as_bytes())];
        let tensor = Tensor::from_strings(vec![1], strings).expect("a tensor");
        Ok(vec![NamedTensor::new("label", tensor)])
    };
    let mut answers: Vec<RecordAnswer> = ["sea", "", "a \"b\",\u{1F41F}c", "x"]
        .iter()
        .map(label)
        .collect();
    let refused = RecordFailure {
        code: Code::InvalidRecord,
        message: "no record".to_owned(),
    };
    answers.insert(0, Err(refused.clone()));
    answers.insert(3, Err(refused));
    (
        answers,
        model(vec![], vec![spec("label", DataType::Bytes, &[])]),
    )
}

#[tokio::test]
async fn texts_are_as_wide_as_the_longest_in_an_array() {
    let (answers, signature) = labels();
    let expected = ["", "sea", "", "", "a \"b\",\u{1F41F}c", "x"];
    for sizes in [&[1][..], &[2], &[100]] {
        for format in [RecordFormat::Npy, RecordFormat::Npz] {
            let written = write(&Store::new(), format, &answers, (sizes, &signature)).await;
            let (bytes, errors) = written.expect("a file");
            assert_eq!(errors.map(|errors| errors.lines().count()), Some(2));
            // The reader of archives compares the checksums.
            let array = match format {
                RecordFormat::Npy => bytes,
                _ => {
                    let archive = Archive::open(bytes.into()).expect("an archive");
                    let member = &archive.entries()[0];
                    archive
                        .read(member, 1 << 20)
                        .expect("its checksum is right")
                        .to_vec()
                }
            };
            assert!(array.windows(5).any(|it| it == b"'<U8'"));
            let tensor = sextant_formats::npy::read(&array.into()).expect("an array");
            let Data::Strings(strings) = tensor.data() else {
                panic!("no texts");
            };
            assert_eq!(tensor.shape(), [6]);
            assert!(strings.iter().eq(expected.map(str::as_bytes)));
        }
    }
}

#[tokio::test]
async fn texts_are_quoted_in_a_table() {
    let (answers, signature) = labels();
    let sizes: &[usize] = &[1];
    let format = RecordFormat::Csv;
    let written = write(&Store::new(), format, &answers, (sizes, &signature)).await;
    let (bytes, _) = written.expect("a file");
    let expected = "label\n\"\"\nsea\n\"\"\n\"\"\n\"a \"\"b\"\",\u{1F41F}c\"\nx\n";
    assert_eq!(String::from_utf8(bytes).expect("text"), expected);
}

#[tokio::test]
async fn a_table_without_one_answer_takes_its_columns_from_the_model() {
    let answers: Vec<RecordAnswer> = (0..3).map(|_| answer(0, 4, 2)).collect();
    let sizes: &[usize] = &[2];
    let format = RecordFormat::Csv;
    let written = write(&Store::new(), format, &answers, (sizes, &signature())).await;
    let (bytes, errors) = written.expect("a file");
    let text = String::from_utf8(bytes).expect("text");
    assert_eq!(text, "scores.0,scores.1,scores.2,class\n,,,\n,,,\n,,,\n");
    assert_eq!(errors.map(|errors| errors.lines().count()), Some(3));
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn lists_are_as_deep_as_a_record_has_dimensions() {
    let answer = |n: u8| -> RecordAnswer {
        let boxes: Vec<i8> = (0..6).map(|at| at - n.cast_signed()).collect();
        let tensors = [
            ("boxes", Tensor::from_elements(vec![1, 2, 3], &boxes)),
            (
                "half",
                Tensor::from_elements(vec![1, 1], &[half::f16::from_f32(0.5)]),
            ),
            ("empty", Tensor::from_elements::<f32>(vec![1, 0], &[])),
            (
                "text",
                Tensor::from_strings(vec![1, 2], [format!("a{n}"), "\u{1F41F}".to_owned()]),
            ),
            ("large", Tensor::from_elements(vec![1], &[u64::MAX])),
            (
                "sure",
                Tensor::from_bytes(DataType::Bool, vec![1], Bytes::from_static(&[1])),
            ),
        ];
        let tensors = tensors.into_iter();
        let named = tensors.map(|(name, it)| NamedTensor::new(name, it.expect("a tensor")));
        Ok(named.collect())
    };
    let answers: Vec<RecordAnswer> = (0..3).map(answer).collect();
    let format = RecordFormat::Parquet;
    let parts: (&[usize], _) = (&[2], &signature());
    let (bytes, _) = write(&Store::new(), format, &answers, parts)
        .await
        .expect("a file");
    let expected = (0..3).map(|n| {
        json!({
            "boxes": [[-n, 1 - n, 2 - n], [3 - n, 4 - n, 5 - n]], "half": 0.5, "empty": [],
            "text": [format!("a{n}"), "\u{1F41F}"], "large": u64::MAX, "sure": true,
        })
    });
    assert_eq!(rows(bytes), expected.collect::<Vec<_>>());
}
