//! Python environments of tests: what generates SDKs from the OpenAPI document, and what trains models.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::python;

/// What it needs: `tests/sdk/requirements.txt`.
const REQUIREMENTS: &str = include_str!("../../../tests/sdk/requirements.txt");

/// What trains and pickles models: `tests/convert/requirements.txt`.
const MODELS: &str = include_str!("../../../tests/convert/requirements.txt");

/// The interpreter of the environment `python-models` in the cache, which has libraries that train models.
pub fn ensure_models(cache: &Path) -> Result<PathBuf> {
    python::environment(&cache.join("python-models"), MODELS)
}

/// The interpreter of the environment `python-sdk` in the cache, made if it is missing or differs.
pub fn ensure(cache: &Path) -> Result<PathBuf> {
    python::environment(&cache.join("python-sdk"), REQUIREMENTS)
}
