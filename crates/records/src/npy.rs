//! The header of NumPy's array files: element type, order, shape.

use sextant_types::DataType;

/// What every such file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Where the elements begin is a multiple of this.
const ALIGNMENT: usize = 64;

/// More than any header has; elements of a long header begin beyond.
pub(crate) const HEADER_BYTES: u64 = 4096;

/// How the elements of an array lie in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) element: Element,
    /// All dimensions; the first counts the records.
    pub(crate) shape: Vec<usize>,
    /// Where the elements begin, bytes.
    pub(crate) start: u64,
}

/// One element in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// As in a tensor.
    Plain(DataType),
    /// Bytes, filled up with zeros.
    Text(usize),
    /// Characters of four bytes, filled up with zeros.
    Unicode(usize),
}

impl Element {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Plain(data_type) => data_type,
            Self::Text(_) | Self::Unicode(_) => DataType::Bytes,
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Plain(data_type) => data_type.size().unwrap_or(1),
            Self::Text(bytes) => bytes,
            Self::Unicode(characters) => characters * 4,
        }
    }
}

impl Header {
    /// Records in the array.
    pub(crate) fn records(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0) as u64
    }

    /// Bytes of one record, or what is wrong with the shape.
    pub(crate) fn record_bytes(&self) -> Result<u64, String> {
        let row = self.shape.get(1..).unwrap_or_default();
        row.iter()
            .try_fold(self.element.size() as u64, |bytes, dim| {
                bytes.checked_mul(*dim as u64)
            })
            .filter(|bytes| bytes.checked_mul(self.records().max(1)).is_some())
            .ok_or_else(|| format!("shape {:?} is too large", self.shape))
    }

    /// Reads the beginning of a file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "its header is cut off or over 4096 bytes".to_owned();
        if !bytes.starts_with(MAGIC) {
            return Err("it is not a NumPy array: it does not begin with `\\x93NUMPY`".to_owned());
        }
        let (width, start) = match bytes.get(6) {
            Some(1) => (2, 10),
            Some(2 | 3) => (4, 12),
            Some(other) => return Err(format!("version {other} of the format is not known")),
            None => return Err(cut()),
        };
        let mut length = [0; 4];
        length[..width].copy_from_slice(bytes.get(8..8 + width).ok_or_else(cut)?);
        let length = u32::from_le_bytes(length) as usize;
        let text = bytes.get(start..start + length).ok_or_else(cut)?;
        let text = std::str::from_utf8(text).map_err(|_| "its header is no text".to_owned())?;
        let element = element(field(text, "descr")?)?;
        let shape = shape(field(text, "shape")?)?;
        if field(text, "fortran_order")?.starts_with("True") && shape.len() > 1 {
            return Err("it is in Fortran order: save `numpy.ascontiguousarray(..)`".to_owned());
        }
        if shape.is_empty() {
            return Err("it has no dimension: the first one counts the records".to_owned());
        }
        Ok(Self {
            element,
            shape,
            start: (start + length) as u64,
        })
    }

    /// The header of an array with these dimensions; `None` where NumPy has no such type.
    pub(crate) fn write(data_type: DataType, shape: &[u64]) -> Option<Vec<u8>> {
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let dims = if shape.len() == 1 {
            dims.trim_end()
        } else {
            dims.trim_end_matches(", ")
        };
        let descr = descr(data_type)?;
        let mut text =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
        let start = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGNMENT);
        let length = u16::try_from(start - MAGIC.len() - 4).ok()?;
        while text.len() + 1 < usize::from(length) {
            text.push(' ');
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&[1, 0]);
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(text.as_bytes());
        header.push(b'\n');
        Some(header)
    }
}

/// What follows a key of the header's dictionary.
fn field<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("its header has no `{key}`");
    let at = ['\'', '"']
        .iter()
        .find_map(|quote| text.split_once(&format!("{quote}{key}{quote}")));
    let (_, value) = at.ok_or_else(missing)?;
    let value = value.trim_start().strip_prefix(':').ok_or_else(missing)?;
    Ok(value.trim_start())
}

