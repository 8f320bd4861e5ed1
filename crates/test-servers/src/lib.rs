//! Real servers for tests: each on a free port of the loopback interface, with a folder of its own
//! that goes with it.
//!
//! Entry points: [`redis::Redis`], [`postgres::Postgres`], [`s3::S3`]. The programs come from the
//! system's packages or from the cache folder that `cargo xtask test` fills; a test that finds none
//! fails and says which command installs it.
//!
//! **Invariant:** nothing is mocked, and nothing outlives its value: a server is killed when dropped.

pub mod postgres;
pub mod process;
pub mod redis;
pub mod s3;
