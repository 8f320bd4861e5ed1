//! Reads models' files from the artefact store and writes them into it.
//!
//! A file of at least `map_from_bytes` is not read into memory. This process holds its outline, and the weights stay
//! where the store has them ([`sextant_engine::ModelFile`]); a file that is made of it is assembled from parts, piece
//! by piece. If engines are isolated, their process reads the outline and finds the parts: here they are only bytes.

use std::{
    collections::HashMap, fs::File, io, ops::Range, os::unix::fs::FileExt, path::PathBuf, sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures::stream;
use sextant_engine::{ModelFile, is_manifest};
use sextant_objects::ByteStream;
use sextant_onnx::outline::{Part, WEIGHTS};
use sextant_registry::{DataFile, METRIC_FILE};
use sextant_types::Digest;

use super::{Registration, rewrite::only};
use crate::{
    Error,
    isolation::protocol::Action,
    rewriting::{Compose, Embed, Outline, Resolve, parts},
};

/// Largest model that is read if it cannot be mapped, bytes.
const MOST_READ_BYTES: u64 = 2 << 30;

/// Message if tensors kept their data in other files.
const EMBEDDED: &str = "the data of the files beside the model is put into it";

/// Message if a large file is written again, because exporters put data at any offset.
const ALIGNED: &str = "its weights are put where engines read them in place";

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A file that was made of a large model is mapped as well from the limit divided by this on.
const SMALLER: u64 = 16;

/// The files that parts are copied from, by the names that tensors use for them.
pub(super) type Sources = HashMap<String, Arc<File>>;

/// A model's file in the artefact store.
#[derive(Debug, Clone)]
pub(super) struct StoredFile {
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
}

impl Registration<'_> {
    /// A model's file; the one that was read last is kept.
    pub(super) async fn read_artefact(&mut self, digest: Digest) -> Result<ModelFile, Error> {
        match &self.artefact {
            Some((held, file)) if *held == digest => Ok(file.clone()),
            _ => {
                let file = self.open_artefact(digest).await?;
                self.artefact = Some((digest, file.clone()));
                Ok(file)
            }
        }
    }

    async fn open_artefact(&self, digest: Digest) -> Result<ModelFile, Error> {
        let objects = &self.parts.objects;
        let size = objects.stat_blob(&digest).await?.unwrap_or_default();
        if size >= self.least_mapped()
            && let Some(scratch) = objects.scratch()
            && let Some(file) = objects.blob_file(&digest).await?
        {
            let link = move |_: &_| ModelFile::linked(&file, &scratch);
            match self.parts.threads.run(link).await? {
                // For example, a file system without hard links.
                Err(error) => {
                    tracing::warn!(%digest, %error, "a large model is read into memory");
                }
                Ok(linked) => return self.outlined(linked).await,
            }
        }
        check_memory(size)?;
        Ok(objects.get_blob(&digest).await?.into())
    }

    /// A large model with its outline.
    async fn outlined(&self, linked: ModelFile) -> Result<ModelFile, Error> {
        let made = self
            .rewrite_file(linked.clone(), Vec::new(), Outline)
            .await?;
        let mut files = made.files.into_iter();
        let outlined = [(); 2].map(|()| files.next().unwrap_or_default());
        let write = move |_: &_| linked.outlined(outlined);
        self.parts.threads.run(write).await?.map_err(unreadable)
    }

    /// Refuses a model that takes too much memory when it is read. If engines are isolated, their process finds that
    /// out.
    pub(super) async fn weigh(&self, file: &ModelFile) -> Result<(), Error> {
        let Some(isolation) = self.parts.config.isolation.clone() else {
            return Ok(());
        };
        if is_manifest(&file.graph) {
            return Ok(());
        }
        let order = self.order_of_files(Action::Weigh);
        let task = self.task(order, file.graph.clone().into()).await?;
        let seat = self.seat.clone();
        let weigh = move |cancel: &_| isolation.weigh(&seat, task, cancel);
        Ok(self.parts.threads.run(weigh).await??)
    }

    /// Bytes of the model's file and of those beside it.
    fn uploaded_bytes(&self) -> u64 {
        let beside = self.model.data.iter().map(|it| it.size_bytes);
        beside.sum::<u64>() + self.model.size_bytes
    }

    /// The size from which a file is mapped here. A file that was made of a large model is mapped too while it is
    /// measured: otherwise it would take more memory than the model.
    fn least_mapped(&self) -> u64 {
        match self.is_large(self.uploaded_bytes()) {
            true => self.parts.config.map_from_bytes / SMALLER,
            false => self.parts.config.map_from_bytes,
        }
    }

    /// Whether a model of this size is mapped wherever it is loaded.
    pub(super) fn is_large(&self, size: u64) -> bool {
        size >= self.parts.config.map_from_bytes
    }

    /// The model with its data at offsets where engines read it, and what was done for that, in words; `None` if
    /// nothing was changed.
    pub(super) async fn with_data(
        &mut self,
        file: &ModelFile,
    ) -> Result<Option<(ModelFile, &'static str)>, Error> {
        let beside = self.model.data.iter().filter(|it| it.name != METRIC_FILE);
        let beside: Vec<DataFile> = beside.cloned().collect();
        let can_be_mapped = self.parts.objects.scratch().is_some();
        let is_mapped = self.is_large(self.uploaded_bytes())
            && can_be_mapped
            && (file.weights.is_some() || !beside.is_empty());
        let linked = match is_mapped {
            true => self.linked(file, &beside).await?,
            false => None,
        };
        let Some(linked) = linked else {
            check_memory(self.uploaded_bytes())?;
            let whole = self.embedded(file.clone(), &beside).await?;
            return Ok(whole.map(|whole| (whole.into(), EMBEDDED)));
        };
        let names: Vec<String> = beside.into_iter().map(|it| it.name).collect();
        let sources = sources(&linked, &names)?;
        let size = |(name, source): (&String, &Arc<File>)| {
            Some((name.clone(), source.metadata().ok()?.len()))
        };
        let sizes = sources.iter().filter_map(size).collect();
        let (is_aligned, graph) = only(self.rewrite(&file.graph, Resolve { sizes }).await?);
        if names.is_empty() && is_aligned {
            return Ok(None);
        }
        let stored = self.put_parts(linked.with_graph(graph), names.clone());
        let stored = stored.await?;
        let whole = self.open_artefact(stored.digest).await?;
        self.whole = Some((whole.clone(), stored));
        let said = match names.is_empty() {
            true => ALIGNED,
            false => EMBEDDED,
        };
        Ok(Some((whole, said)))
    }

    /// The model with the files beside it in its folder; `None` if one of them has to be read.
    async fn linked(
        &self,
        file: &ModelFile,
        beside: &[DataFile],
    ) -> Result<Option<ModelFile>, Error> {
        if beside.is_empty() {
            return Ok(Some(file.clone()));
        }
        let objects = &self.parts.objects;
        let mut paths: Vec<PathBuf> = Vec::new();
        for it in beside {
            let Some(path) = objects.blob_file(&it.digest).await? else {
                return Ok(None);
            };
            paths.push(path);
        }
        let Some(scratch) = objects.scratch() else {
            return Ok(None);
        };
        let file = file.clone();
        let link = move |_: &_| file.with_beside(&paths, &scratch);
        let linked = self.parts.threads.run(link).await?;
        if let Err(error) = &linked {
            tracing::warn!(%error, "the files beside a large model are read into memory");
        }
        Ok(linked.ok())
    }

    /// The model with the data of the files beside it, in memory; `None` if there are none.
    async fn embedded(&self, file: ModelFile, beside: &[DataFile]) -> Result<Option<Bytes>, Error> {
        let (mut names, mut files) = (Vec::new(), Vec::new());
        for it in beside {
            files.push(self.parts.objects.get_blob(&it.digest).await?);
            names.push(it.name.clone());
        }
        let made = self.rewrite_file(file, files, Embed { names }).await?;
        Ok(made.files.into_iter().next())
    }

    /// A graph over the weights of the registered model.
    pub(super) fn over_weights(&self, graph: &Bytes) -> ModelFile {
        ModelFile {
            graph: graph.clone(),
            weights: self.weights.clone(),
        }
    }

    /// Stores a model's file.
    pub(super) async fn put_model(&self, file: &ModelFile) -> Result<StoredFile, Error> {
        if let Some((whole, stored)) = &self.whole
            && whole.graph == file.graph
            && self.parts.objects.has_blob(&stored.digest).await?
        {
            return Ok(stored.clone());
        }
        match file.weights {
            Some(_) => self.put_parts(file.clone(), Vec::new()).await,
            None => Ok(StoredFile {
                digest: self.parts.objects.put_blob(file.graph.clone()).await?,
                size_bytes: file.graph.len() as u64,
            }),
        }
    }

    /// Stores the file again if a sweep of the artefact store removed it before the step that names it was stored; from
    /// now on no sweep can remove it.
    pub(super) async fn ensure_model(&self, file: &ModelFile, digest: Digest) -> Result<(), Error> {
        if !self.parts.objects.has_blob(&digest).await? {
            self.put_model(file).await?;
        }
        Ok(())
    }

    /// The file of a model whose tensors use these names for the files beside it.
    async fn put_parts(&self, file: ModelFile, names: Vec<String>) -> Result<StoredFile, Error> {
        let sources = sources(&file, &names)?;
        let compose = Compose {
            names: names.clone(),
        };
        let made = self.rewrite_file(file.clone(), Vec::new(), compose).await?;
        let (pieces_told, made) = only(made);
        let parts = parts(&pieces_told, made, (&file, &names)).map_err(Error::Unable)?;
        let put = self.parts.objects.put_blob_stream(pieces(parts, sources));
        let put = put.await?;
        Ok(StoredFile {
            digest: put.digest,
            size_bytes: put.size_bytes,
        })
    }
}

