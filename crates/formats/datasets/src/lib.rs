//! Converts validation sets in common formats into files that the service reads.
//!
//! A [Parquet file](mod@parquet) becomes CSV or JSON lines, a [folder of images](mod@images) an `.npz` archive.
//! `sextant register` does this where the files are, because registration reads only formats whose size it knows
//! beforehand. Offline jobs read the rows of Parquet files one after the other.

use std::{io, path::PathBuf};

pub mod images;
pub mod parquet;

/// Why a validation set cannot be turned into another format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("the converted validation set cannot be written: {0}")]
    Output(#[from] io::Error),
    /// The file is not Parquet, or is broken.
    #[error("it cannot be read as Parquet: {0}")]
    Parquet(String),
    /// A column holds a value that no tensor can hold.
    #[error("row {row}, column `{column}`: {why}")]
    Column {
        /// Counted from 1.
        row: u64,
        /// Its name.
        column: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A file is not an image, or is broken.
    #[error("`{}` cannot be read as JPEG or PNG: {why}", path.display())]
    Image {
        /// Which.
        path: PathBuf,
        /// What the decoder says.
        why: String,
    },
    /// The folder, the list of labels or the preprocessing does not fit the model.
    #[error("{0}")]
    Unfit(String),
}
