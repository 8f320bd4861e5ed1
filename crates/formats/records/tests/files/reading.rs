//! Reading.

use bytes::Bytes;
use npyz::WriterBuilder;
use proptest::prelude::*;
use sextant_records::{Error, Outline, Reader};
use sextant_types::{Code, Data, DataType, NamedTensor, Signature, Tensor, offline::RecordFormat};

use crate::support::{Store, block_on, model, numpy, one_input, path, spec};

const PAIR: &[Option<u64>] = &[Some(2)];

fn inputs(record: &sextant_records::Record) -> &[NamedTensor] {
    record.as_ref().expect("inputs")
}

fn floats(record: &sextant_records::Record) -> Vec<f32> {
    inputs(record)[0].tensor.to_vec().expect("floats")
}

#[tokio::test]
async fn arrays_of_numpy_are_read_row_by_row() {
    let store = Store::new();
    let signature = one_input(DataType::Fp32, PAIR);
    for name in ["floats.npy", "version2.npy", "big_endian.npy"] {
        store.put(name, numpy(name)).await;
        for (first, chunk) in [(0, 6), (0, 1), (2, 3), (5, 4), (6, 1)] {
            let records = store.read(name, &signature, (first, chunk)).await;
            let records = records.expect("records");
            assert_eq!(records.len() as u64, 6 - first);
            for (row, record) in records.iter().enumerate() {
                let at = (first as usize + row) * 2;
                let expected = [at as f32 / 4.0, (at + 1) as f32 / 4.0];
                assert_eq!(floats(record), expected);
                assert_eq!(inputs(record)[0].tensor.shape(), [1, 2]);
            }
        }
    }
    store.put("empty.npy", numpy("empty.npy")).await;
    let none = store.read("empty.npy", &signature, (0, 1)).await;
    assert!(none.expect("no records").is_empty());
}

#[tokio::test]
async fn a_file_that_is_a_record_is_read_as_it_is() {
    let store = Store::new();
    let signature = Signature {
        batched: false,
        ..one_input(DataType::Bytes, &[None])
    };
    let mut found = Vec::new();
    for (name, bytes) in [("a.png", "\u{89}PNG"), ("b.txt", ""), ("c.JPG", "\0")] {
        let path = store.put(name, bytes).await;
        found.extend(store.files.stat(&path).await.expect("it is there"));
    }
    let outline = Outline::of_files(found, &signature).expect("files");
    assert_eq!((outline.records, outline.chunk(2)), (3, 2));
    assert_eq!(outline.names(1, 2), ["b.txt", "c.JPG"]);
    let read = async || {
        let mut reader =
            Reader::open(&store.files, &path("a.png"), &outline, &signature, 1).await?;
        reader.read(2).await
    };
    let records = read().await.expect("records");
    let texts = records.iter().map(|record| {
        let tensor = &inputs(record)[0].tensor;
        match tensor.data() {
            Data::Strings(texts) => texts.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(),
            Data::Plain(_) => panic!("no strings: {tensor:?}"),
        }
    });
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [vec![b"".to_vec()], vec![b"\0".to_vec()]]
    );
    store.put("c.JPG", "longer").await;
    assert!(matches!(read().await, Err(Error::Changed { .. })));
    let numbers = one_input(DataType::Fp32, PAIR);
    let refused = store
        .read("a.png", &numbers, (0, 1))
        .await
        .expect_err("no strings");
    assert_eq!(refused.code(), Code::InvalidRecord);
}

#[tokio::test]
async fn every_element_type_of_numpy_keeps_its_values() {
    let store = Store::new();
    for (name, data_type) in [
        ("bool", DataType::Bool),
        ("uint8", DataType::Uint8),
        ("uint16", DataType::Uint16),
        ("uint32", DataType::Uint32),
        ("uint64", DataType::Uint64),
        ("int8", DataType::Int8),
        ("int16", DataType::Int16),
        ("int32", DataType::Int32),
        ("int64", DataType::Int64),
        ("float16", DataType::Fp16),
        ("float32", DataType::Fp32),
        ("float64", DataType::Fp64),
    ] {
        let name = format!("type_{name}.npy");
        store.put(&name, numpy(&name)).await;
        let records = store.read(&name, &one_input(data_type, PAIR), (0, 2)).await;
        let records = records.unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = |record: &sextant_records::Record| match inputs(record)[0].tensor.data() {
            Data::Plain(bytes) => bytes.clone(),
            Data::Strings(_) => Bytes::new(),
        };
        let (first, second) = (bytes(&records[0]), bytes(&records[1]));
        let half = first.len() / 2;
        // Zero and one, then one and zero.
        assert!(first[..half].iter().all(|byte| *byte == 0), "{name}");
        assert_eq!(first[..half], second[half..], "{name}");
        assert_eq!(first[half..], second[..half], "{name}");
        assert!(first[half..].iter().any(|byte| *byte != 0), "{name}");
    }
}

