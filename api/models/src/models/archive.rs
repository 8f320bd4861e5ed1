//! A model and its files in one archive: a zip, a tar, or a tar that is compressed with gzip.
//!
//! The archive is stored as it arrives. Then each of its members is read from the store piece by piece, unpacked, and
//! stored under its own digest; the archive itself is released. Memory use does not grow with the size of either, and
//! the unpacked files have the limit of an upload.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    pin::pin,
};

use axum::body::Bytes;
use futures::{Stream, StreamExt, stream};
use sextant_formats::{
    hugging_face::{self, CONFIG, VALIDATION},
    tar::{self, Header},
    unpack::{self, Kind, Unpacker, inner_path},
    zip::{self, End, Entry, LARGE_END_BYTES, LOCAL_BYTES, MAX_DIRECTORY_BYTES, TAIL_BYTES},
};
use sextant_objects::PutBlob;
use sextant_registry::DataFile;
use sextant_types::{Code, Digest};

use crate::{
    ApiState,
    codec::short,
    problem::{Problem, Refusal},
    room::Reservation,
    upload,
};

/// Longest configuration that is read, bytes.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Most files of an archive.
const MOST_MEMBERS: usize = 10_000;

/// Most headers of a tar archive: each file may have headers for a long name and for further attributes, and each
/// folder has one.
const MOST_HEADERS: usize = 4 * MOST_MEMBERS;

/// Memory that a file takes in addition to its name, bytes.
const MEMBER_BYTES: usize = 128;

/// What an archive holds.
#[derive(Debug)]
pub struct ArchiveContents {
    /// The ONNX file.
    pub model: PutBlob,
    /// The files beside it.
    pub data: Vec<DataFile>,
    /// The validation set, where there is one.
    pub validation: Option<PutBlob>,
    /// The names of the classes, if a configuration beside the model has them.
    pub classes: Vec<String>,
    /// The archive and intermediate files, which are no longer needed.
    pub packed: Vec<Digest>,
}

/// A stored file that is an archive.
struct StoredArchive<'a> {
    state: &'a ApiState,
    blob: PutBlob,
    /// The memory of the archive's directory.
    held: Reservation,
    /// Bytes of the names of its files.
    names_bytes: u64,
}

/// A file in the archive.
struct Member {
    path: String,
    packed: Packing,
}

/// Where the file is in the archive, and how it is compressed.
enum Packing {
    Zip(Entry),
    Tar { start: u64, bytes: u64 },
}

/// The contents of the archive, if the stored file is one. The digest of each blob that is stored is added to `stored`.
pub async fn unpacked(
    state: &ApiState,
    blob: PutBlob,
    stored: &mut Vec<Digest>,
) -> Result<Option<ArchiveContents>, Problem> {
    let mut done = vec![blob.digest];
    let mut packed = StoredArchive {
        state,
        blob,
        held: state.room().take_body(),
        names_bytes: 0,
    };
    // If a sweep has removed the file, the registration reports that.
    let Ok(beginning) = packed.get(0, unpack::BEGINNING_BYTES).await else {
        return Ok(None);
    };
    let members = match Kind::of(&beginning) {
        None => return Ok(None),
        Some(Kind::Zip) => packed.of_zip().await?,
        Some(Kind::Tar) => packed.of_tar().await?,
        Some(Kind::TarGz) => {
            packed.blob = packed.without_gzip().await?;
            stored.push(packed.blob.digest);
            done.push(packed.blob.digest);
            packed.of_tar().await?
        }
    };
    let chosen = chosen(members)?;
    let mut left = state.limits().max_model_bytes;
    let model = packed.take(&chosen.model, &mut left, stored).await?;
    let mut data = Vec::new();
    for (name, member) in chosen.beside {
        let blob = packed.take(&member, &mut left, stored).await?;
        data.push(DataFile {
            name,
            digest: blob.digest,
            size_bytes: blob.size_bytes,
        });
    }
    let validation = match &chosen.validation {
        Some(member) => Some(packed.take(member, &mut left, stored).await?),
        None => None,
    };
    let classes = match &chosen.config {
        Some(member) => packed.classes(member).await?,
        None => Vec::new(),
    };
    Ok(Some(ArchiveContents {
        model,
        data,
        validation,
        classes,
        packed: done,
    }))
}

/// The members that are taken from an archive.
struct Selection {
    /// The ONNX file.
    model: Member,
    /// The files in its folder, by their names below it.
    beside: Vec<(String, Member)>,
    /// The validation set and the configuration: from that folder, or from the one above if it is the folder `onnx` of
    /// Hugging Face.
    validation: Option<Member>,
    config: Option<Member>,
}

