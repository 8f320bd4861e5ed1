//! The pages for people: views, templates and charts.
//!
//! A view is read from the document that the API answers, so that a page shows exactly what a program gets. Entry
//! points: [`Frame`], which surrounds every page, and the views [`ServicePage`], [`RegistryPage`], [`Size`],
//! [`QueriesPage`], [`QueryPage`], [`SignIn`], [`RefusalPage`] and [`Manual`].
//!
//! **Invariant:** this package knows no HTTP, no store and no clock. A page loads only files of this crate
//! ([`file()`]), has no style or script inside, and shows the same without scripts.

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
