//! Validation sets for a model of `x`, `[N, 2]`, whose label is a class of two.

use std::io::Write;

use flate2::{Compress, Compression, FlushCompress, write::DeflateEncoder};

use super::Case;

/// Files that are no sets, sets that lie, and sets that are made to fill the memory.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = lines();
    cases.extend(headers());
    cases.extend(archives());
    cases.extend(large());
    cases
}

/// Sets that are small or quickly sent, and would expand to much memory.
pub(super) fn large() -> Vec<Case> {
    let array = |said| {
        let labels = Entry::stored("labels.npy", two_labels());
        Case::set(
            match said {
                TWO_GIGABYTES => "two-gigabytes-in-two-megabytes",
                _ => "two-gigabytes-that-say-they-are-few-bytes",
            },
            "validation.npz",
            zip(&[Entry::of_zeros("x.npy", said), labels]),
        )
    };
    let line = format!(
        "{{\"inputs\":{{\"x\":[{}0]}},\"label\":0}}\n",
        "0,".repeat(40 << 20)
    );
    let row = format!("x.0,x.1,label\n0,{}0,0\n", "0,".repeat(20 << 20));
    vec![
        array(TWO_GIGABYTES),
        array(16),
        Case::set(
            "one-line-of-eighty-megabytes",
            "validation.jsonl",
            line.into(),
        ),
        Case::set("one-row-of-forty-megabytes", "validation.csv", row.into()),
    ]
}

/// A valid set with this number of records, whose lines are padded with blanks.
pub(super) fn spacious(records: usize) -> Vec<u8> {
    let mut set = Vec::with_capacity(records * LINE_BYTES);
    for at in 0..records {
        let label = at % 2;
        let record = format!(
            "{{\"inputs\":{{\"x\":[{},{label}]}},\"label\":{label}}}",
            1 - label
        );
        set.extend(record.as_bytes());
        set.resize((at + 1) * LINE_BYTES - 1, b' ');
        set.push(b'\n');
    }
    set
}

/// Size of an array that is larger than a set may be, bytes.
const TWO_GIGABYTES: u32 = 2000 << 20;

/// Length of a padded line, bytes.
const LINE_BYTES: usize = 60_000;

fn lines() -> Vec<Case> {
    let of = |name, bytes: Vec<u8>| Case::set(name, "validation.jsonl", bytes);
    let record = |x: &str, label: &str| {
        let line = format!("{{\"inputs\":{{\"x\":{x}}},\"label\":{label}}}\n");
        line.into_bytes()
    };
    vec![
        of("no-records", Vec::new()),
        of("a-million-empty-lines", vec![b'\n'; 1 << 20]),
        of("lines-not-of-text", vec![0xff; 4096]),
        of("brackets-in-brackets", vec![b'['; 400_000]),
        of("objects-in-objects", b"{\"inputs\":".repeat(50_000)),
        of("record-cut-short", b"{\"inputs\":{\"x\":[1".to_vec()),
        of("record-of-the-wrong-shape", record("[1,2,3]", "0")),
        of("record-of-text", record("[\"a\",\"b\"]", "0")),
        of("record-of-nothing", record("null", "null")),
        of("number-too-large", record("[1e999,0]", "0")),
        of(
            "number-of-a-million-digits",
            record(&format!("[{},0]", "1".repeat(1 << 20)), "0"),
        ),
        of("class-that-is-not-there", record("[1,2]", "1000000000000")),
        of("class-below-zero", record("[1,2]", "-1")),
        of("class-of-text", record("[1,2]", "\"one\"")),
        of(
            "one-line-of-sixteen-megabytes",
            record(&format!("[{}0]", "0,".repeat(8 << 20)), "0"),
        ),
        of(
            "keys-without-end",
            record(
                "[1,2]",
                &format!("{{{}\"k\":0}}", "\"k\":0,".repeat(200_000)),
            ),
        ),
    ]
}