fn element(value: &str) -> Result<Element, String> {
    let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let text = quote.and_then(|quote| value[1..].split(quote).next());
    let text = text.ok_or("it is a structured array: save each field apart")?;
    let unknown = || format!("elements of type `{text}` are not supported");
    if !text.is_ascii() || text.len() < 3 {
        return Err(unknown());
    }
    let (order, kind) = text.split_at(1);
    let (class, count) = kind.split_at(1);
    let count: usize = count.parse().map_err(|_| unknown())?;
    if order == ">" && count > 1 && class != "S" {
        return Err(
            "it is in big-endian order: save `array.astype(array.dtype.newbyteorder('<'))`"
                .to_owned(),
        );
    }
    match class {
        "S" if count > 0 => return Ok(Element::Text(count)),
        // Each is four bytes: their sum must be a number.
        "U" if count > 0 && count <= usize::MAX / 4 => return Ok(Element::Unicode(count)),
        _ => {}
    }
    DataType::ALL
        .into_iter()
        .filter(|data_type| *data_type != DataType::Bf16)
        .find(|data_type| descr(*data_type).is_some_and(|descr| &descr[1..] == kind))
        .map(Element::Plain)
        .ok_or_else(unknown)
}

fn shape(value: &str) -> Result<Vec<usize>, String> {
    let unreadable = || "its header has an unreadable shape".to_owned();
    let dims = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'));
    let (dims, _) = dims.ok_or_else(unreadable)?;
    dims.split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty())
        .map(|dim| dim.trim_end_matches('L').parse().map_err(|_| unreadable()))
        .collect()
}

/// NumPy's name of an element type. It has none for bfloat16, which is written as the `f4` that
/// holds the same numbers, nor for strings of any length.
fn descr(data_type: DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Bool => "|b1",
        DataType::Uint8 => "|u1",
        DataType::Uint16 => "<u2",
        DataType::Uint32 => "<u4",
        DataType::Uint64 => "<u8",
        DataType::Int8 => "|i1",
        DataType::Int16 => "<i2",
        DataType::Int32 => "<i4",
        DataType::Int64 => "<i8",
        DataType::Fp16 => "<f2",
        DataType::Fp32 | DataType::Bf16 => "<f4",
        DataType::Fp64 => "<f8",
        DataType::Bytes => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!(read.start, bytes.len() as u64);
                if data_type != DataType::Bf16 {
                    assert_eq!(read.element, Element::Plain(data_type));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_read_says_what_to_do() {
        let header = |text: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            Header::parse(&bytes)
        };
        let with = |descr: &str, fortran: &str, shape: &str| {
            header(&format!(
                "{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
            ))
        };
        assert!(with("'<f4'", "False", "(2, 3)").is_ok());
        assert!(with("'<f4'", "True", "(2,)").is_ok());
        for (result, word) in [
            (with("'<f4'", "True", "(2, 3)"), "Fortran"),
            (with("'>f4'", "False", "(2, 3)"), "big-endian"),
            (with("'<c8'", "False", "(2, 3)"), "<c8"),
            (with("'|O'", "False", "(2,)"), "supported"),
            (
                with("'<U4611686018427387904'", "False", "(2,)"),
                "supported",
            ),
            (with("[('a', '<f4')]", "False", "(2,)"), "structured"),
            (with("'<f4'", "False", "()"), "dimension"),
            (with("'<f4'", "False", "(-1,)"), "shape"),
            (header("{}"), "descr"),
            (Header::parse(b"\x93NUMPY\x01\x00\xff\xff{"), "cut off"),
            (Header::parse(b"PK"), "NumPy"),
        ] {
            let reason = result.expect_err("it is refused");
            assert!(reason.contains(word), "{reason}");
        }
    }
}
