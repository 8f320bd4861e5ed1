//! In place of the reader of Parquet, where the feature `parquet` is off.

use sextant_objects::ObjectPath;
use sextant_types::Signature;

use crate::{Error, Files, Record};

/// What no file becomes.
pub(crate) enum Table {}

impl Table {
    /// Refuses the file.
    pub(crate) async fn open(
        _: &Files,
        path: &ObjectPath,
        _: (u64, u64),
        _: &Signature,
    ) -> Result<Self, Error> {
        let reason = "this binary has been built without Parquet: build the whole one with `cargo build --release \
                      --package sextant`, or save CSV or an `.npz` archive";
        Err(Error::input(path, reason))
    }

    /// There is none to read.
    pub(crate) async fn read(&mut self, _: u32, _: &Signature) -> Result<Vec<Record>, Error> {
        match *self {}
    }

    /// Records in it, and bytes of one.
    pub(crate) fn extent(&self) -> (u64, u64) {
        match *self {}
    }
}
