//! Keeps compiled kernels in a folder, so that later processes need not compile them again.
//!
//! `SEXTANT_CUDA_KERNELS` names the folder. Its contents run on the device: anyone who can write there decides what the
//! engine computes. A file that cannot be read or written costs a compilation and is no error.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

use sextant_engine::Error;

use super::check_names;
use crate::kernels::Source;

const FOLDER: &str = "SEXTANT_CUDA_KERNELS";

/// The folder, and everything except the source that decides what the compiler produces.
pub(super) struct ModuleCache {
    folder: PathBuf,
    compiler: (i32, i32),
    options: Vec<String>,
}

// === impl ModuleCache ===

impl ModuleCache {
    /// `None` where no folder is configured.
    pub(super) fn new(compiler: (i32, i32), options: &[String]) -> Option<Self> {
        let folder = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty())?;
        Some(Self {
            folder: folder.into(),
            compiler,
            options: options.to_vec(),
        })
    }

    /// The kept code of a source. If there is none, `compile` makes it and this keeps it.
    pub(super) fn image(
        &self,
        source: &Source,
        compile: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let file = self.file(source);
        if let Ok(image) = std::fs::read(&file)
            && check_names(&source.kernels(), &image).is_ok()
        {
            return Ok(image);
        }
        let image = compile()?;
        if let Err(error) = self.keep(&file, &image) {
            tracing::warn!(file = %file.display(), %error, "cannot keep compiled kernels");
        }
        Ok(image)
    }

    fn file(&self, source: &Source) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (source.text, self.compiler, &self.options).hash(&mut hasher);
        let name = format!("{}-{:016x}.bin", source.name, hasher.finish());
        self.folder.join(name)
    }

    /// Writes the file atomically, because other processes may read it meanwhile.
    fn keep(&self, file: &PathBuf, image: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let part = file.with_extension(format!("part-{}", std::process::id()));
        std::fs::write(&part, image)?;
        std::fs::rename(part, file)
    }
}
