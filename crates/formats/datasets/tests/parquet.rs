//! Parquet files become CSV or JSON lines.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use ::parquet::{
    basic::{Compression, Encoding},
    column::writer::ColumnWriter,
    data_type::{ByteArray, ByteArrayType, Int64Type},
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use bytes::Bytes;
use sextant_datasets::{
    Error,
    parquet::{Format, Ranges, Rows, convert},
};

/// The values of a column, with the levels of those that are optional or lists.
enum Column<'a> {
    Doubles(&'a [f64], Option<(&'a [i16], &'a [i16])>),
    Longs(&'a [i64], Option<(&'a [i16], &'a [i16])>),
    Texts(&'a [&'a str], Option<(&'a [i16], &'a [i16])>),
}

fn write(path: &Path, schema: &str, compression: Compression, columns: &[Column<'_>]) {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .build();
    let file = File::create(path).expect("a file");
    let mut writer =
        SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    for column in columns {
        let mut chunk = group.next_column().expect("no error").expect("a column");
        match (chunk.untyped(), column) {
            (ColumnWriter::DoubleColumnWriter(to), Column::Doubles(values, levels)) => {
                let (defined, repeated) = levels.unzip();
                to.write_batch(values, defined, repeated).expect("written");
            }
            (ColumnWriter::Int64ColumnWriter(to), Column::Longs(values, levels)) => {
                let (defined, repeated) = levels.unzip();
                to.write_batch(values, defined, repeated).expect("written");
            }
            (ColumnWriter::ByteArrayColumnWriter(to), Column::Texts(values, levels)) => {
                let values: Vec<ByteArray> = values.iter().map(|it| (*it).into()).collect();
                let (defined, repeated) = levels.unzip();
                to.write_batch(&values, defined, repeated).expect("written");
            }
            _ => panic!("the schema says another type"),
        }
        chunk.close().expect("closed");
    }
    group.close().expect("closed");
    writer.close().expect("closed");
}

fn converted(path: &Path) -> Result<(Format, String), Error> {
    let mut out = Vec::new();
    let format = convert(File::open(path).expect("the file"), &mut out)?;
    Ok((format, String::from_utf8(out).expect("text")))
}

#[test]
fn a_data_frame_becomes_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("flowers.parquet");
    let schema = "message frame {
        optional double width; required int64 rings; required binary label (UTF8); required int64 __index_level_0__;
    }";
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
    ] {
        write(
            &path,
            schema,
            compression,
            &[
                // The second is missing.
                Column::Doubles(&[5.1, f64::NAN], Some((&[1, 0, 1], &[0, 0, 0]))),
                Column::Longs(&[7, -1, i64::MAX], None),
                Column::Texts(&["setosa", "a, \"b\"", ""], None),
                Column::Longs(&[0, 1, 2], None),
            ],
        );
        let (format, text) = converted(&path).expect("it is read");
        assert_eq!(format, Format::Csv);
        let expected =
            "width,rings,label\n5.1,7,setosa\n,-1,\"a, \"\"b\"\"\"\n,9223372036854775807,\n";
        assert_eq!(text, expected);
    }
}

#[test]
fn lists_become_json_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("texts.parquet");
    let schema = "message set {
        required group tokens (LIST) { repeated group list { required int64 element; } }
        required int64 label;
    }";
    write(
        &path,
        schema,
        Compression::SNAPPY,
        &[
            Column::Longs(&[3, 1, 4, 1, 5], Some((&[1; 5], &[0, 1, 0, 1, 1]))),
            Column::Longs(&[1, 0], None),
        ],
    );
    let (format, text) = converted(&path).expect("it is read");
    assert_eq!(format, Format::JsonLines);
    let expected = "{\"inputs\":{\"tokens\":[3,1]},\"label\":1}\n{\"inputs\":{\"tokens\":[4,1,5]},\"label\":0}\n";
    assert_eq!(text, expected);
}

#[test]
fn what_no_tensor_holds_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("when.parquet");
    let schema = "message set { required int64 when (TIMESTAMP_MILLIS); required int64 label; }";
    let columns = [Column::Longs(&[1], None), Column::Longs(&[1], None)];
    write(&path, schema, Compression::UNCOMPRESSED, &columns);
    let error = converted(&path).expect_err("a time").to_string();
    assert_eq!(
        error,
        "row 1, column `when`: it holds dates or times: make numbers or text of them first"
    );
}

