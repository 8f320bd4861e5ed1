//! Reads validation sets from the artefact store and writes them into it.
//!
//! If engines are isolated, this process reads no set: the measuring process gets the file ([`SetFile`]), and a front
//! is put before a file in the store, piece by piece.

use std::{fs::File, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream};
use sextant_objects::{ByteStream, ObjectStore};
use sextant_onnx::outline::Part;
use sextant_types::{Digest, Signature};
use tokio::runtime::Handle;

use super::{
    Registration,
    files::{self, Sources},
};
use crate::{
    Error,
    isolation::{
        SetFile, Source, Task,
        protocol::{Action, Order, SetSummary},
    },
    measure::MeasureError,
    score::ScoreError,
    step,
    validation::{
        self, Front, FrontSearch, Invalid, RecordShapes, ScoringTarget, SetRequirements,
        ValidationSet,
    },
};

/// Bytes of a file that are held at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A stored validation set with a front before its file.
pub(super) struct WrappedSet {
    digest: Digest,
    front: Bytes,
    /// The parts after the front: ranges of stored files.
    parts: Vec<(Digest, Range<u64>)>,
}

impl Registration<'_> {
    /// The digest of the validation set's file.
    pub(super) fn validation_file(&self) -> Digest {
        self.labelled.unwrap_or(self.model.validation)
    }

    /// The same file, to be passed to another process.
    pub(super) async fn set_file(&self) -> Result<SetFile, Error> {
        let (objects, digest) = (&self.parts.objects, self.validation_file());
        let bytes = self.set_bytes(&digest).await?;
        let path = objects.blob_file(&digest).await?;
        // If it has gone meanwhile, the store says so.
        let source = match path.and_then(|path| File::open(path).ok()) {
            Some(file) => Source::File(Arc::new(file)),
            None => Source::Store(Arc::clone(objects), Handle::current()),
        };
        Ok(SetFile {
            digest,
            bytes,
            source,
        })
    }

    /// The size of a set's file. As text it may take twice the limit of its arrays.
    async fn set_bytes(&self, digest: &Digest) -> Result<u64, Error> {
        let limit = self.parts.config.limits.bytes;
        let size = self.parts.objects.stat_blob(digest).await?;
        match size.unwrap_or_default() {
            size if size > limit.saturating_mul(2) => Err(Invalid::TooLarge { limit }.into()),
            size => Ok(size),
        }
    }

    /// The file of the validation set, in memory.
    pub(super) async fn read_set(&self) -> Result<Bytes, Error> {
        let digest = self.validation_file();
        self.set_bytes(&digest).await?;
        Ok(self.parts.objects.get_blob(&digest).await?)
    }

    /// Checks the validation set against the model.
    pub(super) async fn check_set(
        &mut self,
        signature: &Signature,
        scored: &ScoringTarget,
    ) -> Result<SetSummary, Error> {
        let metric = self.application.metric;
        let Some(isolation) = self.parts.config.isolation.clone() else {
            let set = self.validation(signature, scored).await?;
            let check = move |_: &_| SetSummary::of(&set, metric);
            return self.parts.threads.run(check).await;
        };
        let task = Task {
            order: Order {
                action: Action::Check,
                artefact: self.model.digest,
                signature: signature.clone(),
                metric,
                scored: scored.clone(),
                limits: self.parts.config.limits,
            },
            validation: self.set_file().await?,
            artefact: None,
            beside: Vec::new(),
        };
        let seat = self.seat.clone();
        let check = move |cancel: &_| isolation.check(&seat, task, cancel);
        told(self.parts.threads.run(check).await?)
    }

    /// An order about files, before anything is known of the model.
    pub(super) fn order_of_files(&self, action: Action) -> Order {
        Order {
            action,
            artefact: self.model.digest,
            signature: Signature {
                inputs: Vec::new(),
                outputs: Vec::new(),
                batched: false,
            },
            metric: self.application.metric,
            scored: ScoringTarget::default(),
            limits: self.parts.config.limits,
        }
    }

    /// The shapes of the validation set's records.
    pub(super) async fn record_shapes(&self) -> Result<RecordShapes, Error> {
        let limits = self.parts.config.limits;
        let Some(isolation) = self.parts.config.isolation.clone() else {
            let set = self.read_set().await?;
            let read = move |_: &_| validation::record_shapes(&set, limits);
            return Ok(self.parts.threads.run(read).await??);
        };
        let task = Task {
            order: self.order_of_files(Action::RecordShapes),
            validation: self.set_file().await?,
            artefact: None,
            beside: Vec::new(),
        };
        let read = move |cancel: &_| isolation.record_shapes(task, cancel);
        told(self.parts.threads.run(read).await?)
    }

    /// The validation set, read and checked in this process, at most once.
    pub(super) async fn validation(
        &mut self,
        signature: &Signature,
        scored: &ScoringTarget,
    ) -> Result<Arc<ValidationSet>, Error> {
        if let Some(validation) = &self.validation {
            return Ok(validation.clone());
        }
        let bytes = self.read_set().await?;
        let (signature, metric) = (signature.clone(), self.application.metric);
        let scored = scored.clone();
        let limits = self.parts.config.limits;
        let read = self.parts.threads.run(move |_| {
            let expected = SetRequirements {
                signature: &signature,
                metric,
                scored: &scored,
                limits,
            };
            validation::read(&bytes, expected)
        });
        let validation = Arc::new(read.await??);
        self.validation = Some(validation.clone());
        Ok(validation)
    }

    /// Stores the validation set with a further front before its file, and uses that file from now on. `judge` is the
    /// graph of a metric, if that is what the front gets.
    pub(super) async fn wrap(
        &mut self,
        change: impl FnOnce(Front) -> Front,
        judge: Option<Digest>,
    ) -> Result<WrappedSet, Error> {
        let objects = Arc::clone(&self.parts.objects);
        let set = self.validation_file();
        let size = self.set_bytes(&set).await?;
        let front = self.front(&set, size).await?;
        let file = front.start().saturating_add(front.judge_bytes());
        let (front, judge) = match judge {
            Some(judge) => {
                let bytes = objects.stat_blob(&judge).await?.unwrap_or_default();
                (front.judged(bytes), Some((judge, 0..bytes)))
            }
            None => {
                let range = front.start().min(size)..file.min(size);
                (front, (!range.is_empty()).then_some((set, range)))
            }
        };
        let parts = judge.into_iter().chain([(set, file.min(size)..size)]);
        let parts = parts.collect();
        let front = change(front).write().map_err(|source| Error::Step {
            step: step::INSPECT.to_owned(),
            source,
        })?;
        let mut wrapped = WrappedSet {
            digest: set,
            front,
            parts,
        };
        let put = objects.put_blob_stream(pieces(&objects, &wrapped).await?);
        wrapped.digest = put.await?.digest;
        self.labelled = Some(wrapped.digest);
        Ok(wrapped)
    }

    async fn front(&self, set: &Digest, size: u64) -> Result<Front, Error> {
        let mut bytes = Front::LEAST_BYTES;
        loop {
            let beginning = 0..bytes.min(size);
            let beginning = self.parts.objects.get_blob_range(set, beginning).await?;
            match Front::find(&beginning)? {
                FrontSearch::Front(front) => return Ok(front),
                FrontSearch::More(needed) if needed > size => {
                    let why = "what stands in front of it is cut short".to_owned();
                    return Err(Invalid::Archive(why).into());
                }
                FrontSearch::More(needed) => bytes = needed,
            }
        }
    }

    /// Stores the set again if a sweep of the artefact store removed it before the step that names it was stored; from
    /// now on no sweep can remove it.
    pub(super) async fn ensure_wrapped(&self, set: &WrappedSet) -> Result<(), Error> {
        let objects = &self.parts.objects;
        if !objects.has_blob(&set.digest).await? {
            let pieces = pieces(objects, set).await?;
            objects.put_blob_stream(pieces).await?;
        }
        Ok(())
    }
}

