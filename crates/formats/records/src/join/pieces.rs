//! Sends the bytes of a joined file to the store.

use std::io;

use bytes::Bytes;
use crc32fast::Hasher;
use sextant_formats::zip::{NewMember, directory_of};
use sextant_objects::ObjectPath;
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{Join, WriteOutcome};
use crate::{Error, PartHeader, parquet::Sheet, rows, text};

/// Bytes of a part that are held at once.
const PIECE_BYTES: u64 = 1 << 20;

type Sender = mpsc::Sender<io::Result<Bytes>>;

impl Join<'_> {
    pub(super) async fn send_lines(&self, sender: &Sender) -> Result<WriteOutcome, Error> {
        for chunk in self.chunks.clone() {
            let (path, header) = self.part(chunk).await?;
            if self.send_block(sender, &path, &header, 0).await? == WriteOutcome::Broken {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }

    pub(super) async fn send_rows(&self, sender: &Sender) -> Result<WriteOutcome, Error> {
        if !give(sender, rows::head(&self.columns)?.into()).await {
            return Ok(WriteOutcome::Broken);
        }
        for chunk in self.chunks.clone() {
            let (path, header) = self.part(chunk).await?;
            let sent = if header.tally.columns.is_empty() {
                let nothing = rows::nothing(&self.columns, header.records)?;
                match give(sender, nothing.into()).await {
                    true => WriteOutcome::Whole,
                    false => WriteOutcome::Broken,
                }
            } else {
                self.send_block(sender, &path, &header, 0).await?
            };
            if sent == WriteOutcome::Broken {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }

    pub(super) async fn send_errors(&self, sender: &Sender) -> Result<WriteOutcome, Error> {
        for chunk in self.chunks.clone() {
            let (path, header) = self.part(chunk).await?;
            let last = header.blocks.len().saturating_sub(1);
            if self.send_block(sender, &path, &header, last).await? == WriteOutcome::Broken {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }

    pub(super) async fn send_array(
        &self,
        sender: &Sender,
        column: usize,
    ) -> Result<WriteOutcome, Error> {
        if !give(sender, self.array_header(column)?.into()).await {
            return Ok(WriteOutcome::Broken);
        }
        for chunk in self.chunks.clone() {
            let (path, header) = self.part(chunk).await?;
            let sent = if header.tally.columns.is_empty() {
                let zeros = header.records * self.columns[column].record_bytes();
                send_zeros(sender, zeros).await
            } else if self.columns[column].is_text() {
                self.send_texts(sender, &path, &header, column).await?
            } else {
                self.send_block(sender, &path, &header, column).await?
            };
            if sent == WriteOutcome::Broken {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }

    pub(super) async fn send_archive(&self, sender: &Sender) -> Result<WriteOutcome, Error> {
        let mut members = Vec::new();
        for (place, column) in self.columns.iter().enumerate() {
            let header = self.array_header(place)?.len() as u64;
            members.push(NewMember {
                name: format!("{}.npy", column.name),
                bytes: header + self.records * column.record_bytes(),
                crc: self.crcs[place],
            });
        }
        for (place, member) in members.iter().enumerate() {
            if !give(sender, member.header()).await
                || self.send_array(sender, place).await? == WriteOutcome::Broken
            {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(match give(sender, directory_of(&members)).await {
            true => WriteOutcome::Whole,
            false => WriteOutcome::Broken,
        })
    }

    pub(super) async fn send_sheet(&self, sender: &Sender) -> Result<WriteOutcome, Error> {
        let mut sheet = Sheet::new(&self.columns)?;
        for chunk in self.chunks.clone() {
            let (longer, groups) = self.append(sheet, chunk).await?;
            sheet = longer;
            for group in groups {
                if !give(sender, group).await {
                    return Ok(WriteOutcome::Broken);
                }
            }
        }
        let end = compute(move || sheet.end()).await?;
        Ok(match give(sender, end).await {
            true => WriteOutcome::Whole,
            false => WriteOutcome::Broken,
        })
    }

    /// Appends the rows of a part, and sends the groups that are complete by then.
    async fn append(&self, mut sheet: Sheet, chunk: u64) -> Result<(Sheet, Vec<Bytes>), Error> {
        let (path, header) = self.part(chunk).await?;
        let mut blocks = Vec::new();
        if !header.tally.columns.is_empty() {
            for place in 0..=self.columns.len() {
                blocks.push(self.block(&path, &header, place).await?);
            }
        }
        compute(move || {
            match blocks.pop() {
                Some(there) => {
                    let appended = sheet.append(&blocks, &there);
                    appended.ok_or_else(|| damaged(&path, "a text is cut off"))?;
                }
                None => sheet.append_nothing(header.records as usize),
            }
            let mut groups = Vec::new();
            while let Some(group) = sheet.group()? {
                groups.push(group);
            }
            Ok((sheet, groups))
        })
        .await
    }

    /// The texts of a block as elements of their array, in pieces.
    pub(super) async fn texts(
        &self,
        path: &ObjectPath,
        header: &PartHeader,
        column: usize,
    ) -> Result<impl Iterator<Item = Result<Bytes, Error>> + use<>, Error> {
        let bytes = self.block(path, header, column).await?;
        let path = path.clone();
        let pieces = text::elements(bytes, self.columns[column].points());
        Ok(pieces.map(move |piece| piece.ok_or_else(|| damaged(&path, "a text is cut off"))))
    }

    /// All bytes of a block.
    async fn block(
        &self,
        path: &ObjectPath,
        header: &PartHeader,
        block: usize,
    ) -> Result<Bytes, Error> {
        let place = header.place(block);
        let (start, block) = place.ok_or_else(|| damaged(path, "a block is missing"))?;
        let range = start..start + block.bytes;
        let bytes = match block.bytes {
            0 => Bytes::new(),
            _ => self.files.get_range(path, range).await?,
        };
        if bytes.len() as u64 != block.bytes || crc32fast::hash(&bytes) != block.crc {
            return Err(damaged(path, "its checksum is wrong"));
        }
        Ok(bytes)
    }

    async fn send_texts(
        &self,
        sender: &Sender,
        path: &ObjectPath,
        header: &PartHeader,
        column: usize,
    ) -> Result<WriteOutcome, Error> {
        for piece in self.texts(path, header, column).await? {
            if !give(sender, piece?).await {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }

    async fn send_block(
        &self,
        sender: &Sender,
        path: &ObjectPath,
        header: &PartHeader,
        block: usize,
    ) -> Result<WriteOutcome, Error> {
        let damaged = |reason| damaged(path, reason);
        let place = header.place(block);
        let (start, block) = place.ok_or_else(|| damaged("a block is missing"))?;
        let (mut at, end) = (start, start + block.bytes);
        let mut seen = Hasher::new();
        while at < end {
            let range = at..end.min(at + PIECE_BYTES);
            let piece = self.files.get_range(path, range.clone()).await?;
            if piece.len() as u64 != range.end - range.start {
                return Err(damaged("it is cut off"));
            }
            at = range.end;
            seen.update(&piece);
            if at == end && seen.clone().finalize() != block.crc {
                return Err(damaged("its checksum is wrong"));
            }
            if !give(sender, piece).await {
                return Ok(WriteOutcome::Broken);
            }
        }
        Ok(WriteOutcome::Whole)
    }
}

/// Runs work that takes a core for a while where no other task waits for the thread.
async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = spawn_blocking(work).await;
    done.map_err(|_| Error::output("parquet", "the file's writer panicked"))?
}

fn damaged(path: &ObjectPath, reason: &'static str) -> Error {
    Error::Part {
        path: path.to_string(),
        reason,
    }
}

/// Sends a piece; returns whether the store still accepts bytes.
async fn give(sender: &Sender, piece: Bytes) -> bool {
    sender.send(Ok(piece)).await.is_ok()
}

async fn send_zeros(sender: &Sender, bytes: u64) -> WriteOutcome {
    for piece in zero_pieces(bytes) {
        if !give(sender, piece).await {
            return WriteOutcome::Broken;
        }
    }
    WriteOutcome::Whole
}

pub(super) fn zero_pieces(bytes: u64) -> impl Iterator<Item = Bytes> {
    let zeros = Bytes::from(vec![0; bytes.min(PIECE_BYTES) as usize]);
    (0..bytes.div_ceil(PIECE_BYTES)).map(move |piece| {
        let left = bytes - piece * PIECE_BYTES;
        zeros.slice(..left.min(PIECE_BYTES) as usize)
    })
}
