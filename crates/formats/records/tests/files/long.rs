//! Records that take much memory.

use sextant_records::{Outline, Reader};
use sextant_types::{DataType, offline::RecordFormat};

use crate::support::{Store, one_input};

#[tokio::test]
async fn few_lines_are_in_memory_at_once_where_they_are_long() {
    let store = Store::new();
    let lines = format!("\"{}\"\n1\n2\n", "x".repeat(65 << 20));
    let path = store.put("long.jsonl", lines).await;
    let signature = one_input(DataType::Fp32, &[Some(2)]);
    let outline = Outline::scan(&store.files, &path, RecordFormat::Jsonl, &signature).await;
    let outline = outline.expect("an outline");
    let reader = Reader::open(&store.files, &path, &outline, &signature, 0).await;
    let mut reader = reader.expect("a reader");
    for (asked, read) in [(3, 1), (2, 2)] {
        let lines = reader.fetch(asked).await.expect("lines");
        assert_eq!(lines.parse().len(), read);
    }
}
