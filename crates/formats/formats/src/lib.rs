//! NumPy's arrays (`.npy`), archives of them (`.npz`), elements as JSON, and packed folders (zip, tar): read and
//! written in one place by validation sets, jobs, uploads and the command line.
//!
//! Entry points: [`npy::read`] for a whole array, [`npy::Header`] where the elements are read by ranges;
//! [`zip::Archive`] for an archive in memory, [`zip::End`] and [`zip::entries`] where it is read by ranges;
//! [`json::values`]; [`hugging_face::classes`] for what lies beside a model; [`frameworks::of`] for models of other libraries.
//!
//! **Invariant:** nothing that a file says about itself is believed: no header, size or count makes a
//! reader panic, overflow, or take more memory than the file and the caller's limit.

pub mod frameworks;
pub mod hugging_face;
pub mod json;
pub mod npy;
pub mod table;
pub mod tar;
pub mod unpack;
pub mod zip;