/// Refuses files that are too large to be read.
fn check_memory(size: u64) -> Result<(), Error> {
    match size <= MOST_READ_BYTES {
        true => Ok(()),
        false => Err(unreadable(sextant_engine::Error::Failed(format!(
            "a model of `{size}` bytes has to be mapped, and here no file can be: give the process a local artefact \
             store, or a larger cache (`objects.cache_bytes`)"
        )))),
    }
}

fn unreadable(error: sextant_engine::Error) -> Error {
    match error {
        sextant_engine::Error::InvalidModel(reason) => sextant_onnx::Error::NotOnnx(reason).into(),
        error => crate::measure::MeasureError::Load(error).into(),
    }
}

fn lost(name: &str, error: &io::Error) -> Error {
    let reason = format!("the file of `{name}` cannot be read: {error}");
    crate::measure::MeasureError::Load(sextant_engine::Error::Failed(reason)).into()
}

/// The files of a large model and those beside it, by the names that tensors use.
fn sources(file: &ModelFile, names: &[String]) -> Result<Sources, Error> {
    let mut sources = Sources::new();
    let Some(weights) = &file.weights else {
        return Ok(sources);
    };
    for (number, name) in names.iter().enumerate() {
        let opened = weights.beside(number).map_err(|error| lost(name, &error))?;
        sources.insert(name.clone(), Arc::new(opened));
    }
    match weights.file() {
        Ok(opened) => drop(sources.insert(WEIGHTS.to_owned(), Arc::new(opened))),
        // A small graph with large files beside it has no weights of its own.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !names.is_empty() => {}
        Err(error) => return Err(lost("the model", &error)),
    }
    Ok(sources)
}

