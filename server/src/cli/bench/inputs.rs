//! The inputs of queries: flags for random inputs and for files.

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use clap::Args;
use sextant_bench_client::inputs::{Sizes, file, random};
use sextant_types::{NamedTensor, Signature};

use super::Error;

/// Queries that differ, unless a flag says how many.
const DIFFERENT: usize = 64;

/// What is asked.
#[derive(Debug, Args)]
pub struct InputOptions {
    /// Ask the records of a file instead of random inputs: `.npz`, `.npy` or `.jsonl`, as for offline jobs.
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Rows of each query.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    rows: usize,
    /// Size of the dynamic dimensions of random inputs, except for the rows.
    #[arg(long, value_name = "SIZE", default_value_t = 1)]
    dynamic: usize,
    /// Shape of a random input, rows included: `ids=1,128`; once for each input.
    #[arg(long, value_name = "INPUT=SIZE,..", value_parser = shape)]
    shape: Vec<(String, Vec<usize>)>,
    /// Range from which the integers of random inputs are drawn, the last excluded.
    #[arg(long, value_name = "FROM..TO", default_value = "0..2", value_parser = range)]
    integers: Range<i64>,
    /// Number of different queries that are sent by turns; fewer if they are large [default: 64].
    #[arg(long, value_name = "COUNT")]
    different: Option<usize>,
    /// Send tensors, and receive them, as bytes after the JSON.
    #[arg(long)]
    pub binary: bool,
}

impl InputOptions {
    /// The inputs of all different queries of an application, which may have a file of its own.
    pub fn of(
        &self,
        signature: &Signature,
        own: Option<&PathBuf>,
        seed: u64,
    ) -> Result<Vec<Vec<NamedTensor>>, Error> {
        let different = self.different.unwrap_or(DIFFERENT).max(1);
        Ok(match own.or(self.input.as_ref()) {
            Some(path) => file(path, signature, self.rows, different)?,
            None => random(signature, &self.sizes(), different, seed)?,
        })
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            rows: self.rows,
            dynamic: self.dynamic,
            shapes: self.shape.iter().cloned().collect::<BTreeMap<_, _>>(),
            integers: self.integers.clone(),
        }
    }
}

fn shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let parsed = text.split_once('=').and_then(|(name, sizes)| {
        let sizes = sizes.split(',').map(|size| size.trim().parse().ok());
        Some((name.to_owned(), sizes.collect::<Option<Vec<_>>>()?))
    });
    parsed.ok_or_else(|| "write it as `input=1,128`".to_owned())
}

fn range(text: &str) -> Result<Range<i64>, String> {
    let parsed = text.split_once("..").and_then(|(from, to)| {
        let range = from.trim().parse().ok()?..to.trim().parse().ok()?;
        (!range.is_empty()).then_some(range)
    });
    parsed.ok_or_else(|| "write it as `0..1000`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_ranges_are_read() {
        assert_eq!(shape("ids=1,128"), Ok(("ids".to_owned(), vec![1, 128])));
        assert_eq!(range("-5..7"), Ok(-5..7));
        for wrong in ["ids", "ids=", "ids=1,x"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
        for wrong in ["5", "7..7", "a..b"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