#[tokio::test]
async fn strings_of_numpy_lose_only_what_fills_them_up() {
    let store = Store::new();
    let signature = one_input(DataType::Bytes, PAIR);
    let expected: [(&str, Vec<[&[u8]; 2]>); 2] = [
        (
            "text.npy",
            vec![
                [b"a", b"bc"],
                ["é€".as_bytes(), b""],
                ["😀".as_bytes(), b"x"],
            ],
        ),
        ("bytes.npy", vec![[b"a", b"bc"], [b"\xff", b""]]),
    ];
    for (name, rows) in expected {
        store.put(name, numpy(name)).await;
        let records = store.read(name, &signature, (0, 2)).await.expect("records");
        assert_eq!(records.len(), rows.len());
        for (record, row) in records.iter().zip(rows) {
            let strings = row.map(Bytes::from_static).to_vec();
            let tensor = Tensor::from_strings(vec![1, 2], strings).expect("a tensor");
            assert_eq!(inputs(record), [NamedTensor::new("x", tensor)]);
        }
    }
}

#[tokio::test]
async fn an_archive_has_an_array_for_each_input() {
    let store = Store::new();
    let n = spec("n", DataType::Int64, &[]);
    let signature = model(vec![n, spec("x", DataType::Fp32, PAIR)], vec![]);
    store.put("two.npz", numpy("two.npz")).await;
    let records = store.read("two.npz", &signature, (1, 2)).await;
    for (row, record) in records.expect("records").iter().enumerate() {
        for input in inputs(record) {
            match input.name.as_str() {
                "n" => assert_eq!(input.tensor.to_vec::<i64>(), Some(vec![row as i64 + 1])),
                _ => assert_eq!(input.tensor.shape(), [1, 2]),
            }
        }
        assert_eq!(inputs(record).len(), 2);
    }
    for (name, word) in [
        ("uneven.npz", "one length"),
        ("foreign.npz", "no input `z`"),
        ("missing.npz", "no array for input `n`"),
        ("compressed.npz", "savez"),
    ] {
        store.put(name, numpy(name)).await;
        let error = store.read(name, &signature, (0, 1)).await;
        let error = error.expect_err("it is refused").to_string();
        assert!(error.contains(word), "{name}: {error}");
    }
}

#[tokio::test]
async fn what_the_model_cannot_take_is_refused_with_advice() {
    let store = Store::new();
    let pairs = one_input(DataType::Fp32, PAIR);
    let whole = one_input(DataType::Int32, PAIR);
    let two = model(
        vec![
            spec("x", DataType::Fp32, PAIR),
            spec("n", DataType::Int64, &[]),
        ],
        vec![],
    );
    let cut = numpy("floats.npy")[..150].to_vec();
    store.put("cut.npy", cut).await;
    store.put("nothing.npy", Vec::new()).await;
    for (name, signature, word) in [
        ("fortran.npy", &pairs, "ascontiguousarray"),
        ("doubles.npy", &whole, "astype"),
        ("one_dimension.npy", &pairs, "shape [1]"),
        ("structured.npy", &pairs, "structured"),
        ("floats.npy", &two, ".npz"),
        ("cut.npy", &pairs, "cut off"),
        ("nothing.npy", &pairs, "NumPy"),
    ] {
        if !["cut.npy", "nothing.npy"].contains(&name) {
            store.put(name, numpy(name)).await;
        }
        let error = store.read(name, signature, (0, 1)).await;
        let error = error.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidRecord);
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
    let missing = store.read("none.npy", &pairs, (0, 1)).await;
    assert_eq!(
        missing.expect_err("there is none").code(),
        Code::ArtefactNotFound
    );
}

