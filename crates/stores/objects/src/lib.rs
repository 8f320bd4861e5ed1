//! Artefacts: content-addressed blobs (models, validation sets) and named files (job inputs and
//! outputs).
//!
//! Entry points: [`ObjectStore`] (the contract), [`LocalStore`] (a local folder), [`CachedStore`] (a
//! bounded cache before another store), [`ObjectPath`], [`conformance`] (the suite that every store
//! passes).
//!
//! **Invariant:** bytes in, bytes out: nothing here knows what a model or a job is. A reader sees a
//! whole object or none, whatever crashes.

mod cached;
mod error;
mod local;
mod path;
mod store;

pub mod conformance;

pub use cached::{CacheStats, CachedStore};
pub use error::Error;
pub use local::LocalStore;
pub use path::{InvalidPath, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, ObjectPath};
pub use store::{
    BlobInfo, BlobPage, ByteStream, ListRequest, ObjectInfo, ObjectStore, Page, PutBlob, Room,
    digest_of,
};
