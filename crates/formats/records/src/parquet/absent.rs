//! Replaces the code that reads and writes Parquet if the feature `parquet` is off.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use sextant_objects::ObjectPath;
use sextant_types::Signature;

use crate::{Error, Files, csv, part::Column, reader::Line};

const ABSENT: &str = "this binary has been built without Parquet: build the whole one with `cargo build --release \
                      --package sextant`";

/// A file that cannot be written.
pub(crate) struct Sheet(&'static Infallible);

impl Sheet {
    /// Refuses to write a file.
    pub(crate) fn new(_: &[Column]) -> Result<Self, Error> {
        let reason = format!("{ABSENT}, or write `csv`, `npz` or `jsonl`");
        Err(Error::output("parquet", reason))
    }

    pub(crate) fn append(&mut self, _: &[Bytes], _: &[u8]) -> Option<()> {
        match *self.0 {}
    }

    pub(crate) fn append_nothing(&mut self, _: usize) {
        match *self.0 {}
    }

    pub(crate) fn group(&mut self) -> Result<Option<Bytes>, Error> {
        match *self.0 {}
    }

    pub(crate) fn end(self) -> Result<Bytes, Error> {
        match *self.0 {}
    }
}

/// A file that cannot be opened.
pub(crate) enum Table {}

impl Table {
    /// Refuses the file.
    pub(crate) async fn open(
        _: &Files,
        path: &ObjectPath,
        _: (u64, u64),
        _: &Signature,
    ) -> Result<Self, Error> {
        Err(Error::input(
            path,
            format!("{ABSENT}, or save CSV or an `.npz` archive"),
        ))
    }

    /// There are none.
    pub(crate) fn columns(&self) -> Option<Arc<csv::Rows>> {
        match *self {}
    }

    /// There is none to read.
    pub(crate) async fn lines(&mut self, _: u32) -> Result<Vec<Line>, Error> {
        match *self {}
    }

    /// Records in it, and bytes of one.
    pub(crate) fn extent(&self) -> (u64, u64) {
        match *self {}
    }
}