#[tokio::test]
async fn a_header_that_promises_more_than_a_file_can_hold_is_refused() {
    let store = Store::new();
    let any = [None];
    for (descr, shape, data_type, word) in [
        ("<f4", "(1000000000000, 0)", DataType::Fp32, "no elements"),
        ("<f4", "(1000000000000, 2)", DataType::Fp32, "cut off"),
        (
            "<U4611686018427387904",
            "(2, 1)",
            DataType::Bytes,
            "not supported",
        ),
        ("<U1000000000000000000", "(9, 9)", DataType::Bytes, "large"),
    ] {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        store.put("promise.npy", bytes).await;
        let signature = one_input(data_type, &any);
        let read = store.read("promise.npy", &signature, (0, 1)).await;
        let reason = read.expect_err("refused").to_string();
        assert!(reason.contains(word), "{reason}");
    }
}

#[tokio::test]
async fn a_file_that_changed_since_is_refused() {
    let store = Store::new();
    let signature = one_input(DataType::Fp32, PAIR);
    let line = "{\"x\": [1, 2]}\n";
    let path = store.put("a.jsonl", line.repeat(4)).await;
    let format = RecordFormat::Jsonl;
    let outline = Outline::scan(&store.files, &path, format, &signature).await;
    let outline = outline.expect("an outline");
    store.put("a.jsonl", line.repeat(3)).await;
    let opened = Reader::open(&store.files, &path, &outline, &signature, 0).await;
    assert!(matches!(opened.err(), Some(Error::Changed { .. })));
}

#[tokio::test]
async fn lines_are_found_again_far_into_a_large_file() {
    const LINES: u64 = 36_000;
    let store = Store::new();
    let signature = one_input(DataType::Fp32, PAIR);
    let padding = " ".repeat(980);
    let text: String = (0..LINES)
        .map(|line| format!("{{\"x\": [{line}, {padding}0]}}\n"))
        .collect();
    let path = store.put("large.jsonl", text).await;
    let format = RecordFormat::Jsonl;
    let outline = Outline::scan(&store.files, &path, format, &signature).await;
    let outline = outline.expect("an outline");
    assert_eq!((outline.records, outline.marks.len()), (LINES, 2));
    for first in [0, 1, 16_900, 20_000, LINES - 1] {
        let reader = Reader::open(&store.files, &path, &outline, &signature, first).await;
        let records = reader.expect("a reader").read(1).await.expect("a record");
        assert_eq!(floats(&records[0]), [first as f32, 0.0]);
    }
}

