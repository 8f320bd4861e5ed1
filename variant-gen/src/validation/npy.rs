//! One NumPy array, version 1 to 3 of the format (NEP 1).
//!
//! The header is a Python dictionary. Only the three keys that NumPy writes, with values of the
//! plain form, are understood: no expression is ever evaluated and nesting has no depth, so a
//! hostile header can neither run nor overflow the stack.

use bytes::Bytes;
use sextant_types::Tensor;

use super::Invalid;

mod dtype;

use dtype::Dtype;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is looked at; NumPy's own limit is 10,000.
const MAX_HEADER_BYTES: usize = 1 << 16;
const MAX_RANK: usize = 64;

/// Reads the array `name` from a whole `.npy` file.
pub(super) fn read(name: &str, file: &Bytes) -> Result<Tensor, Invalid> {
    let (text, data) = split(file).map_err(|why| entry(name, why))?;
    let header = Header::parse(text).map_err(|why| entry(name, &why))?;
    let dtype = Dtype::parse(&header.descr).ok_or_else(|| unsupported(name, &header.descr))?;
    if header.fortran_order && header.shape.len() > 1 {
        return Err(Invalid::FortranOrder {
            name: name.to_owned(),
        });
    }
    let data = file.slice(file.len() - data.len()..);
    check_length(name, &header.shape, dtype.size, data.len())?;
    let tensor = dtype.tensor(header.shape, &data);
    tensor.map_err(|why| entry(name, &why))
}

