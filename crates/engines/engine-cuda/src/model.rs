//! Models on the device, and the batches that run on them.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_engine::{Error, LoadedModel, StagedBatch, check_inputs};
use sextant_types::{Data, NamedTensor, Signature, Tensor};

use crate::{
    arena::{PageLease, SpaceLease},
    device::{Device, Execution},
    graphs::CapturedGraph,
    operation::{Address, Staging},
    parked::ParkedState,
    plan::{Program, Slot},
    prepared::{PreparedModel, Shapes},
    writes::Writes,
};

/// Most graphs of one model. Beyond this number, the graph used longest ago is dropped. Only models with dynamic
/// dimensions besides the batch come near it.
const GRAPHS: usize = 64;

/// A model whose weights are in pages.
pub(crate) struct Resident {
    device: Arc<Device>,
    prepared: Arc<PreparedModel>,
    pages: PageLease,
    /// Where the pages are read; `None` where they are read in the arena.
    window: Option<Address>,
    /// The captured graphs; the one used last is at the end.
    graphs: Mutex<Vec<(Shapes, Arc<CapturedGraph>)>>,
}

/// A handle to a loaded model.
pub(crate) struct CudaModel {
    resident: Arc<Resident>,
}

/// A batch whose inputs are on the device.
struct Batch {
    resident: Arc<Resident>,
    captured: Arc<CapturedGraph>,
    io: SpaceLease,
    staging: SpaceLease<Staging>,
    /// Rows of the batch and rows of the program, where the model is batched.
    rows: Option<(u64, u64)>,
    executed: bool,
}

/// An input of a batch: the elements of one query, or those of several queries joined.
struct BatchInput<'a> {
    dims: Vec<usize>,
    pieces: Vec<&'a [u8]>,
}

// === impl BatchInput ===

impl<'a> BatchInput<'a> {
    fn of_one(input: &'a NamedTensor) -> Self {
        Self {
            dims: input.tensor.shape().to_vec(),
            pieces: plain(&input.tensor).into_iter().collect(),
        }
    }

    /// The same input of several queries; `None` if the inputs differ in more than their rows.
    fn of_all(parts: &[&'a [NamedTensor]], index: usize) -> Option<Self> {
        let tensors = parts.iter().map(|part| &part[index].tensor);
        let first = tensors.clone().next()?;
        let mut dims = first.shape().to_vec();
        let rest = first.shape().get(1..)?;
        if tensors.clone().any(|it| it.shape().get(1..) != Some(rest)) {
            return None;
        }
        dims[0] = tensors.clone().map(Tensor::rows).sum();
        let pieces = tensors.map(plain).collect::<Option<_>>()?;
        Some(Self { dims, pieces })
    }

    fn rows(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1) as u64
    }
}

/// The bytes of a tensor of numbers.
fn plain(tensor: &Tensor) -> Option<&[u8]> {
    match tensor.data() {
        Data::Plain(bytes) => Some(bytes),
        Data::Strings(_) => None,
    }
}

// === impl Resident ===

impl Resident {
    /// Takes pages, fills them, and captures a graph for every shape that is known now. The graphs of the last time are
    /// used again: in a window wherever the pages lie, otherwise only in the pages that the model had.
    pub fn load(device: &Arc<Device>, prepared: Arc<PreparedModel>) -> Result<Self, Error> {
        let wished = prepared.parked.lock().pages.clone();
        let pages = device.pages.lend(prepared.packing.pages(), &wished)?;
        let places = &prepared.places;
        let window = places.window.as_ref().map(SpaceLease::start);
        let window = device.fill_pages(&places.images, &pages, window)?;
        let parked = std::mem::take(&mut *prepared.parked.lock());
        let is_there = window.is_some() || parked.pages == pages.pages();
        let graphs = match is_there && window == parked.window {
            true => parked.graphs,
            false => Vec::new(),
        };
        let resident = Self {
            device: Arc::clone(device),
            prepared,
            pages,
            window,
            graphs: Mutex::new(graphs),
        };
        for shapes in resident.prepared.programs.keys() {
            resident.captured(shapes.clone())?;
        }
        Ok(resident)
    }

    pub fn weights_bytes(&self) -> u64 {
        self.prepared.weights_bytes
    }

    /// Bytes of held pages beyond what the weights would fill without gaps. The workspace in which batches compute
    /// belongs to no single model.
    fn gaps_bytes(&self) -> u64 {
        let page_bytes = self.device.layout.page_bytes;
        let filled = self.prepared.weights_bytes.div_ceil(page_bytes);
        let held = self.pages.pages().len() as u64;
        held.saturating_sub(filled) * page_bytes
    }