/// Arrays with wrong headers.
fn headers() -> Vec<Case> {
    let of = |name, header: &str, data: &[u8]| {
        let array = npy(header, data);
        let labels = npy(
            "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
            &[0; 16],
        );
        let entries = [
            Entry::stored("x.npy", array),
            Entry::stored("labels.npy", labels),
        ];
        Case::set(name, "validation.npz", zip(&entries))
    };
    let labels_of_nothing = {
        let header = "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }";
        let array = shaped_two_by_two();
        let entries = [
            Entry::stored("x.npy", array),
            Entry::stored("labels.npy", npy(header, &[])),
        ];
        Case::set("labels-of-no-text", "validation.npz", zip(&entries))
    };
    let shaped =
        |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let typed =
        |descr: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2, 2), }}");
    vec![
        labels_of_nothing,
        of(
            "a-hundred-million-times-no-bytes",
            "{'descr': '|S0', 'fortran_order': False, 'shape': (100000000, 2), }",
            &[],
        ),
        of(
            "no-bytes-times-a-million-million",
            "{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000, 4), }",
            &[],
        ),
        of(
            "array-of-nothing-without-end",
            &shaped("(0, 9223372036854775807)"),
            &[],
        ),
        of(
            "array-without-end",
            &shaped("(4611686018427387904, 2)"),
            &[0; 16],
        ),
        of(
            "array-over-the-numbers",
            &shaped("(18446744073709551616, 2)"),
            &[0; 16],
        ),
        of("array-of-negative-size", &shaped("(-1, 2)"), &[0; 16]),
        of(
            "array-of-rank-2000",
            &shaped(&format!("({})", "1, ".repeat(2000))),
            &[0; 4],
        ),
        of("array-without-its-data", &shaped("(1000000, 2)"), &[0; 16]),
        of(
            "array-of-objects",
            &typed("'|O'"),
            b"\x80\x04cos\nsystem\n(S'id'\ntR.",
        ),
        of(
            "array-of-records",
            &typed("[('a', '<f4'), ('b', '<i8')]"),
            &[0; 48],
        ),
        of("array-of-long-text", &typed("'<U1000000000'"), &[0; 16]),
        of("array-of-an-unknown-type", &typed("'<q77'"), &[0; 16]),
        of("header-of-brackets", &"(".repeat(60_000), &[]),
        of(
            "header-without-a-shape",
            "{'descr': '<f4', 'fortran_order': False, }",
            &[0; 16],
        ),
        of("header-not-of-text", "\u{0}\u{1}\u{2}", &[0; 16]),
    ]
}

/// Archives with wrong headers.
fn archives() -> Vec<Case> {
    let of = |name, bytes: Vec<u8>| Case::set(name, "validation.npz", bytes);
    let x = || {
        npy(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
            &[0; 16],
        )
    };
    let labels = two_labels;
    let good = || {
        vec![
            Entry::stored("x.npy", x()),
            Entry::stored("labels.npy", labels()),
        ]
    };
    let with = |change: fn(&mut Entry)| {
        let mut entries = good();
        change(&mut entries[0]);
        zip(&entries)
    };
    let rows = 1 << 26;
    let bomb = npy(
        &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 2), }}"),
        &vec![0; 32 << 20],
    );
    let many = (0..20_000).map(|at| Entry::stored(&format!("m{at}.npy"), Vec::new()));
    let whole = zip(&good());
    vec![
        of("archive-of-nothing", zip(&[])),
        of("archive-cut-in-half", whole[..whole.len() / 2].to_vec()),
        of("archive-without-its-end", whole[..whole.len() - 8].to_vec()),
        of("archive-that-is-a-model", b"PK\x05\x06".repeat(40)),
        of(
            "bomb",
            zip(&[
                Entry::deflated("x.npy", &bomb),
                Entry::stored("labels.npy", labels()),
            ]),
        ),
        of("wrong-checksum", with(|entry| entry.checksum ^= 1)),
        of("larger-than-it-says", with(|entry| entry.size = 8)),
        of(
            "smaller-than-it-says",
            with(|entry| entry.size = u32::MAX - 1),
        ),
        of("unknown-compression", with(|entry| entry.method = 77)),
        of("not-compressed-at-all", with(|entry| entry.method = 8)),
        of("encrypted", with(|entry| entry.flags = 1)),
        of(
            "above-the-folder",
            with(|entry| entry.name = "../../x.npy".to_owned()),
        ),
        of(
            "name-of-sixty-kilobytes",
            with(|entry| entry.name = "n".repeat(60_000)),
        ),
        of("the-same-array-twice", zip(&[good(), good()].concat())),
        of("no-labels", zip(&good()[..1])),
        of(
            "twenty-thousand-members",
            zip(&good().into_iter().chain(many).collect::<Vec<_>>()),
        ),
    ]
}

