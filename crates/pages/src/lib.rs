//! The pages for people: views, templates and charts.
//!
//! A view is read from the very document that the API answers, so that a page shows what a program is told and
//! nothing else. Entry points: [`Frame`], which is around every page, and the views [`ServicePage`], [`RegistryPage`],
//! [`Size`], [`QueriesPage`], [`QueryPage`], [`SignIn`], [`RefusalPage`] and [`Manual`].
//!
//! **Invariant:** nothing here knows HTTP, a store or a clock. A page loads files of this crate alone ([`file()`]), has no
//! style or script of its own inside, and reads the same without scripts.

mod answer;
mod assets;
mod chart;
mod figures;
mod frame;
mod manual;
mod registered;
mod served;
mod sign_in;
mod size;

pub use answer::{ExplainedQuery, QueriesPage, QueryPage};
pub use askama::Error;
pub use assets::{Asset, file};
pub use frame::{Frame, Page, Question};
pub use manual::Manual;
pub use registered::{Job, Model, Pipeline, RegistryPage, Variant};
pub use served::{ServicePage, Status};
pub use sign_in::{RefusalPage, SignIn};
pub use size::{Decision, Scaling, Size};
