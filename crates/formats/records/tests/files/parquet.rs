//! Parquet files, read as validation sets are.

use std::sync::Arc;

use ::parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use bytes::Bytes;
use sextant_records::{Outline, Reader};
use sextant_types::{Code, Data, DataType, offline::RecordFormat};

use crate::support::{Store, model, one_input, spec};

/// A data frame of two numbers, a text and a label, in groups of `group` rows.
fn frame(rows: i64, group: usize) -> Bytes {
    let schema = "message frame {
        required double a; required int64 b; required binary text (UTF8); required int64 label;
    }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, properties).expect("a writer");
    let rows: Vec<i64> = (0..rows).collect();
    for rows in rows.chunks(group) {
        let mut group = writer.next_row_group().expect("a group");
        macro_rules! column {
            ($type:ty, $value:expr) => {{
                let mut column = group.next_column().expect("no error").expect("a column");
                let values: Vec<_> = rows.iter().map($value).collect();
                let written = column.typed::<$type>().write_batch(&values, None, None);
                written.expect("written");
                column.close().expect("closed");
            }};
        }
        column!(DoubleType, |row| match row % 5 {
            3 => f64::NAN,
            _ => *row as f64 + 0.5,
        });
        column!(Int64Type, |row| -row);
        column!(ByteArrayType, |row| ByteArray::from(
            format!("row \"{row}\"\n").as_str()
        ));
        column!(Int64Type, |row| row % 2);
        group.close().expect("closed");
    }
    writer.close().expect("closed");
    file.into()
}

#[tokio::test]
async fn rows_are_read_from_any_place() {
    let store = Store::new();
    store.put("frame.parquet", frame(23, 7)).await;
    let signature = model(
        vec![
            spec("a", DataType::Fp32, &[Some(1)]),
            spec("b", DataType::Int32, &[]),
            spec("text", DataType::Bytes, &[]),
        ],
        vec![],
    );
    for (first, chunk) in [(0, 100), (0, 4), (6, 1), (7, 3), (22, 1)] {
        let read = store.read("frame.parquet", &signature, (first, chunk));
        let records = read.await.expect("records");
        assert_eq!(records.len() as u64, 23 - first);
        for (row, record) in (first..).zip(&records) {
            let record = record.as_ref().expect("it is right");
            let a: Vec<f32> = record[0].tensor.to_vec().expect("floats");
            assert!(a == [row as f32 + 0.5] || (row % 5 == 3 && a[0].is_nan()));
            assert_eq!(record[1].tensor.to_vec(), Some(vec![-(row as i32)]));
            let Data::Strings(text) = record[2].tensor.data() else {
                panic!("no text");
            };
            let wanted = format!("row \"{row}\"\n");
            assert_eq!(text.get(0), Some(wanted.as_bytes()));
        }
    }
}

/// A column of the same text in each row, which is there once.
fn repeated(text: &str, rows: usize) -> Bytes {
    let schema = "message frame { required binary text (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, properties).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut column = group.next_column().expect("no error").expect("a column");
    let values = vec![ByteArray::from(text); rows];
    let written = column
        .typed::<ByteArrayType>()
        .write_batch(&values, None, None);
    written.expect("written");
    column.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
    file.into()
}

#[tokio::test]
async fn few_rows_are_in_memory_at_once_where_they_are_long() {
    let store = Store::new();
    let text = "x".repeat(1 << 19);
    let path = store.put("long.parquet", repeated(&text, 130)).await;
    let signature = one_input(DataType::Bytes, &[]);
    let outline = Outline::scan(&store.files, &path, RecordFormat::Parquet, &signature).await;
    let outline = outline.expect("an outline");
    assert!(outline.size_bytes < 1 << 20 && outline.records == 130);
    let reader = Reader::open(&store.files, &path, &outline, &signature, 0).await;
    let mut reader = reader.expect("a reader");
    // 64 MiB of them at once.
    for (asked, read) in [(130, 128), (2, 2)] {
        let rows = reader.fetch(asked).await.expect("rows").parse();
        assert_eq!(rows.len(), read);
        assert!(rows.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn what_is_no_table_of_the_model_is_refused() {
    let store = Store::new();
    let whole = frame(9, 4);
    store.put("frame.parquet", whole.clone()).await;
    let two = one_input(DataType::Fp32, &[Some(2)]);
    for (name, bytes) in [
        ("empty.parquet", Bytes::new()),
        ("text.parquet", Bytes::from_static(b"a,b\n1,2\n")),
        ("cut.parquet", whole.slice(..whole.len() - 9)),
    ] {
        store.put(name, bytes).await;
        let error = store.read(name, &two, (0, 1)).await;
        let error = error.expect_err("it is no Parquet");
        assert_eq!(error.code(), Code::InvalidRecord);
        assert!(error.to_string().contains("as Parquet"), "{error}");
    }
    // Three columns that belong to nobody.
    let read = store.read("frame.parquet", &two, (0, 1));
    let error = read.await.expect_err("the columns do not fit");
    assert!(error.to_string().contains("`3` columns"), "{error}");
    // A cell that is no number fails alone.
    let three = one_input(DataType::Fp32, &[Some(3)]);
    let records = store.read("frame.parquet", &three, (0, 4)).await;
    let records = records.expect("records");
    assert!(records.len() == 9 && records.iter().all(Result::is_err));
    let path = store.put("frame.parquet", whole).await;
    let outline = Outline::scan(&store.files, &path, RecordFormat::Parquet, &three);
    let outline = outline.await.expect("an outline");
    assert_eq!(outline.records, 9);
    assert!(outline.record_bytes > 0 && outline.chunk(256) == 256);
}
