use sextant_types::{Data, Texts};

use super::*;

fn file(header: &str, data: &[u8]) -> Bytes {
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file.into()
}

fn plain(descr: &str, shape: &str, data: &[u8]) -> Result<Tensor, Problem> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    read(&file(&header, data))
}

#[test]
fn reads_both_byte_orders() {
    let little = plain("<i4", "(2,)", &[1, 0, 0, 0, 2, 0, 0, 0]).expect("reads");
    let big = plain(">i4", "(2,)", &[0, 0, 0, 1, 0, 0, 0, 2]).expect("reads");
    assert_eq!(little.to_vec::<i32>(), Some(vec![1, 2]));
    assert_eq!(little, big);
}

/// As NumPy saves an array of `ml_dtypes.bfloat16`.
#[test]
fn reads_brain_floats() {
    let saved = plain("<V2", "(2,)", &[0x80, 0x3f, 0x20, 0xc0]).expect("reads");
    let wanted = [half::bf16::from_f32(1.0), half::bf16::from_f32(-2.5)];
    assert_eq!(saved.to_vec::<half::bf16>(), Some(wanted.to_vec()));
}

#[test]
fn reads_strings_without_their_padding() {
    let bytes = plain("|S3", "(2,)", b"ab\0c\0\0").expect("reads");
    let points: Vec<u8> = ['ä', 'b', '\0', '\0']
        .iter()
        .flat_map(|c| u32::from(*c).to_le_bytes())
        .collect();
    let text = plain("<U2", "(2,)", &points).expect("reads");
    let strings = |values: &[&str]| Data::Strings(Texts::collect(values).expect("short"));
    assert_eq!(*bytes.data(), strings(&["ab", "c"]));
    assert_eq!(*text.data(), strings(&["äb", ""]));
}

#[test]
fn refuses_what_it_cannot_hold() {
    assert_eq!(plain("|O", "(1,)", b""), Err(Problem::Objects));
    for descr in [
        "<c8",
        "<f16",
        "<M8[ns]",
        "|V2",
        "",
        "<",
        "i",
        "<i3",
        "é4",
        "|S0",
        "<U0",
        "<U4611686018427387904",
    ] {
        let result = plain(descr, "(1,)", &[0; 16]);
        assert!(
            matches!(result, Err(Problem::Dtype(_))),
            "{descr}: {result:?}"
        );
    }
    assert!(matches!(
        plain("<i4", "(3,)", &[0; 8]),
        Err(Problem::Length { .. })
    ));
    let huge = plain("<i4", "(18446744073709551615, 18446744073709551615)", &[]);
    assert!(matches!(huge, Err(Problem::Length { .. })), "{huge:?}");
    assert!(matches!(
        plain("|b1", "(1,)", &[2]),
        Err(Problem::Elements(_))
    ));
}

#[test]
fn refuses_damaged_headers_without_panicking() {
    let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
    for end in 0..good.len() {
        assert!(read(&file(&good[..end], &[0; 8])).is_err(), "{end}");
    }
    let nested = format!("{{'descr': {}, ", "[".repeat(60_000));
    assert!(read(&file(&nested, &[])).is_err());
    for (bytes, word) in [
        (&b""[..], "NumPy"),
        (b"PK", "NumPy"),
        (b"\x93NUMPY", "cut short"),
        (b"\x93NUMPY\x01\x00", "cut short"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "cut short"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "too long"),
        (b"\x93NUMPY\x09\x00\x00\x00", "version 9.0"),
    ] {
        let problem = read(&Bytes::copy_from_slice(bytes)).expect_err("it is refused");
        assert!(problem.to_string().contains(word), "{problem}");
    }
}

#[test]
fn what_is_refused_says_what_to_do() {
    let with = |descr: &str, fortran: &str, shape: &str| {
        let text = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}");
        Header::parse(&file(&text, &[]))
    };
    assert!(with("'<f4'", "False", "(2, 3)").is_ok());
    assert!(with("'<f4'", "True", "(2,)").is_ok());
    for (result, word) in [
        (with("'<f4'", "True", "(2, 3)"), "ascontiguousarray"),
        (with("'<c8'", "False", "(2, 3)"), "<c8"),
        (with("[('a', '<f4')]", "False", "(2,)"), "each field"),
        (with("'<f4'", "False", "(-1,)"), "not a size"),
        (Header::parse(&file("{}", &[])), "`descr`"),
    ] {
        let problem = result.expect_err("it is refused");
        assert!(problem.to_string().contains(word), "{problem}");
    }
}

#[test]
fn arrays_by_columns_are_read_whole() {
    let columns = |shape: &str, data: &[u8]| {
        let text = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {shape}, }}");
        read(&file(&text, data))
    };
    let two = columns("(2, 3)", &[1, 4, 2, 5, 3, 6]).expect("reads");
    assert_eq!(two.shape(), [2, 3]);
    assert_eq!(two.to_vec::<u8>(), Some(vec![1, 2, 3, 4, 5, 6]));
    // numpy.arange(12).reshape(2, 3, 2), as numpy.asfortranarray saves it.
    let three = columns("(2, 3, 2)", &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]).expect("reads");
    assert_eq!(three.to_vec::<u8>(), Some((0..12).collect()));
    let none = columns("(2, 0)", &[]).expect("reads");
    assert!(none.is_empty());
    let short = columns("(2, 3)", &[1, 4, 2]).expect_err("it is cut off");
    assert!(matches!(short, Problem::Length { .. }), "{short:?}");
    let text = "{'descr': '|S2', 'fortran_order': True, 'shape': (2, 2), }";
    let text = read(&file(text, b"a\0c\0bbdd")).expect("reads");
    let strings = Texts::collect(["a", "bb", "c", "dd"]).expect("short");
    assert_eq!(*text.data(), Data::Strings(strings));
}

#[test]
fn a_scalar_has_no_dimensions() {
    let scalar = plain("<f8", "()", &1.5f64.to_le_bytes()).expect("reads");
    assert!(scalar.shape().is_empty());
}

#[test]
fn what_is_written_is_read_back() {
    for shape in [
        vec![0],
        vec![7],
        vec![3, 4],
        vec![1_000_000_000_000, 3, 224, 224],
    ] {
        for data_type in DataType::ALL {
            let Some(bytes) = Header::write(data_type, &shape) else {
                assert_eq!(data_type, DataType::Bytes);
                continue;
            };
            assert_eq!(bytes.len() % ALIGNMENT, 0);
            let read = Header::parse(&bytes).expect("a header");
            let dims: Vec<u64> = read.shape.iter().map(|dim| *dim as u64).collect();
            assert_eq!(dims, shape);
            assert_eq!(read.start, bytes.len());
            if data_type != DataType::Bf16 {
                assert_eq!(read.element.data_type(), data_type);
            }
        }
    }
}

/// Another program that reads and writes the format.
#[test]
fn others_read_what_is_written_and_write_what_is_read() {
    let values = [1.5f32, -2.0, 0.1, 4.0];
    let elements: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    let mut bytes = Header::write(DataType::Fp32, &[2, 2]).expect("NumPy has it");
    bytes.extend_from_slice(&elements);
    let theirs = npyz::NpyFile::new(&bytes[..]).expect("they read it");
    assert_eq!(theirs.shape(), [2, 2]);
    assert_eq!(theirs.into_vec::<f32>().expect("floats"), values);
    let tensor = read(&bytes.into()).expect("an array");
    assert_eq!(tensor.shape(), [2, 2]);
    assert_eq!(tensor.to_vec::<f32>(), Some(values.to_vec()));
}