/// The labels of two records.
fn two_labels() -> Vec<u8> {
    npy(
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
        &[0; 16],
    )
}

/// Two records of two numbers.
fn shaped_two_by_two() -> Vec<u8> {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    npy(header, &[0; 16])
}

/// An array in NumPy's format, with any header.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    let length = u16::try_from(header.len() + 1).unwrap_or(u16::MAX);
    file.extend(length.to_le_bytes());
    file.extend(header.as_bytes());
    file.push(b'\n');
    file.extend(data);
    file
}

/// A member of an archive, as its headers describe it.
#[derive(Clone)]
struct Entry {
    name: String,
    flags: u16,
    method: u16,
    checksum: u32,
    /// Its size when it is unpacked, bytes.
    size: u32,
    packed: Vec<u8>,
}

impl Entry {
    fn stored(name: &str, data: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            flags: 0,
            method: 0,
            checksum: checksum(&data),
            size: data.len() as u32,
            packed: data,
        }
    }

    fn deflated(name: &str, data: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).expect("memory takes it");
        Self {
            method: 8,
            packed: encoder.finish().expect("memory takes it"),
            ..Self::stored(name, data.to_vec())
        }
    }

    /// An array of [`TWO_GIGABYTES`] of zeros, which has `size` bytes according to the archive.
    fn of_zeros(name: &str, size: u32) -> Self {
        const BLOCK_BYTES: usize = 1 << 20;
        let rows = TWO_GIGABYTES / 8;
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 2), }}");
        let mut packed = flushed(&npy(&header, &[]));
        // A flushed block is independent, so it can be repeated.
        let block = flushed(&vec![0; BLOCK_BYTES]);
        packed.extend(block.repeat(TWO_GIGABYTES as usize / BLOCK_BYTES));
        packed.extend([3, 0]);
        Self {
            method: 8,
            size,
            packed,
            ..Self::stored(name, Vec::new())
        }
    }

    /// The fields that both headers of a member share.
    fn fields(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend(20u16.to_le_bytes());
        fields.extend(self.flags.to_le_bytes());
        fields.extend(self.method.to_le_bytes());
        fields.extend([0; 4]);
        fields.extend(self.checksum.to_le_bytes());
        fields.extend((self.packed.len() as u32).to_le_bytes());
        fields.extend(self.size.to_le_bytes());
        fields.extend((self.name.len() as u16).to_le_bytes());
        fields.extend([0; 2]);
        fields
    }
}

/// A piece of deflated data, without the end.
fn flushed(data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(data.len() + 1024);
    let mut deflate = Compress::new(Compression::best(), false);
    let status = deflate.compress_vec(data, &mut packed, FlushCompress::Full);
    status.expect("memory takes it");
    packed
}

fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = file.len() as u32;
        file.extend(b"PK\x03\x04");
        file.extend(entry.fields());
        file.extend(entry.name.as_bytes());
        file.extend(&entry.packed);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(entry.fields());
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let start = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend((entries.len() as u16).to_le_bytes().repeat(2));
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

fn checksum(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}
