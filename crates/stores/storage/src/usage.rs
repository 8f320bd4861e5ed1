//! The usage of the artefact store.

use std::collections::{BTreeMap, HashMap};

use sextant_objects::ObjectPath;
use sextant_registry::{BlobRole, Job, JobFilter, JobKind};
use sextant_types::{ApplicationId, Digest, ModelId, offline};

use crate::{
    Amount, Error, Inner, Storage,
    files::{Files, specification},
    names::{FilePurpose, kept_for},
};

/// Number of jobs that are read at once.
const PAGE: u32 = 1000;

/// The kind of stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Files from which models were registered.
    Model,
    /// Validation sets.
    Validation,
    /// Files that were made from models.
    Variant,
    /// Files that the steps of pipelines need.
    Pipeline,
    /// Files that jobs read.
    Input,
    /// Files that jobs wrote.
    Output,
    /// Parts that jobs keep until they end.
    Parts,
    /// Notes on the webhooks of jobs.
    Notes,
    /// Files that no job names.
    File,
    /// Blobs to which nothing refers.
    Unreferenced,
}

/// One use of the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The kind.
    pub kind: Kind,
    /// The application, if it belongs to one.
    pub application: Option<ApplicationId>,
    /// The model, if it belongs to one.
    pub model: Option<ModelId>,
}

/// The usage of the store. Every object counts once: a blob that several models use counts for the first of them by
/// name, and a file that one job wrote and another reads for the one that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// The uses with their sizes, sorted by kind, application and model.
    pub uses: Vec<(Use, Amount)>,
    /// The total.
    pub total: Amount,
    /// Largest number of bytes, if it is limited.
    pub limit_bytes: Option<u64>,
}

/// The files that jobs name.
#[derive(Default)]
struct JobFiles {
    files: HashMap<String, Use>,
    /// By the name of a folder, which ends in `/`.
    folders: HashMap<String, Use>,
    /// By the folder of the parts.
    parts: HashMap<String, Use>,
}

impl Storage {
    /// The present usage. Takes as long as listing the whole store.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let inner = &self.inner;
        let mut uses = BTreeMap::new();
        inner.count_blobs(&mut uses).await?;
        inner.count_files(&mut uses).await?;
        let mut total = Amount::default();
        for amount in uses.values() {
            total.objects += amount.objects;
            total.bytes += amount.bytes;
        }
        Ok(Usage {
            uses: uses.into_iter().collect(),
            total,
            limit_bytes: inner.config.limit_bytes,
        })
    }
}

impl Inner {
    async fn count_blobs(&self, uses: &mut BTreeMap<Use, Amount>) -> Result<(), Error> {
        let mut users: HashMap<Digest, Use> = HashMap::new();
        for used in self.registry.blob_uses().await? {
            users.entry(used.digest).or_insert(Use {
                kind: match used.role {
                    BlobRole::Model => Kind::Model,
                    BlobRole::Validation => Kind::Validation,
                    BlobRole::Variant => Kind::Variant,
                    BlobRole::Pipeline => Kind::Pipeline,
                },
                application: Some(used.application),
                model: Some(used.model).filter(|_| used.role != BlobRole::Pipeline),
            });
        }
        self.each_blob(|blob| {
            let user = users.get(&blob.digest).cloned();
            let user = user.unwrap_or(Use::of_nobody(Kind::Unreferenced));
            uses.entry(user).or_default().add(blob.size_bytes);
        })
        .await
    }

    async fn count_files(&self, uses: &mut BTreeMap<Use, Amount>) -> Result<(), Error> {
        let named = self.named().await?;
        let mut files = Files::below("");
        while let Some(page) = files.page(self).await? {
            for file in page {
                let user = named.user(&file.path);
                uses.entry(user).or_default().add(file.size_bytes);
            }
        }
        Ok(())
    }

    async fn named(&self) -> Result<JobFiles, Error> {
        let mut filter = JobFilter {
            kind: Some(JobKind::Offline),
            limit: Some(PAGE),
            ..JobFilter::default()
        };
        let mut named = JobFiles::default();
        loop {
            let jobs = self.registry.jobs(&filter).await?;
            for job in &jobs {
                named.enter(job);
            }
            match jobs.last() {
                Some(last) if jobs.len() == PAGE as usize => filter.before = Some(last.id.clone()),
                _ => return Ok(named),
            }
        }
    }
}

// === impl Use ===

impl Use {
    fn of_nobody(kind: Kind) -> Self {
        Self {
            kind,
            application: None,
            model: None,
        }
    }
}

// === impl JobFiles ===

impl JobFiles {
    fn enter(&mut self, job: &Job) {
        let Some(spec) = specification(job) else {
            return;
        };
        let of = |kind| Use {
            application: Some(job.application.clone()),
            ..Use::of_nobody(kind)
        };
        let parts = offline::parts_folder(&spec.output);
        self.parts.entry(parts).or_insert_with(|| of(Kind::Parts));
        if spec.output.ends_with('/') {
            self.folders.insert(spec.output, of(Kind::Output));
        } else {
            let errors = format!("{}{}", spec.output, offline::ERRORS_SUFFIX);
            self.files.insert(errors, of(Kind::Output));
            self.files.insert(spec.output, of(Kind::Output));
        }
        let inputs = match spec.input.ends_with('/') {
            true => &mut self.folders,
            false => &mut self.files,
        };
        inputs.entry(spec.input).or_insert_with(|| of(Kind::Input));
    }

    fn user(&self, path: &ObjectPath) -> Use {
        match kept_for(path) {
            Some(FilePurpose::Parts { folder, .. }) => {
                let known = self.parts.get(&folder).cloned();
                return known.unwrap_or(Use::of_nobody(Kind::Parts));
            }
            Some(FilePurpose::Notes(_)) => return Use::of_nobody(Kind::Notes),
            None => {}
        }
        let path = path.as_str();
        let mut folders = path.match_indices('/').rev();
        let below = || folders.find_map(|(end, _)| self.folders.get(&path[..=end]));
        let named = self.files.get(path).or_else(below).cloned();
        named.unwrap_or(Use::of_nobody(Kind::File))
    }
}