    fn capture(&self, program: Arc<Program>) -> Result<CapturedGraph, Error> {
        let layout = &self.device.layout;
        CapturedGraph::new(&self.device, program, |index| {
            let (page, offset) = self.prepared.packing.place(index);
            let page = match self.window {
                Some(window) => window + u64::from(page) * layout.page_bytes,
                None => layout.page(self.pages.pages()[page as usize]),
            };
            page + offset
        })
    }

    /// The graph for inputs of the given shapes. It is planned and captured now if it was not captured before.
    fn captured(&self, shapes: Shapes) -> Result<Arc<CapturedGraph>, Error> {
        if let Some(captured) = self.known(&shapes) {
            return Ok(captured);
        }
        // No lock is held here, so batches of known shapes do not wait.
        let captured = Arc::new(self.capture(self.prepared.plan(&shapes)?)?);
        if let Some(captured) = self.known(&shapes) {
            return Ok(captured);
        }
        let mut graphs = self.graphs.lock();
        if graphs.len() >= GRAPHS {
            graphs.remove(0);
        }
        graphs.push((shapes, Arc::clone(&captured)));
        Ok(captured)
    }

    /// The graph for inputs of the given shapes, marked as used now.
    fn known(&self, shapes: &Shapes) -> Option<Arc<CapturedGraph>> {
        let mut graphs = self.graphs.lock();
        let index = graphs.iter().position(|(known, _)| known == shapes)?;
        graphs[index..].rotate_left(1);
        graphs.last().map(|(_, captured)| Arc::clone(captured))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let parked = ParkedState {
            pages: self.pages.pages().to_vec(),
            window: self.window,
            graphs: std::mem::take(&mut *self.graphs.lock()),
        };
        self.device.parked.park(&self.prepared, parked);
    }
}

// === impl CudaModel ===

impl CudaModel {
    pub fn new(resident: Arc<Resident>) -> Self {
        Self { resident }
    }

    /// A batch of inputs whose shapes are given.
    fn batch(&self, given: &[BatchInput<'_>]) -> Result<Batch, Error> {
        let prepared = &self.resident.prepared;
        if given.iter().any(|input| input.dims.contains(&0)) {
            return Err(Error::InvalidInput("an input has no elements".to_owned()));
        }
        let rows = given.first().map_or(1, BatchInput::rows);
        if prepared.signature.batched && given.iter().any(|input| input.rows() != rows) {
            let reason = "the inputs have different numbers of rows";
            return Err(Error::InvalidInput(reason.to_owned()));
        }
        let dims: Vec<Vec<usize>> = given.iter().map(|input| input.dims.clone()).collect();
        let shapes = prepared.shapes(&dims);
        let planned = shapes.first().and_then(|dims| dims.first().copied());
        let captured = self.resident.captured(shapes)?;
        let device = &self.resident.device;
        let program = &captured.program;
        let bytes = program.input.end - program.input.start + program.output_bytes;
        let batch = Batch {
            io: device.io.lend(bytes)?,
            staging: device.staging.lend(bytes)?,
            resident: Arc::clone(&self.resident),
            captured,
            rows: planned
                .filter(|_| prepared.padded)
                .map(|planned| (rows, planned)),
            executed: false,
        };
        batch.bring(given)?;
        Ok(batch)
    }

    fn lone(&self, inputs: &[NamedTensor]) -> Result<Batch, Error> {
        check_inputs(&self.resident.prepared.signature, inputs)?;
        let given: Vec<BatchInput<'_>> = inputs.iter().map(BatchInput::of_one).collect();
        self.batch(&given)
    }
}

impl LoadedModel for CudaModel {
    fn signature(&self) -> &Signature {
        &self.resident.prepared.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let mut batch = Box::new(self.lone(inputs)?);
        batch.exec()?;
        batch.collect()
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        Ok(Some(Box::new(self.lone(inputs)?)))
    }

    fn stage_joined(
        &self,
        parts: &[&[NamedTensor]],
    ) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        let signature = &self.resident.prepared.signature;
        for part in parts {
            check_inputs(signature, part)?;
        }
        let inputs = signature.inputs.iter().enumerate();
        let given: Option<Vec<BatchInput<'_>>> = inputs
            .map(|(index, spec)| {
                let given = BatchInput::of_all(parts, index)?;
                spec.accepts(&given.dims).then_some(given)
            })
            .collect();
        match given {
            Some(given) => Ok(Some(Box::new(self.batch(&given)?))),
            None => Ok(None),
        }
    }

    fn weights_bytes(&self) -> u64 {
        self.resident.weights_bytes()
    }

    fn working_bytes(&self) -> Option<u64> {
        Some(self.resident.gaps_bytes())
    }
}

