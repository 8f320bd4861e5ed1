//! Packed files: the kind of a file, where its members may go, and unpacking piece by piece.

use std::io::Write;

use crc32fast::Hasher;
use flate2::write::{DeflateDecoder, MultiGzDecoder};

use crate::{tar, zip};

/// Bytes of a file that show its kind.
pub const BEGINNING_BYTES: u64 = tar::BLOCK_BYTES;

/// Packed bytes that are unpacked at once: at most a thousand times as many come out.
pub const PIECE_BYTES: u64 = 1 << 14;

/// The kind of a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A zip archive.
    Zip,
    /// A tar archive.
    Tar,
    /// A tar archive that is compressed with gzip.
    TarGz,
}

impl Kind {
    /// The kind, by the beginning of a file; `None` for anything else.
    pub fn of(beginning: &[u8]) -> Option<Self> {
        match beginning {
            _ if zip::is_archive(beginning) => Some(Self::Zip),
            _ if tar::is_archive(beginning) => Some(Self::Tar),
            [0x1f, 0x8b, 8, ..] => Some(Self::TarGz),
            _ => None,
        }
    }
}

/// The path of a member below the folder into which it is unpacked, with `/` between its parts; `None` if it leads out
/// of the folder, or is empty.
pub fn inner_path(name: &str) -> Option<String> {
    if name.contains(['\\', ':', '\0']) || name.starts_with('/') {
        return None;
    }
    let parts: Vec<&str> = name
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let leads_out = parts.contains(&"..");
    (!parts.is_empty() && !leads_out).then(|| parts.join("/"))
}

/// Unpacks bytes piece by piece.
#[derive(Debug)]
pub struct Unpacker {
    way: Way,
    /// The checksum of the unpacked bytes so far, and the expected one.
    checksum: Option<(Hasher, u32)>,
}

#[derive(Debug)]
enum Way {
    Stored(Vec<u8>),
    Deflated(DeflateDecoder<Vec<u8>>),
    Gzip(MultiGzDecoder<Vec<u8>>),
}

impl Unpacker {
    /// For bytes that are not packed.
    pub fn stored() -> Self {
        Self {
            way: Way::Stored(Vec::new()),
            checksum: None,
        }
    }

    /// For a file that is compressed with gzip.
    pub fn gzip() -> Self {
        Self {
            way: Way::Gzip(MultiGzDecoder::new(Vec::new())),
            checksum: None,
        }
    }

    /// For a member of a zip archive.
    ///
    /// # Errors
    /// If it is packed with another method.
    pub fn of_member(entry: &zip::Entry) -> Result<Self, zip::Problem> {
        let way = match entry.method {
            _ if entry.encrypted => return Err(zip::Problem::Encrypted),
            zip::Method::Stored => Way::Stored(Vec::new()),
            zip::Method::Deflated => Way::Deflated(DeflateDecoder::new(Vec::new())),
            zip::Method::Other(method) => return Err(zip::Problem::Method(method)),
        };
        Ok(Self {
            way,
            checksum: Some((Hasher::new(), entry.crc)),
        })
    }

    /// Takes a piece of at most [`PIECE_BYTES`] and returns the unpacked bytes.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn push(&mut self, piece: &[u8]) -> std::io::Result<Vec<u8>> {
        let out = match &mut self.way {
            Way::Stored(out) => {
                out.extend_from_slice(piece);
                out
            }
            Way::Deflated(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Way::Gzip(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                decoder.get_mut()
            }
        };
        let out = std::mem::take(out);
        if let Some((hasher, _)) = &mut self.checksum {
            hasher.update(&out);
        }
        Ok(out)
    }

    /// The remaining bytes after the last piece.
    ///
    /// # Errors
    /// If something is missing, or the checksum differs.
    pub fn finish(self) -> std::io::Result<Vec<u8>> {
        let out = match self.way {
            Way::Stored(out) => out,
            Way::Deflated(decoder) => decoder.finish()?,
            Way::Gzip(decoder) => decoder.finish()?,
        };
        if let Some((mut hasher, checksum)) = self.checksum {
            hasher.update(&out);
            if hasher.finalize() != checksum {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::{Header, Problem, extended, header};

    /// A header in the form of POSIX.
    fn block(name: &str, kind: u8, bytes: u64) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }

    #[test]
    fn members_lie_below_their_folder() {
        for (name, path) in [
            ("model.onnx", Some("model.onnx")),
            ("./a//b/model.onnx", Some("a/b/model.onnx")),
            ("/etc/passwd", None),
            ("../model.onnx", None),
            ("a/../../b", None),
            ("C:\\model.onnx", None),
            ("a\\..\\b", None),
            ("./", None),
            ("a..b", Some("a..b")),
        ] {
            assert_eq!(inner_path(name).as_deref(), path, "{name}");
        }
    }

    #[test]
    fn headers_say_what_follows() {
        let file = |name: &str, bytes| Header::File {
            name: name.to_owned(),
            bytes,
        };
        assert_eq!(
            header(&block("m/a.onnx", b'0', 70_000)),
            Ok(file("m/a.onnx", 70_000))
        );
        assert_eq!(
            header(&block("m/", b'5', 0)),
            Ok(Header::Other { bytes: 0 })
        );
        assert_eq!(header(&[0; 512]), Ok(Header::End));
        for kind in [b'1', b'2', b'3', b'6'] {
            let refused = header(&block("link", kind, 0));
            assert_eq!(refused, Err(Problem::NotAFile("link".to_owned())));
        }
        let mut damaged = block("a", b'0', 1);
        damaged[0] = b'b';
        assert_eq!(header(&damaged), Err(Problem::Damaged));
        assert_eq!(header(&damaged[..100]), Err(Problem::Damaged));
        let said = b"20 path=long/a.onnx\n13 size=5000\n";
        assert_eq!(extended(said), (Some("long/a.onnx".to_owned()), Some(5000)));
        assert_eq!(extended(b"99 path=a\n"), (None, None));
    }

    #[test]
    fn kinds_are_told_by_their_beginnings() {
        assert_eq!(Kind::of(&block("a", b'0', 1)), Some(Kind::Tar));
        assert_eq!(Kind::of(b"PK\x03\x04...."), Some(Kind::Zip));
        assert_eq!(Kind::of(&[0x1f, 0x8b, 8, 0]), Some(Kind::TarGz));
        // An ONNX file begins with its version.
        assert_eq!(Kind::of(&[0x08, 0x08, 0x12]), None);
    }

    #[test]
    fn what_was_packed_comes_out_piece_by_piece() {
        let text = "sextant ".repeat(10_000);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        packed.write_all(text.as_bytes()).expect("packs");
        let packed = packed.finish().expect("packs");
        let unpack = |packed: &[u8]| {
            let mut unpacker = Unpacker::gzip();
            let mut out = Vec::new();
            for piece in packed.chunks(7) {
                out.extend(unpacker.push(piece)?);
            }
            out.extend(unpacker.finish()?);
            Ok::<_, std::io::Error>(out)
        };
        assert_eq!(unpack(&packed).expect("unpacks"), text.as_bytes());
        assert!(unpack(&packed[..packed.len() / 2]).is_err());
    }
}