/// Selects the ONNX file and the members that belong to it.
fn chosen(members: Vec<Member>) -> Result<Selection, Problem> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = members.iter().find(|it| !seen.insert(it.path.clone())) {
        return Err(broken(&format!("`{}` is in it twice", short(&twice.path))));
    }
    let is_model = |member: &&Member| member.path.ends_with(".onnx");
    let models: Vec<&str> = members
        .iter()
        .filter(is_model)
        .map(|it| it.path.as_str())
        .collect();
    let named = models.iter().filter(|path| {
        let name = path.rsplit('/').next();
        name == Some("model.onnx")
    });
    let model = match (&models[..], &named.collect::<Vec<_>>()[..]) {
        ([only], _) => *only,
        (_, [only]) => **only,
        ([], _) => {
            return Err(broken(
                "there is no `.onnx` file in it: export the model into it first",
            ));
        }
        (several, _) => {
            let names: Vec<String> = several
                .iter()
                .take(8)
                .map(|it| short(it).into_owned())
                .collect();
            return Err(broken(&format!(
                "there are several `.onnx` files in it (`{}`): leave one, or call it `model.onnx`",
                names.join("`, `")
            )));
        }
    };
    let model = model.to_owned();
    let folder = &model[..model.rfind('/').map_or(0, |at| at + 1)];
    let above = folder
        .strip_suffix("onnx/")
        .filter(|it| it.is_empty() || it.ends_with('/'));
    let mut beside = BTreeMap::new();
    let mut around = BTreeMap::new();
    let mut of_model = None;
    for member in members {
        if member.path == model {
            of_model = Some(member);
        } else if let Some(name) = member.path.strip_prefix(folder) {
            if !name.ends_with(".onnx") {
                beside.insert(name.to_owned(), member);
            }
        } else if let Some(name) = above.and_then(|above| member.path.strip_prefix(above)) {
            around.insert(name.to_owned(), member);
        }
    }
    let mut known = |name: &str| beside.remove(name).or_else(|| around.remove(name));
    // Only the command line converts Parquet.
    let mut sets = VALIDATION.iter().filter(|name| !name.ends_with(".parquet"));
    let validation = sets.find_map(|name| known(name));
    let config = known(CONFIG);
    Ok(Selection {
        model: of_model.ok_or_else(|| broken("it changed while it was read"))?,
        beside: beside.into_iter().collect(),
        validation,
        config,
    })
}

fn broken(why: &str) -> Problem {
    Problem::new(
        Code::InvalidModel,
        format!("the archive cannot be taken: {why}"),
    )
    .field("model")
}

fn damaged() -> io::Error {
    io::Error::other(Refusal(broken("it is damaged or cut short")))
}

fn inner(name: &str) -> Result<String, Problem> {
    inner_path(name).ok_or_else(|| {
        let name = short(name);
        broken(&format!(
            "`{name}` leads out of it: pack files by their names below one folder"
        ))
    })
}

// === impl StoredArchive ===