/// Reports an error in a set as if the set were read here.
fn told<T>(answer: Result<T, MeasureError>) -> Result<T, Error> {
    answer.map_err(|error| match error {
        MeasureError::Score(ScoreError::Invalid(invalid)) => invalid.into(),
        error => error.into(),
    })
}

/// The front and the parts after it, in pieces.
async fn pieces(
    objects: &Arc<dyn ObjectStore>,
    wrapped: &WrappedSet,
) -> Result<ByteStream<'static>, Error> {
    let (front, parts) = (wrapped.front.clone(), wrapped.parts.clone());
    let mut sources = Sources::new();
    for (digest, _) in &parts {
        if let Some(path) = objects.blob_file(digest).await?
            && let Ok(file) = File::open(path)
        {
            sources.insert(digest.to_string(), Arc::new(file));
        }
    }
    if parts
        .iter()
        .any(|(digest, _)| !sources.contains_key(&digest.to_string()))
    {
        return Ok(remote_pieces(objects, front, parts));
    }
    let stored = parts.into_iter().map(|(digest, range)| Part::Stored {
        location: digest.to_string(),
        range,
    });
    let all = std::iter::once(Part::Bytes(front)).chain(stored);
    Ok(files::pieces(all.collect(), sources))
}

/// The same if the store is elsewhere.
fn remote_pieces(
    objects: &Arc<dyn ObjectStore>,
    front: Bytes,
    parts: Vec<(Digest, Range<u64>)>,
) -> ByteStream<'static> {
    let cut = parts.into_iter().flat_map(|(digest, range)| {
        let end = range.end;
        let starts = range.step_by(PIECE_BYTES as usize);
        starts.map(move |start| (digest, start..end.min(start + PIECE_BYTES)))
    });
    let objects = Arc::clone(objects);
    let parts = stream::iter(cut).then(move |(digest, range)| {
        let objects = Arc::clone(&objects);
        async move {
            let piece = objects.get_blob_range(&digest, range).await;
            piece.map_err(std::io::Error::other)
        }
    });
    Box::pin(stream::once(async move { Ok(front) }).chain(parts))
}
