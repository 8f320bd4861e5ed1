//! A model in the form in which engines get it.
//!
//! Small files are held in memory. Of a large file, memory holds the outline ([`sextant_onnx::outline`]), and a folder
//! of its own has what engines open by name: the file itself, without a copy, and the outline beside it. The folder is
//! on the file system of the artefact store, so the file in it is a hard link: it stays when the store deletes or
//! evicts the file, and goes with the last user of the model.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use sextant_onnx::outline;

use crate::Error;

/// The file with the data of large tensors, in its folder.
const WEIGHTS_FILE: &str = "weights";

/// The outline, in the same folder, whose tensors name that file.
pub const GRAPH_FILE: &str = "model.onnx";

/// Files beside the model, in the same folder, followed by their numbers.
const BESIDE: &str = "beside-";

/// The lock of the process that has made the folder.
const LOCK: &str = "lock";

/// A folder without a lock may get one within this time.
const YOUNG: Duration = Duration::from_secs(60);

/// Number of folders that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A model's file, or a manifest, which names a model that an engine has.
#[derive(Debug, Clone)]
pub struct ModelFile {
    /// The file; of a large model its outline, whose large tensors have their data in `weights`.
    pub graph: Bytes,
    /// The folder with the file of a large model.
    pub weights: Option<Arc<WeightsFolder>>,
}

/// A folder with a large model's file and its outline.
#[derive(Debug)]
pub struct WeightsFolder {
    path: PathBuf,
    /// `None` if another process has made it.
    _made: Option<ScratchFolder>,
}

/// A folder of this process, which is removed with this value.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
    /// Shows other processes that it is used.
    _lock: File,
}

// === impl ModelFile ===

impl From<Bytes> for ModelFile {
    fn from(graph: Bytes) -> Self {
        Self {
            graph,
            weights: None,
        }
    }
}

impl From<Vec<u8>> for ModelFile {
    fn from(graph: Vec<u8>) -> Self {
        Bytes::from(graph).into()
    }
}

impl From<&'static str> for ModelFile {
    fn from(manifest: &'static str) -> Self {
        Bytes::from(manifest).into()
    }
}

impl ModelFile {
    /// Replaces the file if the engine has all that it needs of the model.
    pub fn absent() -> Self {
        Bytes::new().into()
    }

    /// Whether there is no file.
    pub fn is_absent(&self) -> bool {
        self.graph.is_empty() && self.weights.is_none()
    }

    /// A large model, whose file stays where it is. Its folder is made in `scratch`, on the same file system.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if it is not an ONNX file, [`Error::Failed`] if a file cannot be read or made.
    pub fn open(file: &Path, scratch: &Path) -> Result<Self, Error> {
        let linked = Self::linked(file, scratch)?;
        let outlined = linked.outline().map_err(|error| invalid(&error))?;
        linked.outlined(outlined)
    }

    /// A large model of which nothing is read yet: its graph is empty, and [`Self::whole`] is the unchanged file. Its
    /// folder is made in `scratch`, on the same file system.
    ///
    /// # Errors
    /// [`Error::Failed`] if its folder cannot be made.
    pub fn linked(file: &Path, scratch: &Path) -> Result<Self, Error> {
        let weights = WeightsFolder::make(scratch, &[(WEIGHTS_FILE.to_owned(), file.to_owned())]);
        Ok(Self {
            graph: Bytes::new(),
            weights: Some(Arc::new(weights?)),
        })
    }

    /// A graph over the same weights, if it has any, with files beside them. The folder is made in `scratch`, on the
    /// same file system.
    ///
    /// # Errors
    /// Those of [`Self::linked`].
    pub fn with_beside(&self, beside: &[PathBuf], scratch: &Path) -> Result<Self, Error> {
        let weights = self.weights.iter().map(|it| it.path.join(WEIGHTS_FILE));
        let weights = weights.map(|path| (WEIGHTS_FILE.to_owned(), path));
        let beside = beside.iter().enumerate();
        let beside = beside.map(|(number, path)| (format!("{BESIDE}{number}"), path.clone()));
        let files: Vec<(String, PathBuf)> = weights.chain(beside).collect();
        Ok(Self {
            graph: self.graph.clone(),
            weights: Some(Arc::new(WeightsFolder::make(scratch, &files)?)),
        })
    }

    /// Reads what [`Self::outlined`] takes: the outline, and the outline with the name of the file in the folder.
    ///
    /// # Errors
    /// [`sextant_onnx::Error::NotOnnx`] if the file is not an ONNX file, or cannot be read.
    pub fn outline(&self) -> Result<[Bytes; 2], sextant_onnx::Error> {
        let unread = || sextant_onnx::Error::NotOnnx("its file cannot be read".to_owned());
        let file = self.weights.as_ref().and_then(|it| it.file().ok());
        let file = file.ok_or_else(unread)?;
        let size = file.metadata().map_err(|_| unread())?.len();
        let graph = outline::outline(size, |range| read_range(&file, range))?;
        let located = outline::located(&graph, WEIGHTS_FILE)?;
        Ok([graph, located])
    }

    /// The model with its outline, which [`Self::outline`] has read from the same file, perhaps in another process.
    ///
    /// # Errors
    /// [`Error::Failed`] if it cannot be put into the folder.
    pub fn outlined(self, [graph, located]: [Bytes; 2]) -> Result<Self, Error> {
        if let Some(weights) = &self.weights {
            let written = fs::write(weights.path.join(GRAPH_FILE), &located);
            written.map_err(|error| failed("be put into a folder", &error))?;
        }
        Ok(self.with_graph(graph))
    }

