//! Fits a file to its application's models: names, dimensions and classes.
//!
//! All models of an application answer the same queries, so they have one signature, which the first of them fixes.
//! Libraries use different names for the same thing: `X` and `input`, `output_probability` and `probabilities`.
//!
//! - [`names`] gives inputs and outputs the names that a user states or the application has, leaves out outputs that
//!   the application does not have, and fixes dimensions that a file leaves open and the application does not.
//! - [`classes`] puts the columns of an output in the application's order of classes, and gives labels the
//!   application's type.
//!
//! **Invariant:** a file that was fitted to a signature answers each query of that signature as it did before, under
//! other names.

mod classes;
mod names;

pub use classes::{Vocabulary, classes};
pub use names::{RenamedModel, names, relax};
