//! Members of a tar archive, header by header: a member's bytes follow its header and need not be read.
//!
//! The forms of POSIX (`ustar`, `pax`) and of GNU tar are supported. Only files are accepted: a link could lead
//! anywhere.

/// Bytes of a header, and the unit to which members are padded.
pub const BLOCK_BYTES: u64 = 512;

/// Longest name in a header of its own that is read.
pub const MOST_NAME_BYTES: u64 = 1 << 16;

/// Why an archive cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A header is damaged.
    #[error("it is cut short or damaged")]
    Damaged,
    /// A member is a link, a device or something else that is not a file.
    #[error("`{0}` is a link or no file: pack the files themselves, with `tar --dereference`")]
    NotAFile(String),
}

/// The content of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// The archive ends here.
    End,
    /// A file of so many bytes.
    File {
        /// Its name, with its folders.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// A folder, or attributes of all members: nothing is taken.
    Other {
        /// Bytes behind the header.
        bytes: u64,
    },
    /// The name of the next member follows it, in GNU's form.
    LongName {
        /// Bytes of the name.
        bytes: u64,
    },
    /// Attributes of the next member follow it, in POSIX' form.
    Extended {
        /// Bytes of the attributes.
        bytes: u64,
    },
}

/// Whether the beginning of a file is that of an archive, by its first header.
pub fn is_archive(beginning: &[u8]) -> bool {
    beginning.get(257..262) == Some(b"ustar")
}

/// Reads a header.
///
/// # Errors
/// If it is damaged, or belongs to something that is not a file.
pub fn header(block: &[u8]) -> Result<Header, Problem> {
    let block: &[u8; BLOCK_BYTES as usize] = block.try_into().map_err(|_| Problem::Damaged)?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Header::End);
    }
    let sum = |at: usize, byte: u8| match at {
        148..156 => u64::from(b' '),
        _ => u64::from(byte),
    };
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| sum(at, *byte))
        .sum();
    if number(&block[148..156]) != Some(sum) {
        return Err(Problem::Damaged);
    }
    let bytes = number(&block[124..136]).ok_or(Problem::Damaged)?;
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    // Only POSIX' own form has a prefix at this place.
    let name = match prefix.is_empty() || &block[257..263] != b"ustar\0" {
        true => name,
        false => format!("{prefix}/{name}"),
    };
    match block[156] {
        b'0' | 0 | b'7' if name.ends_with('/') => Ok(Header::Other { bytes }),
        b'0' | 0 | b'7' => Ok(Header::File { name, bytes }),
        b'5' => Ok(Header::Other { bytes: 0 }),
        b'g' | b'K' => Ok(Header::Other { bytes }),
        b'L' => Ok(Header::LongName { bytes }),
        b'x' => Ok(Header::Extended { bytes }),
        _ => Err(Problem::NotAFile(name.chars().take(64).collect())),
    }
}

/// The name in the bytes after a header [`Header::LongName`].
pub fn long_name(bytes: &[u8]) -> String {
    text(bytes)
}

/// The name in the bytes after a header [`Header::Extended`], and the size, if they contain it.
pub fn extended(bytes: &[u8]) -> (Option<String>, Option<u64>) {
    let (mut name, mut size, mut rest) = (None, None, bytes);
    while let Some(space) = rest.iter().position(|byte| *byte == b' ') {
        let length = std::str::from_utf8(&rest[..space]).ok();
        let length = length.and_then(|length| length.parse::<usize>().ok());
        let Some(record) = length.and_then(|length| rest.get(space + 1..length)) else {
            break;
        };
        rest = &rest[space + 1 + record.len()..];
        let record = String::from_utf8_lossy(record);
        match record.trim_end_matches('\n').split_once('=') {
            Some(("path", path)) => name = Some(path.to_owned()),
            Some(("size", of)) => size = of.parse().ok(),
            _ => {}
        }
    }
    (name, size)
}

/// Bytes of a member after its header, with padding.
pub fn filled(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK_BYTES)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Octal digits, or a large number in binary.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        [0x80, rest @ ..] => {
            let (high, low) = rest.split_at(rest.len().checked_sub(8)?);
            let low: [u8; 8] = low.try_into().ok()?;
            high.iter()
                .all(|byte| *byte == 0)
                .then(|| u64::from_be_bytes(low))
        }
        _ => {
            let text = std::str::from_utf8(field).ok()?;
            let digits = text.trim_matches(|c: char| c == ' ' || c == '\0');
            match digits {
                "" => Some(0),
                digits => u64::from_str_radix(digits, 8).ok(),
            }
        }
    }
}