    /// Another graph over the same weights.
    pub fn with_graph(&self, graph: Bytes) -> Self {
        Self {
            graph,
            weights: self.weights.clone(),
        }
    }

    /// A range of the outline's file; `None` if there is no file, or it cannot be read.
    pub fn read(&self, range: Range<u64>) -> Option<Bytes> {
        read_range(&self.weights.as_ref()?.file().ok()?, range)
    }

    /// The whole file in memory, for engines that cannot map it.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn whole(&self) -> Result<Bytes, Error> {
        let Some(weights) = &self.weights else {
            return Ok(self.graph.clone());
        };
        let file = weights
            .file()
            .map_err(|error| failed("be opened", &error))?;
        if self.graph.is_empty() {
            return all_of(file).map_err(|error| failed("be read", &error));
        }
        outline::filled(&self.graph, |range| read_range(&file, range))
            .map_err(|error| invalid(&error))
    }

    /// The graph with the name of the file in the folder, and the folder; `None` if the graph has all data.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the graph is not an ONNX file.
    pub fn located(&self) -> Result<Option<(Bytes, &Arc<WeightsFolder>)>, Error> {
        let Some(weights) = &self.weights else {
            return Ok(None);
        };
        let graph = outline::located(&self.graph, WEIGHTS_FILE).map_err(|error| invalid(&error))?;
        Ok(Some((graph, weights)))
    }
}

// === impl WeightsFolder ===

impl WeightsFolder {
    /// A folder with these files under these names.
    fn make(scratch: &Path, files: &[(String, PathBuf)]) -> Result<Self, Error> {
        let failed = |error: io::Error| failed("be put into a folder", &error);
        let folder = ScratchFolder::make(scratch).map_err(failed)?;
        for (name, file) in files {
            fs::hard_link(file, folder.path.join(name)).map_err(failed)?;
        }
        Ok(Self {
            path: folder.path.clone(),
            _made: Some(folder),
        })
    }

    /// A folder that another process has made, and keeps.
    pub fn of_another(path: PathBuf) -> Self {
        Self { path, _made: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the model.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn file(&self) -> io::Result<File> {
        File::open(self.path.join(WEIGHTS_FILE))
    }

    /// A file beside the model, by its number.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn beside(&self, number: usize) -> io::Result<File> {
        File::open(self.path.join(format!("{BESIDE}{number}")))
    }

    /// Bytes of the model's file and those beside it.
    pub fn size_bytes(&self) -> u64 {
        let size = |name: String| Some(fs::metadata(self.path.join(name)).ok()?.len());
        let beside = (0..).map_while(|number| size(format!("{BESIDE}{number}")));
        size(WEIGHTS_FILE.to_owned()).unwrap_or_default() + beside.sum::<u64>()
    }

    /// The names of its files.
    fn names(&self) -> impl Iterator<Item = String> {
        let is_there = |name: &String| self.path.join(name).exists();
        let beside = (0..).map(|number| format!("{BESIDE}{number}"));
        let own = [WEIGHTS_FILE, GRAPH_FILE].map(str::to_owned).into_iter();
        own.filter(is_there).chain(beside.take_while(is_there))
    }

    /// A new folder beside it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn sibling(&self) -> io::Result<ScratchFolder> {
        ScratchFolder::make(self.path.parent().unwrap_or(&self.path))
    }
}

// === impl ScratchFolder ===

impl ScratchFolder {
    fn make(scratch: &Path) -> io::Result<Self> {
        let path = fresh(scratch)?;
        let lock = || {
            let lock = File::create(path.join(LOCK))?;
            lock.try_lock()?;
            Ok(lock)
        };
        match lock() {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                fs::remove_dir_all(&path).ok();
                Err(error)
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the files of a model here, for a process that may read nothing else; returns their path.
    ///
    /// # Errors
    /// If they cannot be put here.
    pub fn show(&self, weights: &WeightsFolder) -> io::Result<PathBuf> {
        for name in weights.names() {
            fs::hard_link(weights.path.join(&name), self.path.join(name))?;
        }
        Ok(self.path.clone())
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let folder = self.path.display();
            tracing::warn!(%folder, %error, "a folder stays behind");
        }
    }
}

/// Removes the folders in `scratch` whose makers are gone. Other processes may work in `scratch`.
///
/// # Errors
/// If the folder cannot be read.
pub fn sweep(scratch: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(scratch) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let folder = entry?.path();
        let is_held = match File::open(folder.join(LOCK)) {
            Ok(lock) => matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
            // A folder that is just being made has no lock yet.
            Err(_) => fs::metadata(&folder)
                .and_then(|it| it.modified())
                .is_ok_and(|made| made.elapsed().is_ok_and(|age| age < YOUNG)),
        };
        if !is_held && let Err(error) = fs::remove_dir_all(&folder) {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "a folder stays behind");
        }
    }
    Ok(())
}

/// A new folder, named by the id of this process and a count.
fn fresh(scratch: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(scratch)?;
    let scratch = scratch.canonicalize()?;
    loop {
        let count = MADE.fetch_add(1, Ordering::Relaxed);
        let path = scratch.join(format!("{}-{count}", std::process::id()));
        match fs::create_dir(&path) {
            // An earlier process with the same id left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
}

/// A range of a file; `None` if it is not complete, or cannot be read. Memory is not allocated by an announced length.
pub fn read_range(file: &File, range: Range<u64>) -> Option<Bytes> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    (range.end <= file.metadata().ok()?.len()).then_some(())?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start).ok()?;
    Some(bytes.into())
}

fn all_of(mut file: File) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::Failed(format!("the file of the model cannot {what}: {error}"))
}

fn invalid(error: &sextant_onnx::Error) -> Error {
    Error::InvalidModel(error.to_string())
}
