//! The pipelines of a front end: reading, checking and measuring them, and announcing them as
//! variants.

use sextant_pipeline::Invalid;
use sextant_types::Code;

use crate::problem::Problem;

pub mod load;
pub mod measure;
mod memory;
mod over;
pub mod read;
pub mod whole;

pub use over::over;

/// The problem of a definition that cannot be a pipeline.
pub fn refused(invalid: &Invalid) -> Problem {
    Problem::new(Code::InvalidPipeline, invalid.to_string()).field(invalid.key)
}
