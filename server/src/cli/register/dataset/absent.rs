//! A binary that was built without the feature `datasets`.

use std::path::{Path, PathBuf};

use sextant_types::Signature;

use super::options::Images;
use crate::cli::Error;

/// A validation set that can be sent.
#[derive(Debug)]
pub struct Dataset {
    /// The file.
    pub path: PathBuf,
    /// None.
    pub classes: Vec<String>,
}

impl Dataset {
    /// Reads no other forms.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the whole binary reads files here"
    )]
    pub fn table(_: &Path) -> Result<Option<Self>, Error> {
        Ok(None)
    }

    /// Takes files only, as they are.
    pub fn prepare(
        path: &Path,
        _: (&Path, impl FnOnce() -> Result<Signature, Error>),
        options: &Images,
        _: bool,
    ) -> Result<Self, Error> {
        if path.is_dir() || path.extension().is_some_and(|it| it == "parquet") {
            return Err(Error::Usage(format!(
                "`{}`: this binary was built without the feature `datasets`, as the demo is: build the whole one \
                 with `cargo build --release --package sextant`, or save an `.npz` archive",
                path.display()
            )));
        }
        options.check_unused()?;
        Ok(Self {
            path: path.to_owned(),
            classes: Vec::new(),
        })
    }
}
