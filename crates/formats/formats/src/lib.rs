//! NumPy's arrays (`.npy`), archives of them (`.npz`), elements as JSON, and packed folders (zip, tar). Validation
//! sets, jobs, uploads and the command line read and write them here.
//!
//! Entry points: [`npy::read`] for a whole array, [`npy::Header`] if the elements are read by ranges; [`zip::Archive`]
//! for an archive in memory, [`zip::End`] and [`zip::entries`] if it is read by ranges; [`json::values`];
//! [`hugging_face::classes`] for files beside a model; [`frameworks::of`] for models of other libraries.
//!
//! **Invariant:** nothing that a file says about itself is trusted: no header, size or count makes a reader panic,
//! overflow, or take more memory than the file and the caller's limit.

pub mod frameworks;
pub mod hugging_face;
pub mod json;
pub mod npy;
pub mod table;
pub mod tar;
pub mod unpack;
pub mod zip;
