//! Whether a model takes batches: queries that share a batch must get the answers that they get one by one.
//!
//! It is judged twice. When a file is read, [`differing_outputs`] finds out whether it has a batch dimension at all.
//! When a variant has been measured, its largest batch is judged again in its own engine and precision; a variant that
//! fails answers one query at a time.
//!
//! In both cases a row is right if it equals the answer to its record alone: as many rows as records, the same
//! dimensions, equal integers and text, and floats within the tolerance of arithmetic. The batch also contains
//! synthetic neighbours ([`company`]). A variant in another precision is compared with the answers in single precision:
//! a row in a batch may be no farther from them than the same row alone.

mod company;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sextant_engine::{Engine, LoadRequest, LoadedModel, is_manifest};
use sextant_types::{
    Precision, Tensor,
    company::{Difference, Distances, Tolerance, is_near_tie},
    convert,
};

use self::company::{Company, Seat};
use super::{Cancel, MeasureError, load_once, run, sweep::Sweep};
use crate::{isolation::protocol::Origin, validation::ValidationSet};

/// Records of the first batch that is compared, and of the largest batch that must run for there to be batches.
const FEW: usize = 3;

/// Ratio of the next batch to the last.
const GROWTH: usize = 4;

/// A larger batch is not tried if it would take longer.
const LONGEST: Duration = Duration::from_secs(2);

/// Rows of a batch that are compared whatever that takes, and the time in which more of them are.
const LEAST: usize = 8;
const COMPARING: Duration = Duration::from_millis(500);

/// One row of this many may be a near tie that is decided the other way.
const PER_NEAR_TIE: u32 = 10;

/// Most bytes of answers in single precision that are kept.
const MOST_BYTES: usize = 64 << 20;

/// What to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// Where the batch dimension comes from.
    pub origin: Origin,
    /// Rows of the largest batch that will be served.
    pub most: u16,
    /// Whether most of the file's weights have 16 bits.
    pub is_half: bool,
    /// Whether values are known to depend on the batch, so that only dimensions are judged.
    pub is_mixed: bool,
}

/// The answers in single precision to single records of the validation set, by their position among the compared
/// records.
#[derive(Debug, Default)]
pub struct UploadedAnswers(Mutex<BTreeMap<usize, Vec<Tensor>>>);

/// Runs batches of records and compares them with the records one by one. Returns the positions of the outputs that
/// differ: none if the model takes batches. The validation set has been read for the signature with a batch dimension.
///
/// A model that declares a batch dimension keeps it if its outputs are random. It loses it if it cannot run larger
/// batches.
///
/// # Errors
/// An error of the engine.
pub fn differing_outputs(
    engine: &dyn Engine,
    (request, batches): (&LoadRequest, Batches),
    validation: &ValidationSet,
    cancel: &Cancel,
) -> Result<Vec<usize>, MeasureError> {
    let model = load_once(engine, request, cancel)?;
    let most = usize::from(batches.most).max(FEW);
    let tolerance = Tolerance::of(batches.is_half);
    let subject = (model.as_ref(), request);
    let mut table = Table::set(subject, validation, (most, tolerance), cancel)?;
    table.is_mixed = batches.is_mixed;
    let outputs = table.alone(0)?.len();
    match batches.origin {
        Origin::Declared => table.find_drawn()?,
        Origin::Tried => {
            for rows in 1..FEW {
                let seats = table.company.in_order(rows);
                table.seat(&seats)?;
            }
        }
    }
    let few = table.company.in_order(FEW);
    match table.seat(&few) {
        Err(error) if batches.origin == Origin::Declared && !is_stopped(&error) => {
            return Ok((0..outputs).collect());
        }
        seated => seated?,
    }
    table.grow(most)?;
    Ok(table.differing().into_iter().collect())
}

impl Sweep<'_> {
    /// Why queries cannot share the batches of this variant, of which the largest has `largest` rows.
    pub(super) fn apart(&self, largest: u16) -> Result<Option<String>, MeasureError> {
        let subject = self.subject;
        // In this precision queries are kept apart in any case.
        let is_mixed = subject.request.precision == Precision::Int8Dynamic;
        if largest <= 1 || !subject.signature.batched || is_mixed {
            return Ok(None);
        }
        let most = usize::from(self.effort.largest_batch);
        let is_exact = subject.request.precision == Precision::Fp32;
        let known = subject.uploaded.filter(|_| !is_exact);
        let known = known
            .map(|uploaded| uploaded.0.lock().clone())
            .unwrap_or_default();
        let tolerance = match known.is_empty() {
            true => Tolerance::of(!is_exact || subject.is_half),
            false => Tolerance::of(false),
        };
        let from = (self.model, &subject.request);
        let limits = (most, tolerance);
        let mut table = Table::set(from, subject.validation, limits, self.cancel)?;
        table.uploaded = known;
        table.find_drawn()?;
        let rows = usize::from(largest);
        if let Some(said) = table.seat_most(rows)? {
            return Ok(Some(said));
        }
        if let Some(uploaded) = subject.uploaded.filter(|_| is_exact) {
            table.leave(uploaded);
        }
        let outputs = subject.signature.outputs.iter().enumerate();
        let differing = table.differing();
        let names = outputs.filter(|(at, _)| differing.contains(at));
        let names: Vec<String> = names.map(|(_, it)| format!("`{}`", it.name)).collect();
        Ok((!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("in batches of `{largest}` rows are not answered as they are alone: {names}")
        }))
    }
}

