//! Joins parts into one file.

use std::{future::Future, io, ops::Range};

use bytes::Bytes;
use crc32fast::Hasher;
use futures::stream;
use sextant_formats::npy::Header;
use sextant_objects::{InvalidPath, ObjectPath};
use sextant_types::{Signature, offline::RecordFormat};
use tokio::sync::mpsc;

use crate::{
    Error, Files, PartHeader, Tally,
    files::{FIRST_PAUSE, LONGEST_PAUSE, may_pass},
    parquet::Sheet,
    part::Column,
};

mod pieces;

use pieces::zero_pieces;

/// Pieces that may wait for the store.
const PIECES_AHEAD: usize = 4;

/// How often a file is written again if the store fails: for more than half a minute with a store
/// that tries for some seconds itself.
const ATTEMPTS: u32 = 10;

/// The path of a chunk's part.
type Place<'a> = Box<dyn Fn(u64) -> Result<ObjectPath, InvalidPath> + Send + Sync + 'a>;

/// The parts of one output.
pub struct Join<'a> {
    files: Files,
    format: RecordFormat,
    chunks: Range<u64>,
    place: Place<'a>,
    records: u64,
    refused: u64,
    columns: Vec<Column>,
    /// Checksum of each array's elements.
    crcs: Vec<u32>,
}

/// The outcome of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    Whole,
    /// The store accepted no more bytes, or the write was not confirmed.
    Broken,
}

impl<'a> Join<'a> {
    /// Reads the headers of the parts of `chunks`, whose paths `place` returns. An output without
    /// any answer takes its arrays from the signature.
    pub async fn new(
        files: &Files,
        format: RecordFormat,
        chunks: Range<u64>,
        place: impl Fn(u64) -> Result<ObjectPath, InvalidPath> + Send + Sync + 'a,
        signature: &Signature,
    ) -> Result<Self, Error> {
        let mut join = Self {
            files: files.clone(),
            format,
            chunks,
            place: Box::new(place),
            records: 0,
            refused: 0,
            columns: Vec::new(),
            crcs: Vec::new(),
        };
        if format != RecordFormat::Jsonl {
            join.look(signature).await?;
        }
        Ok(join)
    }

    /// Whether some records were not answered and the output cannot say which: they then go into
    /// another file.
    pub fn has_errors(&self) -> bool {
        self.refused > 0
    }

    /// Writes the output and returns its size in bytes; `None` if `confirm`, which is asked before
    /// the file appears, said no.
    pub async fn write<F>(
        &self,
        path: &ObjectPath,
        confirm: impl Fn() -> F + Sync,
    ) -> Result<Option<u64>, Error>
    where
        F: Future<Output = bool> + Send,
    {
        self.write_with(path, false, confirm).await
    }

    /// The same for the lines about records that were not answered.
    pub async fn write_errors<F>(
        &self,
        path: &ObjectPath,
        confirm: impl Fn() -> F + Sync,
    ) -> Result<Option<u64>, Error>
    where
        F: Future<Output = bool> + Send,
    {
        self.write_with(path, true, confirm).await
    }

