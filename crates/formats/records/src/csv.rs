//! Records as rows of CSV, read as validation sets are: the first row names the columns.

use ::csv::{ReaderBuilder, StringRecord};
use sextant_formats::{json::Elements, table};
use sextant_objects::ObjectPath;
use sextant_types::{NamedTensor, Signature, TensorSpec};

use crate::{Error, Files, json::NO_INPUTS, lines::Lines};

/// Which columns are the elements of which input.
pub(crate) struct Rows {
    inputs: Vec<Input>,
    /// Number of cells of a row.
    cells: usize,
}

struct Input {
    spec: TensorSpec,
    columns: Vec<usize>,
    /// The shape of one record, with a batch of one if the model has batches.
    shape: Vec<usize>,
}

/// Opens a file of `size` bytes: reads its first row; the other rows follow.
pub(crate) async fn open(
    files: &Files,
    path: &ObjectPath,
    size: u64,
    signature: &Signature,
) -> Result<(Rows, Lines), Error> {
    let mut lines = Lines::rows(files.clone(), path.clone(), size, 0);
    let head = lines.next().await?;
    let head =
        head.ok_or_else(|| Error::input(path, "it is empty: its first row names the columns"))?;
    let rows = Rows::new(&head, signature).map_err(|why| Error::input(path, why))?;
    Ok((rows, lines))
}

// === impl Rows ===

impl Rows {
    /// Reads the row that names the columns.
    ///
    /// # Errors
    /// If the columns are not those of the model's inputs.
    pub(crate) fn new(head: &[u8], signature: &Signature) -> Result<Self, String> {
        let head = cells(head)?;
        let names: Vec<&str> = signature.inputs.iter().map(|it| it.name.as_str()).collect();
        // Columns with right answers are ignored.
        let besides = NO_INPUTS.iter().copied().filter(|it| !names.contains(it));
        let besides: Vec<&str> = besides.collect();
        let mut columns = table::assign(head.iter(), &names, &besides)?;
        let skipped = usize::from(signature.batched);
        let input = |spec: &TensorSpec| {
            let columns = columns.remove(&spec.name);
            let columns = columns.ok_or_else(|| format!("input `{}` has no column", spec.name))?;
            let row = spec.shape.get(skipped..).unwrap_or_default();
            let shape = table::shape_of(row, columns.len()).ok_or_else(|| {
                let (count, takes) = (columns.len(), spec.shape_text());
                format!(
                    "input `{}` has `{count}` columns: the model takes {takes}",
                    spec.name
                )
            })?;
            let batch = std::iter::repeat_n(1, skipped);
            Ok(Input {
                spec: spec.clone(),
                columns,
                shape: batch.chain(shape).collect(),
            })
        };
        Ok(Self {
            inputs: signature
                .inputs
                .iter()
                .map(input)
                .collect::<Result<_, String>>()?,
            cells: head.len(),
        })
    }

    /// Reads a row into the inputs of one record.
    pub(crate) fn parse(&self, row: &[u8]) -> Result<Vec<NamedTensor>, String> {
        let row = cells(row)?;
        if row.len() != self.cells {
            let (found, wanted) = (row.len(), self.cells);
            return Err(format!(
                "the row has `{found}` cells, the first one has `{wanted}`"
            ));
        }
        let tensor = |input: &Input| {
            let mut elements = Elements::new(input.spec.data_type);
            for at in &input.columns {
                let cell = row.get(*at).unwrap_or_default();
                table::push(&input.spec.name, cell, input.spec.data_type, &mut elements)?;
            }
            let tensor = elements.into_tensor(input.shape.clone());
            let tensor = tensor.map_err(|error| error.to_string())?;
            Ok(NamedTensor::new(input.spec.name.clone(), tensor))
        };
        self.inputs.iter().map(tensor).collect()
    }
}

/// The cells of `row`, which must be exactly one row.
fn cells(row: &[u8]) -> Result<StringRecord, String> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(row);
    let (mut cells, mut rest) = (StringRecord::new(), StringRecord::new());
    let mut read = |row: &mut StringRecord| {
        let read = reader.read_record(row);
        read.map_err(|error| error.to_string())
    };
    read(&mut cells)?;
    match read(&mut rest)? {
        false => Ok(cells),
        true => Err(
            "the row has a carriage return in the middle: end rows with line feeds, and put cells that have one into \
             quotation marks"
                .to_owned(),
        ),
    }
}