#[test]
fn missing_values_and_infinities_are_written_as_json_has_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("holes.parquet");
    let schema = "message set {
        required group x (LIST) { repeated group list { required double element; } }
    }";
    let columns = [Column::Doubles(
        &[f64::NAN, f64::INFINITY],
        Some((&[1, 1], &[0, 1])),
    )];
    write(&path, schema, Compression::UNCOMPRESSED, &columns);
    let (_, text) = converted(&path).expect("it is read");
    assert_eq!(text, "{\"inputs\":{\"x\":[null,\"Infinity\"]}}\n");
}

#[test]
fn a_row_that_takes_too_much_memory_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("texts.parquet");
    let schema = "message set {
        required group texts (LIST) { repeated group list { required binary element (UTF8); } }
    }";
    let long = "x".repeat(1 << 19);
    for (count, fits) in [(100, true), (2200, false)] {
        // Any of them might be the long one: all stand in one dictionary.
        let mut texts = vec![""; count];
        texts[0] = &long;
        let (defined, mut repeated) = (vec![1; count], vec![1; count]);
        repeated[0] = 0;
        let columns = [Column::Texts(&texts, Some((&defined, &repeated)))];
        write(&path, schema, Compression::SNAPPY, &columns);
        assert!(std::fs::metadata(&path).expect("the file").len() < 1 << 19);
        match converted(&path) {
            Ok((_, text)) => assert!(fits && text.len() > long.len()),
            Err(error) => assert!(!fits && error.to_string().contains("a row takes over 1 GiB")),
        }
    }
}

/// A column of the same text in each row, of which the page has nothing but the length after the first.
fn alike(text: &ByteArray, rows: usize) -> Bytes {
    let schema = parse_message_type("message frame { optional binary text (UTF8); }");
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BYTE_ARRAY)
        .set_data_page_size_limit(64 << 20)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(
        &mut file,
        Arc::new(schema.expect("a schema")),
        Arc::new(properties),
    )
    .expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut chunk = group.next_column().expect("no error").expect("a column");
    let (texts, defined) = (vec![text.clone(); rows], vec![1; rows]);
    let to = chunk.typed::<ByteArrayType>();
    to.write_batch(&texts, Some(&defined), None)
        .expect("written");
    chunk.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
    file.into()
}

#[test]
fn texts_that_begin_alike_count_with_all_that_they_take() {
    let text = ByteArray::from("x".repeat(4 << 20).as_str());
    for (rows, fits) in [(3, true), (520, false)] {
        let file = alike(&text, rows);
        assert!(file.len() < 5 << 20, "{}", file.len());
        let mut out = Vec::new();
        match convert(file, &mut out) {
            Ok(_) => assert!(fits && out.len() == "text\n".len() + rows * (text.len() + 1)),
            Err(error) => assert!(!fits && error.to_string().contains("take over 2 GiB")),
        }
    }
}

#[test]
fn rows_are_read_from_any_place_of_any_group() {
    let mut file = Vec::new();
    let schema = parse_message_type("message frame { required int64 n; }").expect("a schema");
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(&mut file, Arc::new(schema), properties).expect("a writer");
    let mut next = 0;
    for size in [4i64, 3, 1, 5] {
        let mut group = writer.next_row_group().expect("a group");
        let mut chunk = group.next_column().expect("no error").expect("a column");
        let values: Vec<i64> = (next..next + size).collect();
        let to = chunk.typed::<Int64Type>();
        to.write_batch(&values, None, None).expect("written");
        chunk.close().expect("closed");
        group.close().expect("closed");
        next += size;
    }
    writer.close().expect("closed");
    let file = Bytes::from(file);
    for first in 0..14 {
        let ranges = Ranges {
            size: file.len() as u64,
            read: {
                let file = file.clone();
                move |range: Range<u64>| Ok(file.slice(range.start as usize..range.end as usize))
            },
        };
        let rows = Rows::open(ranges, first).expect("it is opened");
        assert_eq!((rows.size().rows, rows.head()), (13, &b"n\n"[..]));
        let lines: Result<Vec<Vec<u8>>, Error> = rows.collect();
        let wanted = (first..13).map(|n| format!("{n}\n").into_bytes());
        assert_eq!(lines.expect("rows"), wanted.collect::<Vec<_>>(), "{first}");
    }
}

#[test]
fn a_broken_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.parquet");
    for bytes in [&b"PAR1"[..], b"PAR1PAR1", b"PAR1\xff\xff\xff\x7fPAR1"] {
        std::fs::write(&path, bytes).expect("written");
        assert!(
            matches!(converted(&path), Err(Error::Parquet(_))),
            "{bytes:?}"
        );
    }
}