#[tokio::test]
async fn rows_of_a_table_are_read_as_validation_sets_are() {
    let store = Store::new();
    let two = model(
        vec![
            spec("x", DataType::Fp32, PAIR),
            spec("text", DataType::Bytes, &[]),
        ],
        vec![],
    );
    // Columns in another order, a label, a cell over two lines, a missing value, a row that is wrong.
    let table = "text,label,x.1,x.0\r\n\"a, \"\"b\"\"\nc\",7,2,1\r\n\r\nplain,,,0.5\nbad,1,two,1\nshort,1\n\
                 last,0,4,3";
    store.put("table.csv", table).await;
    let records = store
        .read("table.csv", &two, (0, 2))
        .await
        .expect("records");
    assert_eq!(records.len(), 5);
    let values = |at: usize| -> (Vec<f32>, String) {
        let record = inputs(&records[at]);
        let Data::Strings(strings) = record[1].tensor.data() else {
            panic!("no strings");
        };
        let text = String::from_utf8_lossy(strings.get(0).expect("a text")).into_owned();
        (record[0].tensor.to_vec().expect("floats"), text)
    };
    assert_eq!(values(0), (vec![1.0, 2.0], "a, \"b\"\nc".to_owned()));
    let (numbers, text) = values(1);
    assert!(numbers[0] == 0.5 && numbers[1].is_nan() && text == "plain");
    assert_eq!(values(4), (vec![3.0, 4.0], "last".to_owned()));
    let refused = |at: usize| records[at].as_ref().expect_err("it is wrong").clone();
    assert!(
        refused(2).contains("`x` has `two` where FP32 is needed"),
        "{}",
        refused(2)
    );
    assert!(refused(3).contains("2` cells"), "{}", refused(3));
    // Of a model with one input all other columns are its elements; another place in the file gives the same rows.
    let one = one_input(DataType::Fp32, PAIR);
    store
        .put("plain.csv", "a,b,labels\n1,2,0\n3,4,1\n5,6,0\n")
        .await;
    for first in 0..3 {
        let records = store
            .read("plain.csv", &one, (first, 1))
            .await
            .expect("records");
        let wanted = [first as f32 * 2.0 + 1.0, first as f32 * 2.0 + 2.0];
        assert_eq!(floats(&records[0]), wanted);
    }
    for (name, text, why) in [
        ("empty.csv", "", "its first row names the columns"),
        ("wide.csv", "a,b,c\n1,2,3\n", "`3` columns"),
        ("gap.csv", "x.0,x.2\n1,2\n", "counted from 0"),
    ] {
        store.put(name, text).await;
        let error = store
            .read(name, &one, (0, 1))
            .await
            .expect_err("it is refused");
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
}

#[tokio::test]
async fn booleans_are_read_from_lines_and_from_tables() {
    let store = Store::new();
    let signature = one_input(DataType::Bool, PAIR);
    store
        .put("flags.jsonl", "{\"x\": [true, false]}\n{\"x\": [1, 0]}\n")
        .await;
    store
        .put("flags.csv", "x.0,x.1\nTrue,False\n1,0\ntrue,2\n")
        .await;
    for (name, are_read) in [
        ("flags.jsonl", vec![true, false]),
        ("flags.csv", vec![true, true, false]),
    ] {
        let records = store.read(name, &signature, (0, 2)).await;
        let records = records.expect("records");
        assert_eq!(records.len(), are_read.len(), "{name}");
        for (record, is_read) in records.iter().zip(are_read) {
            assert_eq!(record.is_ok(), is_read, "{name}: {record:?}");
            for input in record.iter().flatten() {
                let wanted = Data::Plain(Bytes::from_static(&[1, 0]));
                assert_eq!(input.tensor.data(), &wanted, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn quotation_marks_and_spaces_inside_cells_are_text() {
    let store = Store::new();
    let signature = one_input(DataType::Bytes, &[]);
    let table = "text\n5\" pipe\n  plain \n3\" nail\r\n\"a\"\"\nb\"\nlast";
    store.put("marks.csv", table).await;
    let wanted = ["5\" pipe", "  plain ", "3\" nail", "a\"\nb", "last"];
    let text = |record: &sextant_records::Record| {
        let texts = inputs(record)[0].tensor.texts().expect("strings");
        String::from_utf8_lossy(texts.get(0).expect("a text")).into_owned()
    };
    for first in 0..wanted.len() {
        let read = store.read("marks.csv", &signature, (first as u64, 2)).await;
        let texts: Vec<String> = read.expect("records").iter().map(text).collect();
        assert_eq!(texts, wanted[first..]);
    }
    store.put("returns.csv", "text\na\rb\nc\n").await;
    let records = store.read("returns.csv", &signature, (0, 2)).await;
    let records = records.expect("records");
    let refused = records[0].as_ref().expect_err("two rows in one");
    assert!(refused.contains("carriage return"), "{refused}");
    assert_eq!(text(&records[1]), "c");
    for (name, table, why) in [
        (
            "open.csv",
            "text\na\n\"b\nc\n",
            "byte 7 has a quotation mark",
        ),
        ("mac.csv", "text\ra\rb\r", "carriage return"),
    ] {
        store.put(name, table).await;
        let error = store.read(name, &signature, (0, 1)).await;
        let error = error.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidRecord);
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
}

#[tokio::test]
async fn rows_are_found_again_far_into_a_large_table() {
    const ROWS: u64 = 36_000;
    let store = Store::new();
    let signature = one_input(DataType::Fp32, PAIR);
    let padding = "0".repeat(980);
    let rows = (0..ROWS).map(|row| format!("{row},0.{padding}\n"));
    let text = format!("a,b\n{}", rows.collect::<String>());
    let path = store.put("large.csv", text).await;
    let outline = Outline::scan(&store.files, &path, RecordFormat::Csv, &signature).await;
    let outline = outline.expect("an outline");
    assert_eq!((outline.records, outline.marks.len()), (ROWS, 2));
    for first in [0, 1, 16_900, 20_000, ROWS - 1] {
        let reader = Reader::open(&store.files, &path, &outline, &signature, first).await;
        let records = reader.expect("a reader").read(1).await.expect("a record");
        assert_eq!(floats(&records[0]), [first as f32, 0.0]);
    }
}

/// Lines as people write them, and whether they hold a record.
fn lines() -> impl Strategy<Value = Vec<(String, bool)>> {
    let record = (-1000i32..1000).prop_map(|n| (format!("{{\"x\": [{n}, 1]}}"), true));
    let blank = "[ \t\r]{0,3}".prop_map(|line| (line, false));
    let wrong = "[a-z]{1,8}".prop_map(|line| (line, true));
    prop::collection::vec(prop_oneof![3 => record, 1 => blank, 1 => wrong], 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_the_same_however_they_are_cut(
        lines in lines(),
        end in prop::sample::select(vec!["\n", "\r\n"]),
        closed in any::<bool>(),
        first in 0u64..40,
        chunk in 1u32..9,
    ) {
        let mut text: String = lines.iter().map(|(line, _)| format!("{line}{end}")).collect();
        if !closed {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
        }
        let expected: Vec<&str> = lines
            .iter()
            .filter(|(_, holds)| *holds)
            .map(|(line, _)| line.trim())
            .collect();
        let signature = one_input(DataType::Fp32, PAIR);
        let first = first.min(expected.len() as u64);
        let records = block_on(async {
            let store = Store::new();
            store.put("a.jsonl", text).await;
            store.read("a.jsonl", &signature, (first, chunk)).await
        });
        let records = records.expect("records");
        let expected = &expected[first as usize..];
        prop_assert_eq!(records.len(), expected.len());
        for (record, line) in records.iter().zip(expected) {
            prop_assert_eq!(record.is_ok(), line.starts_with('{'));
            if record.is_ok() {
                let number: f32 = line[7..].split(',').next().unwrap_or("").parse().expect("a number");
                prop_assert_eq!(floats(record), vec![number, 1.0]);
            }
        }
    }

    #[test]
    fn arrays_are_the_same_however_they_are_cut(
        rows in 0usize..30,
        row in prop::collection::vec(0u64..4, 0..3),
        first in 0u64..30,
        chunk in 1u32..9,
    ) {
        let size = row.iter().product::<u64>() as usize;
        let values: Vec<i32> = (0..rows * size).map(|value| value as i32).collect();
        let shape: Vec<u64> = [&[rows as u64], &row[..]].concat();
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().shape(&shape);
        let mut writer = options.writer(&mut bytes).begin_nd().expect("a header");
        writer.extend(values.iter().copied()).expect("elements");
        writer.finish().expect("an array");
        let dims: Vec<Option<u64>> = row.iter().copied().map(Some).collect();
        let signature = one_input(DataType::Int32, &dims);
        let first = first.min(rows as u64);
        let records = block_on(async {
            let store = Store::new();
            store.put("a.npy", bytes).await;
            store.read("a.npy", &signature, (first, chunk)).await
        });
        let records = records.expect("records");
        prop_assert_eq!(records.len(), rows - first as usize);
        for (at, record) in records.iter().enumerate() {
            let start = (first as usize + at) * size;
            let tensor = &inputs(record)[0].tensor;
            prop_assert_eq!(tensor.to_vec::<i32>(), Some(values[start..start + size].to_vec()));
        }
    }

    #[test]
    fn damaged_files_end_in_an_error_or_in_records(
        name in prop::sample::select(vec!["floats.npy", "two.npz", "text.npy", "version2.npy"]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = numpy(name);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let signature = match name {
            "text.npy" => one_input(DataType::Bytes, PAIR),
            "two.npz" => Signature {
                inputs: vec![spec("x", DataType::Fp32, PAIR), spec("n", DataType::Int64, &[])],
                outputs: vec![],
                batched: true,
            },
            _ => one_input(DataType::Fp32, PAIR),
        };
        // Whatever it is, it comes back.
        block_on(async {
            let store = Store::new();
            store.put(name, bytes).await;
            let format = RecordFormat::of_path(name).expect("a suffix");
            let scanned = Outline::scan(&store.files, &path(name), format, &signature).await;
            if scanned.is_ok_and(|outline| outline.records < 1000) {
                drop(store.read(name, &signature, (0, 3)).await);
            }
        });
    }
}
