//! The name of the store, in a file beside its objects.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use sextant_types::StoreId;

use crate::Error;

/// Reads the name of the store in the folder `root`.
pub(super) fn read(root: &Path, name: &str) -> Result<Option<StoreId>, Error> {
    let failed = |source| Error::Io {
        object: name.to_owned(),
        source,
    };
    let text = match fs::read_to_string(root.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let read = text.trim_end().parse().map(Some);
    read.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Writes the name, as a whole or not at all.
pub(super) fn write(root: &Path, name: &str, identity: StoreId) -> Result<(), Error> {
    let written = || {
        let new = root.join(format!("{name}.new"));
        let mut file = File::create(&new)?;
        writeln!(file, "{identity}")?;
        file.sync_all()?;
        fs::rename(&new, root.join(name))?;
        File::open(root)?.sync_all()
    };
    written().map_err(|source| Error::Io {
        object: name.to_owned(),
        source,
    })
}
