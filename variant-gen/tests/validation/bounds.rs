//! What a set may at most take: files that are cut, bombs, lines that no record can be.

use bytes::Bytes;
use sextant_types::Metric;
use sextant_variant_gen::validation::{Invalid, Limits, read, record_shapes};

use crate::{Archive, classifier, expected, good, top1};

#[test]
fn damaged_archives_are_refused_wherever_they_are_cut() {
    let bytes = good().zip();
    assert!(top1(&bytes).is_ok());
    for end in 0..bytes.len() {
        assert!(top1(&bytes.slice(..end)).is_err(), "cut at {end}");
    }
    let mut flipped = bytes.to_vec();
    for index in 0..flipped.len() {
        flipped[index] ^= 0x55;
        // Some bytes (dates) carry no meaning; no change may panic.
        let _ = top1(&Bytes::copy_from_slice(&flipped));
        flipped[index] ^= 0x55;
    }
}

#[test]
fn a_zip_bomb_stops_at_the_limit() {
    let zeros = vec![0f32; 4 << 20];
    let bomb = Archive::new()
        .array("x", &[2 << 20, 2], &zeros)
        .array("labels", &[1], &[0i64])
        .zip();
    assert!(bomb.len() < 1 << 20);
    let signature = classifier();
    let mut expected = expected(&signature, Metric::Top1);
    expected.limits.bytes = 1 << 20;
    assert_eq!(
        read(&bomb, expected).err(),
        Some(Invalid::TooLarge { limit: 1 << 20 })
    );
    expected.limits = Limits::default();
    expected.limits.records = 2;
    assert_eq!(
        read(&good().zip(), expected).err(),
        Some(Invalid::TooManyRecords { limit: 2 })
    );
}

/// What is made of a line takes many times its bytes: none is parsed that is longer than any record can be.
#[test]
fn lines_that_no_record_can_be_are_refused_by_their_number() {
    let good = "{\"inputs\":{\"x\":[1,2]},\"label\":0}";
    let long = format!(
        "{{\"inputs\":{{\"x\":[{}0]}},\"label\":0}}",
        "0,".repeat(1 << 20)
    );
    let jsonl = |lines: &[&str]| top1(&Bytes::from(lines.join("\n"))).err();
    let most = (64 << 10) + 2 * 65 + 64;
    for (lines, line) in [
        (&[long.as_str()][..], 1),
        (&[good, "", &long], 3),
        (
            &[&good.replace(':', &format!(":{}", " ".repeat(40_000)))],
            1,
        ),
    ] {
        let refused = Some(Invalid::Line { line, limit: most });
        assert_eq!(jsonl(lines), refused);
    }
    let spaced = good.replace("[1", &format!("[{}1", " ".repeat(60_000)));
    assert_eq!(jsonl(&[&spaced, good]), None);
    let csv = |rows: &[&str]| top1(&Bytes::from(rows.join("\n"))).err();
    let (row, cells) = ("1,2,0", "0,".repeat(1 << 20));
    let quoted = format!("1,\"{}\",0", "\n".repeat(1 << 20));
    for (rows, line) in [
        (&["x.0,x.1,label", row, &cells][..], 3),
        (&[&cells, row], 1),
        (&["x.0,x.1,label", row, row, &quoted], 4),
    ] {
        let refused = Some(Invalid::Line { line, limit: most });
        assert_eq!(csv(rows), refused, "line {line}");
    }
    let rows = format!("x.0,x.1,label\n{}", "1,2,0\n".repeat(100_000));
    let set = top1(&Bytes::from(rows)).expect("many rows are no long one");
    assert_eq!(set.records(), 100_000);
}

/// A model that takes any length takes longer lines.
#[test]
fn records_of_any_length_have_long_lines() {
    let mut signature = classifier();
    signature.inputs[0].shape[1] = None;
    let line = |elements: usize| {
        let elements = "0,".repeat(elements);
        Bytes::from(format!(
            "{{\"inputs\":{{\"x\":[{elements}0]}},\"label\":0}}"
        ))
    };
    let read = |bytes: &Bytes| read(bytes, expected(&signature, Metric::Top1)).err();
    assert_eq!(read(&line(1 << 20)), None);
    assert!(matches!(
        read(&line(9 << 20)),
        Some(Invalid::Line { line: 1, .. })
    ));
}

#[test]
fn shapes_of_records_are_read_without_their_elements() {
    let jsonl = r#"
        {"inputs": {"x": [[1, 2], [3, 4]], "y": 7, "z": [], "t": ["a"], "o": {"a": [1]}}, "label": [0]}
        {"inputs": {"x": [[1, 2, 3], [4, 5, 6]], "y": null, "z": [], "t": [true], "o": 1.5}}
    "#;
    let shapes = record_shapes(&Bytes::from(jsonl), Limits::default()).expect("reads");
    let expected = [
        ("o", vec![]),
        ("t", vec![Some(1)]),
        ("x", vec![Some(2), None]),
        ("y", vec![]),
        ("z", vec![Some(0)]),
    ];
    let expected = expected.map(|(name, shape)| (name.to_owned(), shape));
    assert_eq!(shapes, expected.into());
    // In either order, as arrays are read.
    let mut by_columns = good();
    let array = &mut by_columns.0[0].1;
    let order = array.windows(5).position(|it| it == b"False");
    let order = order.expect("it lies by rows");
    array[order..order + 5].copy_from_slice(b"True ");
    for archive in [good(), by_columns] {
        let shapes = record_shapes(&archive.zip(), Limits::default()).expect("reads");
        assert_eq!(shapes, [("x".to_owned(), vec![Some(2)])].into());
    }
}