impl UploadedAnswers {
    /// The answer to the first of the records.
    pub(super) fn first(&self) -> Option<Vec<Tensor>> {
        self.0.lock().get(&0).cloned()
    }
}

/// Records and synthetic neighbours that are run in batches and compared with their answers alone.
struct Table<'a> {
    model: &'a dyn LoadedModel,
    cancel: &'a Cancel,
    tolerance: Tolerance,
    company: Company,
    /// The answers to single records, by position.
    alone: BTreeMap<usize, Vec<Tensor>>,
    /// The same in single precision, for a variant in another one.
    uploaded: BTreeMap<usize, Vec<Tensor>>,
    /// Whether only dimensions are judged.
    is_mixed: bool,
    /// Outputs that differ from run to run.
    drawn: BTreeSet<usize>,
    /// The findings by output.
    found: BTreeMap<usize, OutputComparison>,
}

/// The findings about an output.
#[derive(Debug, Clone, Copy, Default)]
struct OutputComparison {
    is_misshapen: bool,
    compared: u32,
    near_ties: u32,
    differing: u32,
    distances: Distances,
}

// === impl Table ===

impl<'a> Table<'a> {
    fn set(
        (model, request): (&'a dyn LoadedModel, &LoadRequest),
        validation: &ValidationSet,
        (most, tolerance): (usize, Tolerance),
        cancel: &'a Cancel,
    ) -> Result<Self, MeasureError> {
        // A manifest's model is answered by a remote runtime: inputs that may break it are not sent to it.
        let subject = match is_manifest(&request.model.graph) {
            true => None,
            false => Some(model),
        };
        let company = Company::gather(validation, most, subject, cancel)?;
        let mut table = Self {
            model,
            cancel,
            tolerance,
            company,
            alone: BTreeMap::new(),
            uploaded: BTreeMap::new(),
            is_mixed: false,
            drawn: BTreeSet::new(),
            found: BTreeMap::new(),
        };
        let first = table.alone(0)?;
        let made_up = table.company.made_up.iter().map(|(_, outputs)| outputs);
        for outputs in made_up.chain([&first]) {
            for (at, (output, of_record)) in outputs.iter().zip(&first).enumerate() {
                if !is_a_row_of(output, 1, of_record) {
                    table.found.entry(at).or_default().is_misshapen = true;
                }
            }
        }
        Ok(table)
    }

    /// The answer to a single record.
    fn alone(&mut self, record: usize) -> Result<Vec<Tensor>, MeasureError> {
        if let Some(known) = self.alone.get(&record) {
            return Ok(known.clone());
        }
        let outputs = self.run_alone(record)?;
        self.alone.insert(record, outputs.clone());
        Ok(outputs)
    }

    fn run_alone(&self, record: usize) -> Result<Vec<Tensor>, MeasureError> {
        self.cancel.check()?;
        let inputs = self
            .company
            .inputs(Seat::Record(record))
            .unwrap_or_default();
        run(self.model, inputs, 1)
    }

    /// Finds random outputs: a second run of the same record gives another answer.
    fn find_drawn(&mut self) -> Result<(), MeasureError> {
        let (first, second) = (self.alone(0)?, self.run_alone(0)?);
        for (at, (one, other)) in first.iter().zip(&second).enumerate() {
            if self.tolerance.compare(other, one) == Difference::Values {
                self.drawn.insert(at);
            }
        }
        Ok(())
    }

    /// Tries larger batches of up to `most` rows, as long as they are quick and nothing differs.
    fn grow(&mut self, most: usize) -> Result<(), MeasureError> {
        let mut rows = FEW;
        loop {
            let begun = Instant::now();
            let seats = self.company.mixed(rows);
            match self.seat(&seats) {
                Err(error) if is_stopped(&error) => return Err(error),
                // If a batch fails, larger ones are left out, as when they are measured.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
            let next = (rows * GROWTH).min(most);
            let times = (next / rows.max(1)) as u32 + 1;
            let is_slow = begun.elapsed().saturating_mul(times) > LONGEST + COMPARING;
            if next <= rows || is_slow || !self.differing().is_empty() {
                return Ok(());
            }
            rows = next;
        }
    }

    /// Runs the largest batch; returns why it cannot be judged, if so.
    fn seat_most(&mut self, rows: usize) -> Result<Option<String>, MeasureError> {
        let seats = self.company.mixed(rows);
        match self.seat(&seats) {
            Err(error) if is_stopped(&error) => Err(error),
            Err(error) => Ok(Some(format!("it cannot be judged in company: {error}"))),
            Ok(()) => Ok(None),
        }
    }

    /// Runs a batch and compares its rows with the answers alone.
    fn seat(&mut self, seats: &[Seat]) -> Result<(), MeasureError> {
        self.cancel.check()?;
        let inputs = self.company.seated(seats)?;
        let outputs = run(self.model, &inputs, seats.len())?;
        let first = self.alone(0)?;
        for (at, (output, of_record)) in outputs.iter().zip(&first).enumerate() {
            if !is_a_row_of(output, seats.len(), of_record) {
                self.found.entry(at).or_default().is_misshapen = true;
            }
        }
        let begun = Instant::now();
        for (count, place) in places(seats.len()).enumerate() {
            if count >= LEAST && begun.elapsed() > COMPARING {
                break;
            }
            if let Some(Seat::Record(record)) = seats.get(place) {
                self.compare(&outputs, place, *record)?;
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        outputs: &[Tensor],
        place: usize,
        record: usize,
    ) -> Result<(), MeasureError> {
        let alone = self.alone(record)?;
        for (at, (output, own)) in outputs.iter().zip(&alone).enumerate() {
            let found = self.found.entry(at).or_default();
            // It is not known which of the output's rows belongs to the place.
            let Ok(row) = output.slice_rows(place, 1) else {
                found.is_misshapen = true;
                continue;
            };
            found.compared += 1;
            match self.tolerance.compare(&row, own) {
                Difference::None => {}
                Difference::Shape => found.is_misshapen = true,
                Difference::Values if is_whole(own) && is_near_tie(&alone) => found.near_ties += 1,
                Difference::Values => found.differing += 1,
            }
            let uploaded = self.uploaded.get(&record).and_then(|of| of.get(at));
            if let Some(uploaded) = uploaded {
                found.distances.add(&row, own, uploaded);
            }
        }
        Ok(())
    }

    /// The outputs that differ from the answers alone.
    fn differing(&self) -> BTreeSet<usize> {
        let found = self.found.iter();
        let differing = found.filter(|(at, of)| {
            let is_drawn = self.is_mixed || self.drawn.contains(at);
            of.is_misshapen || (!is_drawn && of.has_other_values())
        });
        differing.map(|(at, _)| *at).collect()
    }

    /// Leaves the answers to single records for the variants in other precisions.
    fn leave(&self, uploaded: &UploadedAnswers) {
        let mut kept = uploaded.0.lock();
        let size = |of: &[Tensor]| of.iter().map(Tensor::byte_len).sum::<usize>();
        let mut bytes: usize = kept.values().map(|of| size(of)).sum();
        for (record, outputs) in &self.alone {
            bytes += size(outputs);
            if bytes > MOST_BYTES {
                return;
            }
            kept.entry(*record).or_insert_with(|| outputs.clone());
        }
    }
}

// === impl OutputComparison ===

impl OutputComparison {
    fn has_other_values(&self) -> bool {
        let most_ties = self.compared / PER_NEAR_TIE + 1;
        match self.distances.is_empty() {
            true => self.differing > 0 || self.near_ties > most_ties,
            false => self.differing + self.near_ties > 0 && !self.distances.are_no_worse(),
        }
    }
}

/// All places of a batch, in an order whose first few come from all over it.
fn places(rows: usize) -> impl Iterator<Item = usize> {
    let step = if rows.is_multiple_of(37) { 31 } else { 37 };
    (0..rows).map(move |at| (rows - 1 + at * step) % rows)
}

/// Whether an output has `rows` rows with the dimensions of a record's output, which has one row.
fn is_a_row_of(output: &Tensor, rows: usize, of_record: &Tensor) -> bool {
    let (shape, single) = (output.shape(), of_record.shape());
    shape.first() == Some(&rows) && single.first() == Some(&1) && shape[1..] == single[1..]
}

fn is_whole(output: &Tensor) -> bool {
    !convert::is_float(output.data_type())
}

/// Whether something other than the model failed.
fn is_stopped(error: &MeasureError) -> bool {
    matches!(error, MeasureError::Cancelled) || error.may_pass()
}
