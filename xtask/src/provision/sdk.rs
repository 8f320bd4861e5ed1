//! The Python side of what generates SDKs from the OpenAPI document, compiles and runs them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::python;

/// What it needs: `tests/sdk/requirements.txt`.
const REQUIREMENTS: &str = include_str!("../../../tests/sdk/requirements.txt");

/// The interpreter of the environment `python-sdk` in the cache, made if it is missing or differs.
pub fn ensure(cache: &Path) -> Result<PathBuf> {
    python::environment(&cache.join("python-sdk"), REQUIREMENTS)
}
