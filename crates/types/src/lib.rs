//! The words of Sextant: ids, tensors, targets, signatures, variants, profiles.
//!
//! Entry points: [`Tensor`], [`Targets`], [`Variant`], [`Profile`], [`Accuracy`].
//!
//! **Invariant:** no I/O of any kind, no clock, no wire schema. HTTP shapes live in `api/`; what is
//! serialised here is serialised for storage (registry, metadata store), never for clients.

pub mod accuracy;
pub mod byte_size;
pub mod company;
pub mod convert;
pub mod device;
pub mod error;
pub mod feedback;
pub mod fit;
pub mod id;
pub mod index;
pub mod interval;
mod named;
pub mod number;
pub mod offline;
pub mod padding;
pub mod profile;
pub mod random;
pub mod release;
pub mod resources;
mod route;
pub mod signature;
mod slowdown;
mod step;
mod store_id;
pub mod surroundings;
pub mod target;
pub mod tensor;
mod texts;
pub mod time;
pub mod variant;

pub use accuracy::{Accuracy, AccuracyKind, Metric};
pub use device::{Cost, DevicePrice, DeviceType, PriceSource, Prices};
pub use error::{Code, ErrorKind};
pub use feedback::{FeedbackSettings, InvalidFeedbackSettings, RewardDirection};
pub use id::{
    ApplicationId, DeviceTypeName, Digest, InvalidId, JobId, ModelId, VariantId, WorkerId,
};
pub use index::{IndexVec, PoolIx};
pub use offline::OfflineSpec;
pub use padding::{InvalidPadding, OutputAxis, Padding};
pub use profile::{BatchLatency, ConcurrentRun, Profile, ShapeProfile, Sizes};
pub use release::{InvalidPercent, Line, Release, Releases, Stage};
pub use resources::{InvalidResources, Isolation, Resources, USUAL_PRIORITY};
pub use route::Route;
pub use signature::{Constants, Names, Renames, Signature, SignatureMismatch, TensorSpec};
pub use slowdown::{Slowdowns, UNCERTAINTY};
pub use step::{StepOf, WholeAccuracy};
pub use store_id::{InvalidStoreId, StoreId};
pub use surroundings::{Amounts, Surroundings};
pub use target::{
    InvalidPrefer, InvalidTarget, LeastQuality, Prefer, Quality, TargetClass, Targets,
    relative_quality, share_of,
};
pub use tensor::{Data, DataType, Element, Fill, InvalidTensor, NamedTensor, Tensor};
pub use texts::{Texts, TextsBuilder};
pub use variant::{
    EngineName, ExpectedProfile, Optimization, Precision, Variant, VariantSpec, as_uploaded,
    uploaded_qualities, uploaded_quality,
};
