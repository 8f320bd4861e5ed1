//! Measures how the time of a network is spent, operation by operation.
//!
//! Each operation runs alone, several times in a row, and not in the graph that serves. So the sum over all operations
//! exceeds the time of the graph by the gaps between small operations.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sextant_engine::Error;
use sextant_types::Precision;

use crate::{
    driver::{Driver, Priority, Reservation},
    lower::{ALIGNMENT, Target, Weights, lower},
    operation::{Address, Operation},
    plan::{Packing, Program},
    prepared::{read, shapes},
};

/// Runs of an operation in a row.
const RUNS: u32 = 20;
/// Weights lie in one page.
const PAGE_BYTES: u64 = 4 << 30;

/// Operations of the same kind and shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Name and shape.
    pub name: String,
    /// Number of these operations.
    pub count: u64,
    /// Total time of these operations.
    pub time: Duration,
}

/// Times the operations of a file for a batch of `rows`, with other open dimensions of size `inner`, on a device that
/// was not started. The longest come first.
///
/// # Errors
/// Errors of lowering and of the device.
pub fn of_network(
    driver: &dyn Driver,
    file: &Bytes,
    precision: Precision,
    rows: u64,
    inner: u64,
) -> Result<Vec<Kind>, Error> {
    let unsupported = || Error::Unsupported(format!("precision {}", precision.name()));
    let target = Target::new(precision, driver.abilities(), PAGE_BYTES);
    let target = target.ok_or_else(unsupported)?;
    let (program, weights) = program(file, &target, rows, inner)?;
    let sizes: Vec<u64> = weights
        .contents()
        .iter()
        .map(|it| it.len() as u64)
        .collect();
    let packing = Packing::new(&sizes, PAGE_BYTES);
    let workspace = program.workspace_bytes.next_multiple_of(ALIGNMENT);
    driver.start(&Reservation {
        arena_bytes: workspace + packing.used_bytes.iter().sum::<u64>(),
        staging_bytes: ALIGNMENT,
        scratch_bytes: 128 << 20,
        paging: None,
    })?;
    let weight = |index| Address::new(workspace + packing.place(index).1);
    let (operations, _) = program.bind(Address::new(0), weight);
    let stream = driver.create_stream(Priority::Normal)?;
    let (start, end) = (driver.create_event()?, driver.create_event()?);
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for operation in &operations {
        driver.prepare(operation)?;
        driver.launch(stream, operation)?;
        driver.record(start, stream)?;
        for _ in 0..RUNS {
            driver.launch(stream, operation)?;
        }
        driver.record(end, stream)?;
        driver.synchronize_event(end)?;
        let name = describe(operation);
        let kind = kinds.entry(name.clone()).or_insert(Kind {
            name,
            count: 0,
            time: Duration::ZERO,
        });
        kind.count += 1;
        kind.time += driver.elapsed(start, end)? / RUNS;
    }
    let mut kinds: Vec<Kind> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.time));
    Ok(kinds)
}

fn program(
    file: &Bytes,
    target: &Target,
    rows: u64,
    inner: u64,
) -> Result<(Program, Weights), Error> {
    let (signature, graph) = read(file)?;
    let shapes = shapes(&signature, rows, inner);
    let mut weights = Weights::default();
    let draft = lower(&graph, &shapes, target, &mut weights)?;
    Ok((Program::plan(draft), weights))
}

fn describe(operation: &Operation) -> String {
    let what = match operation {
        Operation::Gemm(it) => format!(
            "{}x{}x{} of {}{}{}",
            it.m,
            it.n,
            it.k,
            it.batch,
            if it.a.transposed { " A'" } else { "" },
            if it.b.transposed { " B'" } else { "" }
        ),
        Operation::Convolution(it) => format!(
            "{}->{} {:?} {:?} /{:?}",
            it.in_channels, it.out_channels, it.window.in_size, it.window.kernel, it.window.strides
        ),
        Operation::Unary(it) => format!("{:?} {}", it.function, it.count),
        Operation::Binary(it) => format!(
            "{:?} {:?} {:?} {:?}",
            it.function,
            &it.sizes.sizes[..it.sizes.rank],
            &it.a.strides[..it.sizes.rank],
            &it.b.strides[..it.sizes.rank]
        ),
        Operation::Copy(it) => format!(
            "{:?} {:?} {:?} -> {:?} {:?}",
            &it.sizes.sizes[..it.sizes.rank],
            it.x_element,
            &it.x.strides[..it.sizes.rank],
            it.y_element,
            &it.y.strides[..it.sizes.rank]
        ),
        Operation::Attention(it) => format!(
            "{}x{} heads of {}, {}x{}{}",
            it.heads.batch,
            it.heads.heads,
            it.heads.depth,
            it.heads.queries,
            it.heads.keys,
            if it.mask.is_some() { " masked" } else { "" }
        ),
        other => {
            let range = other.writes();
            format!("{} bytes", range.end - range.start)
        }
    };
    format!("{} {what}", operation.name())
}