impl StoredArchive<'_> {
    async fn get(&self, start: u64, bytes: u64) -> Result<Bytes, Problem> {
        let end = start.saturating_add(bytes).min(self.blob.size_bytes);
        let range = start.min(end)..end;
        let objects = self.state.objects();
        Ok(objects.get_blob_range(&self.blob.digest, range).await?)
    }

    async fn of_zip(&mut self) -> Result<Vec<Member>, Problem> {
        let size = self.blob.size_bytes;
        let damaged = || broken("its directory is missing, damaged or over 16 MiB");
        let tail = self
            .get(size.saturating_sub(TAIL_BYTES), TAIL_BYTES)
            .await?;
        let (start, bytes) = match End::find(&tail).ok_or_else(damaged)? {
            End::Here { start, bytes } => (start, bytes),
            End::Large { at } => {
                let end = self.get(at, LARGE_END_BYTES).await?;
                zip::large_end(&end).ok_or_else(damaged)?
            }
        };
        if bytes > MAX_DIRECTORY_BYTES || start.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(damaged());
        }
        self.held.grow(bytes as usize)?;
        let directory = self.get(start, bytes).await?;
        let entries = zip::entries(&directory).ok_or_else(damaged)?;
        let mut members = Vec::new();
        for entry in entries
            .into_iter()
            .filter(|entry| !entry.name.ends_with('/'))
        {
            members.push(Member {
                path: inner(&entry.name)?,
                packed: Packing::Zip(entry),
            });
            self.count(&members)?;
        }
        Ok(members)
    }

    async fn of_tar(&mut self) -> Result<Vec<Member>, Problem> {
        let wrong = |problem: &tar::Problem| broken(&problem.to_string());
        let (mut members, mut at, mut next) = (Vec::new(), 0_u64, (None, None));
        // A header that names no file takes a read as well.
        for _ in 0..MOST_HEADERS {
            let block = self.get(at, tar::BLOCK_BYTES).await?;
            if block.is_empty() {
                return Ok(members);
            }
            let header = tar::header(&block).map_err(|problem| wrong(&problem))?;
            let start = at + tar::BLOCK_BYTES;
            let bytes = match header {
                Header::End => return Ok(members),
                Header::Other { bytes } => bytes,
                Header::LongName { bytes } => {
                    let name = self.get(start, bytes.min(tar::MOST_NAME_BYTES)).await?;
                    next.0 = Some(tar::long_name(&name));
                    bytes
                }
                Header::Extended { bytes } => {
                    let said = self.get(start, bytes.min(tar::MOST_NAME_BYTES)).await?;
                    next = tar::extended(&said);
                    bytes
                }
                Header::File { name, bytes } => {
                    let (long, large) = std::mem::take(&mut next);
                    let bytes = large.unwrap_or(bytes);
                    members.push(Member {
                        path: inner(&long.unwrap_or(name))?,
                        packed: Packing::Tar { start, bytes },
                    });
                    self.count(&members)?;
                    bytes
                }
            };
            let end = tar::filled(bytes).and_then(|bytes| start.checked_add(bytes));
            let end = end.filter(|end| *end <= self.blob.size_bytes);
            at = end.ok_or_else(|| wrong(&tar::Problem::Damaged))?;
        }
        Err(broken("it has too many entries that are no files"))
    }

    /// Counts the last of the members that were found.
    fn count(&mut self, members: &[Member]) -> Result<(), Problem> {
        if members.len() > MOST_MEMBERS {
            return Err(broken(&format!("it has more than {MOST_MEMBERS} files")));
        }
        let name = members.last().map_or(0, |member| member.path.len());
        self.names_bytes += name as u64;
        if self.names_bytes > MAX_DIRECTORY_BYTES {
            return Err(broken("the names of its files take more than 16 MiB"));
        }
        // Names are held twice while they are checked for duplicates.
        self.held.grow(2 * (name + MEMBER_BYTES))
    }

    async fn without_gzip(&self) -> Result<PutBlob, Problem> {
        let pieces = self.unpacked(0, self.blob.size_bytes, Unpacker::gzip());
        let most = self.state.limits().max_model_bytes;
        let bytes = upload::limited(pieces, "the archive", most);
        Ok(self.state.objects().put_blob_stream(bytes).await?)
    }

    /// Stores a member.
    async fn take(
        &self,
        member: &Member,
        left: &mut u64,
        stored: &mut Vec<Digest>,
    ) -> Result<PutBlob, Problem> {
        let pieces = self.pieces(member).await?;
        let bytes = upload::limited(pieces, "what is in the archive", *left);
        let blob = self.state.objects().put_blob_stream(bytes).await?;
        *left -= blob.size_bytes.min(*left);
        stored.push(blob.digest);
        Ok(blob)
    }

    /// The classes in a configuration. A file that is too long for a configuration has none.
    async fn classes(&self, config: &Member) -> Result<Vec<String>, Problem> {
        let mut pieces = pin!(self.pieces(config).await?);
        let mut text = Vec::new();
        while let Some(piece) = pieces.next().await {
            text.extend_from_slice(&piece.map_err(|_| broken("it is damaged or cut short"))?);
            if text.len() > MAX_CONFIG_BYTES {
                return Ok(Vec::new());
            }
        }
        Ok(hugging_face::classes(&text))
    }

    /// The unpacked bytes of a member.
    async fn pieces(
        &self,
        member: &Member,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static, Problem> {
        let (start, bytes, unpacker) = match &member.packed {
            Packing::Tar { start, bytes } => (*start, *bytes, Unpacker::stored()),
            Packing::Zip(entry) => {
                let header = self.get(entry.header_at, LOCAL_BYTES).await?;
                let start = Entry::header_bytes(&header);
                let start = start.and_then(|bytes| entry.header_at.checked_add(bytes));
                let start = start.ok_or_else(|| broken("a member lies beyond its end"))?;
                let unpacker = Unpacker::of_member(entry);
                let unpacker = unpacker.map_err(|problem| broken(&problem.to_string()))?;
                (start, entry.packed_bytes, unpacker)
            }
        };
        let end = start
            .checked_add(bytes)
            .filter(|end| *end <= self.blob.size_bytes);
        let end = end.ok_or_else(|| broken("a member lies beyond its end"))?;
        Ok(self.unpacked(start, end, unpacker))
    }

    /// The unpacked bytes `start .. end`.
    fn unpacked(
        &self,
        start: u64,
        end: u64,
        unpacker: Unpacker,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let (objects, digest) = (self.state.objects().clone(), self.blob.digest);
        let from = (objects, Some(unpacker), start);
        let pieces = stream::unfold(from, move |(objects, unpacker, at)| async move {
            let mut unpacker = unpacker?;
            if at >= end {
                let rest = unpacker.finish().map(Bytes::from).map_err(|_| damaged());
                return Some((rest, (objects, None, at)));
            }
            let range = at..end.min(at + unpack::PIECE_BYTES);
            let piece = objects.get_blob_range(&digest, range).await;
            let piece = piece.map_err(io::Error::other).and_then(|piece| {
                let length = piece.len() as u64;
                match length {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok((unpacker.push(&piece).map_err(|_| damaged())?, length)),
                }
            });
            match piece {
                Ok((out, length)) => Some((Ok(out.into()), (objects, Some(unpacker), at + length))),
                Err(error) => Some((Err(error), (objects, None, end))),
            }
        });
        pieces.filter(|piece| {
            let is_empty = piece.as_ref().is_ok_and(Bytes::is_empty);
            std::future::ready(!is_empty)
        })
    }
}