// === impl Batch ===

impl Batch {
    fn input_bytes(&self) -> u64 {
        let input = &self.captured.program.input;
        input.end - input.start
    }

    /// Copies the inputs to the device and waits for the copy. Rows that exist only in the program are zeros.
    fn bring(&self, inputs: &[BatchInput<'_>]) -> Result<(), Error> {
        let program = &self.captured.program;
        let mut writes = Writes::default();
        let constants = program.constants.iter();
        let mut slots: Vec<(u64, &[&[u8]], u64)> = Vec::new();
        let constants: Vec<(u64, [&[u8]; 1])> = constants
            .map(|(offset, bytes)| (*offset, [&bytes[..]]))
            .collect();
        for (offset, bytes) in &constants {
            slots.push((*offset, bytes, bytes[0].len() as u64));
        }
        for (slot, input) in program.inputs.iter().zip(inputs) {
            slots.push((slot.offset, &input.pieces, slot.bytes()));
        }
        slots.sort_by_key(|(offset, ..)| *offset);
        for (offset, pieces, length) in slots {
            // Gaps are written too, because one copy takes the whole range.
            writes.zeros(offset);
            pieces.iter().for_each(|piece| writes.bytes(piece));
            writes.zeros(offset + length);
        }
        writes.zeros(self.input_bytes());
        let (device, start) = (&self.resident.device, self.staging.start());
        writes.carry_out(|offset, bytes| device.driver.write_staging(start + offset, bytes))?;
        let bytes = self.input_bytes();
        device.wait_for(device.input, || {
            let to = self.io.start();
            device.driver.copy_in(device.input, start, to, bytes)
        })
    }

    /// Computes the outputs and waits for the result.
    fn execute(&self, execution: &Execution) -> Result<(), Error> {
        let device = &self.resident.device;
        let (driver, stream) = (&device.driver, execution.stream);
        driver.record(execution.start, stream)?;
        let input = self.captured.program.input.start.get();
        let input = device.layout.workspace().start + input;
        driver.copy_within(stream, self.io.start(), input, self.input_bytes())?;
        if let Some(graph) = self.captured.graph {
            driver.launch_graph(stream, graph)?;
        }
        for (address, slot) in &self.captured.outputs {
            let to = self.io.start() + self.input_bytes() + slot.offset;
            driver.copy_within(stream, *address, to, slot.bytes())?;
        }
        driver.record(execution.end, stream)?;
        driver.synchronize_event(execution.end)
    }

    /// The tensor of an output, cut to the rows of the batch.
    fn tensor(&self, slot: &Slot) -> Result<Tensor, Error> {
        let mut dims: Vec<usize> = slot.dims.iter().map(|dim| *dim as usize).collect();
        let mut bytes = slot.bytes();
        if let Some((rows, planned)) = self.rows {
            if slot.dims.first() != Some(&planned) {
                let reason = format!("an output of a batch of {planned} has shape {dims:?}");
                return Err(Error::Failed(reason));
            }
            dims[0] = rows as usize;
            bytes = bytes / planned * rows;
        }
        let mut content = vec![0; bytes as usize];
        let from = self.staging.start() + self.input_bytes() + slot.offset;
        self.resident
            .device
            .driver
            .read_staging(from, &mut content)?;
        Tensor::from_bytes(slot.data_type, dims, content.into())
            .map_err(|error| Error::Failed(error.to_string()))
    }
}

impl StagedBatch for Batch {
    fn exec(&mut self) -> Result<Option<Duration>, Error> {
        let device = &self.resident.device;
        let execution = device.execution();
        if let Err(error) = self.execute(&execution) {
            // Work that has begun reads the model's pages and the batch's memory, which others get next.
            let _ended = device.driver.synchronize(execution.stream);
            return Err(error);
        }
        self.executed = true;
        let elapsed = device.driver.elapsed(execution.start, execution.end);
        elapsed.map(Some)
    }

    fn collect(self: Box<Self>) -> Result<Vec<Tensor>, Error> {
        if !self.executed {
            return Err(Error::Failed("the batch was not executed".to_owned()));
        }
        let device = &self.resident.device;
        device.wait_for(device.output, || {
            self.captured.outputs.iter().try_for_each(|(_, slot)| {
                let offset = self.input_bytes() + slot.offset;
                let (from, to) = (self.io.start() + offset, self.staging.start() + offset);
                device
                    .driver
                    .copy_out(device.output, from, to, slot.bytes())
            })
        })?;
        let outputs = self.captured.outputs.iter();
        outputs.map(|(_, slot)| self.tensor(slot)).collect()
    }
}