    async fn write_with<F>(
        &self,
        path: &ObjectPath,
        errors: bool,
        confirm: impl Fn() -> F + Sync,
    ) -> Result<Option<u64>, Error>
    where
        F: Future<Output = bool> + Send,
    {
        let (mut attempt, mut pause) = (0, FIRST_PAUSE);
        loop {
            attempt += 1;
            let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
            let pieces = stream::poll_fn(move |context| receiver.poll_recv(context));
            let put = self.files.store().put_stream(path, Box::pin(pieces));
            let (sent, put) = tokio::join!(self.send(sender, errors, confirm()), put);
            match (sent?, put) {
                (Some(WriteOutcome::Whole), Ok(bytes)) => return Ok(Some(bytes)),
                (None, _) => return Ok(None),
                (_, Err(error)) if may_pass(&error) && attempt < ATTEMPTS => {
                    tracing::debug!(%error, attempt, "the output is written again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                (_, Err(error)) => return Err(error.into()),
                (Some(WriteOutcome::Broken), Ok(_)) => {
                    return Err(Error::Changed {
                        path: path.to_string(),
                    });
                }
            }
        }
    }

    /// Sends the file's bytes; `None` if the write was not confirmed.
    async fn send(
        &self,
        sender: mpsc::Sender<io::Result<Bytes>>,
        errors: bool,
        confirm: impl Future<Output = bool>,
    ) -> Result<Option<WriteOutcome>, Error> {
        let sent = match (errors, self.format) {
            (true, _) => self.send_errors(&sender).await,
            (false, RecordFormat::Jsonl | RecordFormat::File) => self.send_lines(&sender).await,
            (false, RecordFormat::Csv) => self.send_rows(&sender).await,
            (false, RecordFormat::Npy) => self.send_array(&sender, 0).await,
            (false, RecordFormat::Npz) => self.send_archive(&sender).await,
            (false, RecordFormat::Parquet) => self.send_sheet(&sender).await,
        };
        let broken = |reason: &'static str| sender.send(Err(io::Error::other(reason)));
        match sent {
            Ok(WriteOutcome::Whole) if confirm.await => Ok(Some(WriteOutcome::Whole)),
            Ok(WriteOutcome::Whole) => {
                broken("the writer lost its claim").await.ok();
                Ok(None)
            }
            Ok(WriteOutcome::Broken) => Ok(Some(WriteOutcome::Broken)),
            Err(error) => {
                broken("a part could not be read").await.ok();
                Err(error)
            }
        }
    }

    async fn look(&mut self, signature: &Signature) -> Result<(), Error> {
        let mut tally = Tally::default();
        for chunk in self.chunks.clone() {
            let (_, header) = self.part(chunk).await?;
            self.records += header.records;
            self.refused += header.refused;
            tally = header.tally;
        }
        self.columns = tally.columns;
        if self.columns.is_empty() {
            self.columns = declared(signature, self.format)?;
        }
        if self.format == RecordFormat::Npz {
            for column in 0..self.columns.len() {
                let crc = self.checksum(column).await?;
                self.crcs.push(crc);
            }
        }
        Ok(())
    }

    async fn part(&self, chunk: u64) -> Result<(ObjectPath, PartHeader), Error> {
        let path = (self.place)(chunk).map_err(sextant_objects::Error::from)?;
        let header = PartHeader::read(&self.files, &path).await?;
        Ok((path, header))
    }

    /// The checksum of a member's bytes, computed from those of its pieces.
    async fn checksum(&self, column: usize) -> Result<u32, Error> {
        let mut whole = Hasher::new();
        whole.update(&self.array_header(column)?);
        for chunk in self.chunks.clone() {
            let (path, header) = self.part(chunk).await?;
            if header.tally.columns.is_empty() {
                let zeros = header.records * self.columns[column].record_bytes();
                zero_pieces(zeros).for_each(|piece| whole.update(&piece));
            } else if self.columns[column].is_text() {
                let pieces = self.texts(&path, &header, column).await?;
                for piece in pieces {
                    whole.update(&piece?);
                }
            } else if let Some((_, block)) = header.place(column) {
                whole.combine(&Hasher::new_with_initial_len(block.crc, block.bytes));
            }
        }
        Ok(whole.finalize())
    }

    fn array_header(&self, column: usize) -> Result<Vec<u8>, Error> {
        let Some(column) = self.columns.get(column) else {
            return Err(Error::output(
                self.format.as_str(),
                "the model has no output",
            ));
        };
        let shape: Vec<u64> = std::iter::once(self.records)
            .chain(column.shape.iter().map(|dim| *dim as u64))
            .collect();
        let header = match column.is_text() {
            true => Header::write_unicode(column.points(), &shape),
            false => Header::write(column.data_type, &shape),
        };
        header.ok_or_else(|| {
            let reason = format!("NumPy has no type for output `{}`", column.name);
            Error::output(self.format.as_str(), reason)
        })
    }
}

/// Refuses a format that cannot hold the model's answers, as far as the signature shows that.
pub fn check_output(format: RecordFormat, signature: &Signature) -> Result<(), Error> {
    if !format.is_written() {
        let reason = "it is how records are read: write `jsonl`";
        return Err(Error::output(format.as_str(), reason));
    }
    let columns = declared(signature, format)?;
    match format {
        RecordFormat::Parquet => Sheet::new(&columns).map(drop),
        _ => Ok(()),
    }
}

/// The arrays of an output without any answer: dimensions that the model leaves open are 0.
fn declared(signature: &Signature, format: RecordFormat) -> Result<Vec<Column>, Error> {
    if format == RecordFormat::Npy && signature.outputs.len() != 1 {
        let reason = format!(
            "the model has {} outputs: write `npz`",
            signature.outputs.len()
        );
        return Err(Error::output(format.as_str(), reason));
    }
    let skipped = usize::from(signature.batched);
    let columns = signature.outputs.iter().map(|spec| {
        let row = spec.shape.get(skipped..).unwrap_or_default();
        Column {
            name: spec.name.clone(),
            data_type: match spec.data_type {
                sextant_types::DataType::Bf16 => sextant_types::DataType::Fp32,
                other => other,
            },
            shape: row.iter().map(|dim| dim.unwrap_or(0) as usize).collect(),
            width: 0,
        }
    });
    Ok(columns.collect())
}
