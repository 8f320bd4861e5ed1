//! Neighbours in a batch while batches are judged.
//!
//! Strangers' queries differ from the records of one validation set: each picture of the set may show one thing, each
//! sentence may have one length. So there are synthetic neighbours beside records from all over the set: zeros, the
//! negative values, values far outside the range, and integers that are halved, because lengths and counts may be
//! smaller. Integers never grow: they may be positions.

use sextant_engine::LoadedModel;
use sextant_types::{DataType, NamedTensor, Tensor, convert};

use super::super::{Cancel, MeasureError, ScoreError, run};
use crate::{
    score::reals,
    validation::{Invalid, ValidationSet},
};

/// Factor of values far outside the range.
const FAR: f64 = 1e4;

/// The factors that make a neighbour of a record.
const MADE_UP: [Factors; 3] = [
    Factors {
        floats: 0.0,
        integers: 0.5,
    },
    Factors {
        floats: -1.0,
        integers: 1.0,
    },
    Factors {
        floats: FAR,
        integers: 0.5,
    },
];

/// What numbers are multiplied by. Integers are rounded down.
#[derive(Debug, Clone, Copy)]
struct Factors {
    floats: f64,
    integers: f64,
}

/// The neighbours: inputs with one row each, all of one shape.
pub(super) struct Company {
    /// Records from all over the validation set.
    pub(super) records: Vec<Vec<NamedTensor>>,
    /// The synthetic neighbours that the model answers, with their answers alone.
    pub(super) made_up: Vec<(Vec<NamedTensor>, Vec<Tensor>)>,
}

/// A place in a batch, with the position of its record or neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    Record(usize),
    MadeUp(usize),
}

impl Company {
    /// At most `most` records, and the neighbours made of them that `model` answers, if it may be sent such inputs.
    pub(super) fn gather(
        validation: &ValidationSet,
        most: usize,
        model: Option<&dyn LoadedModel>,
        cancel: &Cancel,
    ) -> Result<Self, MeasureError> {
        let records = validation.spread(most).map_err(ScoreError::from)?;
        let mut made_up = Vec::new();
        for (how, record) in MADE_UP.iter().zip(records.iter().cycle()) {
            cancel.check()?;
            let inputs: Option<Vec<NamedTensor>> =
                record.iter().map(|input| made_of(input, *how)).collect();
            // If the model does not answer a neighbour alone, the neighbour says nothing about batches.
            if let (Some(inputs), Some(model)) = (inputs, model)
                && let Ok(outputs) = run(model, &inputs, 1)
            {
                made_up.push((inputs, outputs));
            }
        }
        Ok(Self { records, made_up })
    }

    /// `rows` records in order, from the start again if there are fewer.
    pub(super) fn in_order(&self, rows: usize) -> Vec<Seat> {
        let seats = 0..rows;
        seats
            .map(|at| Seat::Record(at % self.records.len().max(1)))
            .collect()
    }

    /// `rows` places in another order, every third of them synthetic.
    pub(super) fn mixed(&self, rows: usize) -> Vec<Seat> {
        let mut seats = self.in_order(rows);
        seats.reverse();
        if !self.made_up.is_empty() {
            for (count, seat) in seats.iter_mut().skip(1).step_by(3).enumerate() {
                *seat = Seat::MadeUp(count % self.made_up.len());
            }
        }
        seats
    }

    /// The inputs of a batch with these seats.
    pub(super) fn seated(&self, seats: &[Seat]) -> Result<Vec<NamedTensor>, MeasureError> {
        let rows: Vec<&[NamedTensor]> =
            seats.iter().filter_map(|seat| self.inputs(*seat)).collect();
        let Some(first) = rows.first() else {
            return Ok(Vec::new());
        };
        let column = |(at, input): (usize, &NamedTensor)| {
            let tensors = rows.iter().filter_map(|row| Some(&row.get(at)?.tensor));
            let tensor = Tensor::concat(&tensors.collect::<Vec<_>>());
            let tensor = tensor.map_err(|source| Invalid::Tensor {
                name: input.name.clone(),
                source,
            })?;
            Ok(NamedTensor::new(input.name.clone(), tensor))
        };
        let columns: Result<Vec<_>, Invalid> = first.iter().enumerate().map(column).collect();
        Ok(columns.map_err(ScoreError::from)?)
    }

    pub(super) fn inputs(&self, seat: Seat) -> Option<&[NamedTensor]> {
        match seat {
            Seat::Record(at) => self.records.get(at).map(Vec::as_slice),
            Seat::MadeUp(at) => self.made_up.get(at).map(|(inputs, _)| inputs.as_slice()),
        }
    }
}

/// Text stays unchanged. `None` if the type cannot hold the result.
fn made_of(input: &NamedTensor, how: Factors) -> Option<NamedTensor> {
    let tensor = &input.tensor;
    let data_type = tensor.data_type();
    let Some(values) = reals(tensor) else {
        return Some(input.clone());
    };
    let values = values.into_iter().map(|value| match data_type {
        DataType::Bool => value,
        _ if convert::is_float(data_type) => value * how.floats,
        _ => (value * how.integers).trunc(),
    });
    let elements: Option<Vec<Vec<u8>>> = values.map(|value| data_type.element(value)).collect();
    let bytes = elements?.concat().into();
    let made = Tensor::from_bytes(data_type, tensor.shape().to_vec(), bytes).ok()?;
    Some(NamedTensor::new(input.name.clone(), made))
}
