//! The packages of the workspace: their folders and their dependencies.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{paths, shell};

/// The packages by name.
pub struct Packages(BTreeMap<String, Package>);

/// A package.
pub struct Package {
    /// Its folder, relative to the root of the workspace.
    pub folder: PathBuf,
    /// Its dependencies without those of its tests.
    #[cfg(test)]
    pub built_of: BTreeSet<String>,
    /// Its dependencies with those of its tests.
    pub depends_on: BTreeSet<String>,
}

impl Packages {
    /// Reads the packages from cargo.
    ///
    /// # Errors
    ///
    /// Cargo cannot read the workspace.
    pub fn of_workspace() -> Result<Self> {
        let arguments = ["metadata", "--no-deps", "--format-version", "1"];
        let metadata = shell::output(shell::command("cargo").args(arguments))?;
        let metadata = serde_json::from_str(&metadata).context("`cargo metadata` is no JSON")?;
        Self::read(&metadata, &paths::root())
    }

    /// Reads what `cargo metadata` says of the workspace at `root`.
    ///
    /// # Errors
    ///
    /// The document is not of this form, or a package lies elsewhere.
    pub fn read(metadata: &Value, root: &Path) -> Result<Self> {
        let packages = metadata["packages"].as_array();
        let packages = packages.context("`cargo metadata` names no packages")?;
        let read = packages.iter().map(|it| package(it, root));
        Ok(Self(read.collect::<Result<_>>()?))
    }

    /// Each package with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.0
            .iter()
            .map(|(name, package)| (name.as_str(), package))
    }

    /// The package of this name.
    #[cfg(test)]
    pub fn get(&self, name: &str) -> Option<&Package> {
        self.0.get(name)
    }

    /// The name of the innermost package whose folder contains a file.
    pub fn owner(&self, file: &Path) -> Option<&str> {
        let around = self.iter().filter(|(_, it)| file.starts_with(&it.folder));
        let innermost = around.max_by_key(|(_, it)| it.folder.components().count());
        innermost.map(|(name, _)| name)
    }
}

fn package(package: &Value, root: &Path) -> Result<(String, Package)> {
    let name = package["name"].as_str().context("a package has no name")?;
    let manifest = package["manifest_path"].as_str();
    let manifest = Path::new(manifest.context("a package has no manifest")?);
    let folder = manifest.parent().unwrap_or(manifest).strip_prefix(root)?;
    let dependencies = package["dependencies"].as_array();
    let dependencies = dependencies.map(Vec::as_slice).unwrap_or_default();
    let names = |dependencies: &mut dyn Iterator<Item = &Value>| {
        let names = dependencies.filter_map(|it| it["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let package = Package {
        folder: folder.to_owned(),
        #[cfg(test)]
        built_of: names(&mut dependencies.iter().filter(|it| it["kind"] != "dev")),
        depends_on: names(&mut dependencies.iter()),
    };
    Ok((name.to_owned(), package))
}