fn entry(name: &str, why: &str) -> Invalid {
    Invalid::Entry {
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

fn unsupported(name: &str, descr: &str) -> Invalid {
    let name = name.to_owned();
    if descr
        .trim_start_matches(['|', '<', '>', '='])
        .starts_with('O')
    {
        return Invalid::Objects { name };
    }
    let dtype = descr.chars().take(64).collect();
    Invalid::Dtype { name, dtype }
}

fn check_length(name: &str, shape: &[usize], size: usize, given: usize) -> Result<(), Invalid> {
    let expected = shape
        .iter()
        .try_fold(size as u64, |product, dim| product.checked_mul(*dim as u64));
    if expected == Some(given as u64) {
        return Ok(());
    }
    Err(Invalid::Length {
        name: name.to_owned(),
        shape: shape.to_vec(),
        expected: expected.unwrap_or(u64::MAX),
        given: given as u64,
    })
}

/// Header text and data.
fn split(file: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    let rest = file.strip_prefix(MAGIC).ok_or("it is not an .npy file")?;
    let (length, rest) = match rest {
        [1, 0, a, b, rest @ ..] => (u32::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        [_, _, ..] => return Err("its .npy version is unknown or its header is cut short"),
        _ => return Err("its header is cut short"),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_HEADER_BYTES {
        return Err("its header is too long");
    }
    let (text, data) = rest
        .split_at_checked(length)
        .ok_or("its header is cut short")?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
    Ok((text, data))
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Self, String> {
        let mut scanner = Scanner(text.trim());
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        scanner.expect("{")?;
        while !scanner.take("}") {
            let key = scanner.string()?;
            scanner.expect(":")?;
            match key {
                "descr" => descr = Some(scanner.descr()?),
                "fortran_order" => fortran_order = Some(scanner.boolean()?),
                "shape" => shape = Some(scanner.shape()?),
                other => return Err(format!("its header has an unknown key `{other}`")),
            }
            if !scanner.take(",") {
                scanner.expect("}")?;
                break;
            }
        }
        let missing = |key: &str| format!("its header has no `{key}`");
        Ok(Self {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// What is left of the header.
struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        if let Some(rest) = rest {
            self.0 = rest;
        }
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            return Ok(());
        }
        let found: String = self.0.trim_start().chars().take(16).collect();
        Err(format!("its header has `{found}` where `{token}` belongs"))
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.take("'") { '\'' } else { '"' };
        if quote == '"' {
            self.expect("\"")?;
        }
        let (text, rest) = self
            .0
            .split_once(quote)
            .ok_or("its header has an open string")?;
        self.0 = rest;
        Ok(text)
    }

    /// A plain dtype, or the word `record` for a structured one, which is none of ours.
    fn descr(&mut self) -> Result<String, String> {
        if !self.0.trim_start().starts_with('[') {
            return self.string().map(str::to_owned);
        }
        let end = self.0.rfind(']').ok_or("its header has an open list")?;
        let text = self.0[..=end].trim().to_owned();
        self.0 = &self.0[end + 1..];
        Err(format!("it is a structured array: `{}`", shorten(&text)))
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.take("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.take(")") {
            shape.push(self.integer()?);
            if shape.len() > MAX_RANK {
                return Err(format!("it has more than {MAX_RANK} dimensions"));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }

    fn integer(&mut self) -> Result<usize, String> {
        let text = self.0.trim_start();
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let value = text[..end].parse();
        self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
        value.map_err(|_| format!("its shape has `{}`, not a size", shorten(text)))
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(48).collect()
}

#[cfg(test)]
mod tests {
    use sextant_types::Data;

    use super::*;

    fn file(header: &str, data: &[u8]) -> Bytes {
        let mut file = MAGIC.to_vec();
        file.extend([1, 0]);
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        file.into()
    }

    fn plain(descr: &str, shape: &str, data: &[u8]) -> Result<Tensor, Invalid> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        read("x", &file(&header, data))
    }

    #[test]
    fn reads_both_byte_orders() {
        let little = plain("<i4", "(2,)", &[1, 0, 0, 0, 2, 0, 0, 0]).expect("reads");
        let big = plain(">i4", "(2,)", &[0, 0, 0, 1, 0, 0, 0, 2]).expect("reads");
        assert_eq!(little.to_vec::<i32>(), Some(vec![1, 2]));
        assert_eq!(little, big);
    }

    #[test]
    fn reads_strings_without_their_padding() {
        let bytes = plain("|S3", "(2,)", b"ab\0c\0\0").expect("reads");
        let points: Vec<u8> = ['ä', 'b', '\0', '\0']
            .iter()
            .flat_map(|c| u32::from(*c).to_le_bytes())
            .collect();
        let text = plain("<U2", "(2,)", &points).expect("reads");
        let strings = |values: &[&'static str]| {
            Data::Strings(values.iter().map(|value| Bytes::from(*value)).collect())
        };
        assert_eq!(*bytes.data(), strings(&["ab", "c"]));
        assert_eq!(*text.data(), strings(&["äb", ""]));
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        assert!(matches!(
            plain("|O", "(1,)", b""),
            Err(Invalid::Objects { .. })
        ));
        for descr in [
            "<c8", "<f16", "<M8[ns]", "|V2", "", "<", "i", "<i3", "é4", "|S0", "<U0",
        ] {
            let result = plain(descr, "(1,)", &[0; 16]);
            assert!(
                matches!(result, Err(Invalid::Dtype { .. })),
                "{descr}: {result:?}"
            );
        }
        assert!(matches!(
            plain("<i4", "(3,)", &[0; 8]),
            Err(Invalid::Length { .. })
        ));
        let huge = plain("<i4", "(18446744073709551615, 18446744073709551615)", &[]);
        assert!(matches!(huge, Err(Invalid::Length { .. })), "{huge:?}");
        assert!(matches!(
            plain("|b1", "(1,)", &[2]),
            Err(Invalid::Entry { .. })
        ));
    }

    #[test]
    fn refuses_damaged_headers_without_panicking() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
        for end in 0..good.len() {
            assert!(read("x", &file(&good[..end], &[0; 8])).is_err(), "{end}");
        }
        let nested = format!("{{'descr': {}, ", "[".repeat(60_000));
        assert!(read("x", &file(&nested, &[])).is_err());
        for bytes in [
            &b""[..],
            b"\x93NUMPY",
            b"\x93NUMPY\x01\x00",
            b"\x93NUMPY\x09\x00\x00\x00",
        ] {
            assert!(read("x", &Bytes::copy_from_slice(bytes)).is_err());
        }
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}";
        let result = read("x", &file(fortran, &[0; 8]));
        assert!(matches!(result, Err(Invalid::FortranOrder { .. })));
    }

    #[test]
    fn a_scalar_has_no_dimensions() {
        let scalar = plain("<f8", "()", &1.5f64.to_le_bytes()).expect("reads");
        assert!(scalar.shape().is_empty());
    }
}
