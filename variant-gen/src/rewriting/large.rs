//! Inspects files that are not read into memory, and assembles them.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sextant_engine::{ModelFile, read_range};
use sextant_onnx::{
    Error,
    outline::{self, Part, WEIGHTS},
};
use sextant_types::Code;

use super::{Rewrite, RewriteFailure, RewriteOutput, Rewriting, most_made};

/// [`ModelFile::outline`] of a file of which nothing has been read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Outline;

/// [`outline::compose`]; finds the parts that make up the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compose {
    /// The names that tensors use for the files beside it, in order.
    pub(crate) names: Vec<String>,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// This many of the bytes that were made.
    Made(u64),
    /// A range of a stored file.
    Stored {
        /// The number of the file beside the model; `None` for the file with its weights.
        file: Option<usize>,
        /// Its beginning, bytes.
        from: u64,
        /// Its end, bytes.
        to: u64,
    },
}

impl Rewrite for Outline {
    type Found = ();

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<()>, Error> {
        let files = file.outline()?.into();
        Ok(RewriteOutput { found: (), files })
    }

    fn told(self) -> Rewriting {
        Rewriting::Outline(self)
    }
}

impl Compose {
    fn number_of(&self, location: &str) -> Option<usize> {
        self.names.iter().position(|name| name == location)
    }
}

impl Rewrite for Compose {
    type Found = Vec<Piece>;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<Self::Found>, Error> {
        let read = |location: &str, range| {
            let weights = file.weights.as_ref()?;
            let opened = match location {
                WEIGHTS => weights.file(),
                location => weights.beside(self.number_of(location)?),
            };
            read_range(&opened.ok()?, range)
        };
        let mut made = BytesMut::new();
        let pieces = outline::compose(&file.graph, read)?.into_iter();
        let pieces = pieces.map(|part| match part {
            Part::Bytes(bytes) => {
                made.extend_from_slice(&bytes);
                Piece::Made(bytes.len() as u64)
            }
            Part::Stored { location, range } => Piece::Stored {
                file: self.number_of(&location),
                from: range.start,
                to: range.end,
            },
        });
        let pieces = pieces.collect();
        Ok(RewriteOutput::one(pieces, made.freeze()))
    }

    fn told(self) -> Rewriting {
        Rewriting::Compose(self)
    }
}

/// The parts that another process has named, if they are parts of existing files.
pub(crate) fn parts(
    pieces: &[Piece],
    mut made: Bytes,
    (file, names): (&ModelFile, &[String]),
) -> Result<Vec<Part>, RewriteFailure> {
    let unfit = || RewriteFailure {
        code: Code::Internal,
        message: "the process that measures puts a file together of parts that are not there"
            .to_owned(),
    };
    let (most, mut all) = (most_made(file, &[]), 0u64);
    let part = |piece: &Piece| {
        let part = match *piece {
            Piece::Made(length) if length <= made.len() as u64 => {
                Part::Bytes(made.split_to(length as usize))
            }
            Piece::Stored { file, from, to } if from <= to => Part::Stored {
                location: match file {
                    None => WEIGHTS.to_owned(),
                    Some(number) => names.get(number).ok_or_else(unfit)?.clone(),
                },
                range: from..to,
            },
            _ => return Err(unfit()),
        };
        all = all.saturating_add(part.length());
        match all <= most {
            true => Ok(part),
            false => Err(RewriteFailure {
                code: Code::MemoryExceeded,
                message: format!(
                    "what is made of the model has more than `{most}` bytes, which is the most of files of this size"
                ),
            }),
        }
    };
    pieces.iter().map(part).collect()
}
