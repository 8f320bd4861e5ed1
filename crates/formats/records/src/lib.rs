//! Files of records in the artefact store: the input and output of offline jobs.
//!
//! Entry points: [`Outline::scan`] (the content of a file), [`Reader`] (its records, piece by piece, which may be
//! parsed elsewhere), [`Tally::encode`] (one chunk of answers as a part) and [`Join`] (the parts as one file).
//!
//! A file is read by ranges and written as a stream, so that memory is limited to a chunk of records, however large the
//! file is.
//!
//! **Invariant:** the output depends on the records and their answers alone: the same parts join into the same bytes.
//! Nothing here knows jobs, leases or who answers.

mod archive;
mod csv;
mod error;
mod files;
mod join;
mod json;
mod lines;
mod outline;
#[cfg_attr(not(feature = "parquet"), path = "parquet/absent.rs")]
mod parquet;
mod part;
mod reader;
mod rows;
mod tensors;
mod text;
mod whole;

pub use error::Error;
pub use files::Files;
pub use join::{Join, check_output};
pub use json::parse as parse_line;
pub use outline::{Mark, Outline};
pub use part::{Chunk, Column, PartHeader, RecordAnswer, RecordFailure, Tally};
pub use reader::{Reader, Record, Unparsed};
pub use whole::WholeFile;