/// The parts one after the other, in pieces. One buffer serves them all: memory that threads allocate for other threads
/// accumulates in the allocator.
pub(super) fn pieces(parts: Vec<Part>, sources: Sources) -> ByteStream<'static> {
    let cut = parts.into_iter().flat_map(|part| match part {
        Part::Bytes(_) => vec![part],
        Part::Stored { location, range } => {
            let end = range.end;
            let starts = range.step_by(PIECE_BYTES as usize);
            let piece = |start| Part::Stored {
                location: location.clone(),
                range: start..end.min(start + PIECE_BYTES),
            };
            starts.map(piece).collect()
        }
    });
    let state = (cut, Arc::new(sources), BytesMut::new());
    Box::pin(stream::unfold(
        state,
        |(mut cut, sources, buffer)| async move {
            let (piece, buffer) = match cut.next()? {
                Part::Bytes(bytes) => (Ok(bytes), buffer),
                Part::Stored { location, range } => {
                    let from = Arc::clone(&sources);
                    let copy = move || copied(from.get(&location), &range, buffer);
                    let copied = tokio::task::spawn_blocking(copy).await;
                    copied.unwrap_or_else(|error| (Err(io::Error::other(error)), BytesMut::new()))
                }
            };
            Some((piece, (cut, sources, buffer)))
        },
    ))
}

/// A range of a file, and the buffer for the next range.
fn copied(
    file: Option<&Arc<File>>,
    range: &Range<u64>,
    mut buffer: BytesMut,
) -> (io::Result<Bytes>, BytesMut) {
    buffer.resize((range.end - range.start) as usize, 0);
    let file = file.ok_or_else(|| io::Error::other("the file of a part is not open"));
    let read = file.and_then(|file| file.read_exact_at(&mut buffer, range.start));
    (read.map(|()| buffer.split().freeze()), buffer)
}
