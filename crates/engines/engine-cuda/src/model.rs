//! Models on the device, and the batches that run on them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{Error, LoadedModel, Staged, check_inputs};
use sextant_types::{Data, NamedTensor, Signature, Tensor};

use crate::{
    arena::{PageLease, SpaceLease},
    device::{Device, Execution},
    graphs::Captured,
    operation::{Address, Staging},
    parked::Parked,
    plan::{Program, Slot},
    prepared::{Prepared, Shapes},
};

/// Graphs of one model at most; beyond, the one used longest ago goes. Only models with dynamic
/// dimensions beside the batch ever come near it.
const GRAPHS: usize = 64;

/// A model whose weights are in pages.
pub(crate) struct Resident {
    device: Arc<Device>,
    prepared: Arc<Prepared>,
    pages: PageLease,
    /// Where the pages are read; `None` where they lie.
    window: Option<Address>,
    /// Used last at the end.
    graphs: Mutex<Vec<(Shapes, Arc<Captured>)>>,
}

/// A handle.
pub(crate) struct CudaModel {
    resident: Arc<Resident>,
}

/// A batch whose inputs are on the device.
struct Batch {
    resident: Arc<Resident>,
    captured: Arc<Captured>,
    io: SpaceLease,
    staging: SpaceLease<Staging>,
    /// Rows of the batch and of the program, where they are counted.
    rows: Option<(u64, u64)>,
    executed: bool,
}

// === impl Resident ===

impl Resident {
    /// Takes pages, fills them, and captures a graph for every shape that is known now. The graphs of the last time serve
    /// again: in a window wherever the pages lie, else in the pages that the model had.
    pub fn load(device: &Arc<Device>, prepared: Arc<Prepared>) -> Result<Self, Error> {
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

    /// Bytes of the pages that are held beyond those that the weights would fill without gaps. What
    /// batches compute with lies in the workspace, which is not a model's own.
    fn gaps_bytes(&self) -> u64 {
        let page_bytes = self.device.layout.page_bytes;
        let filled = self.prepared.weights_bytes.div_ceil(page_bytes);
        let held = self.pages.pages().len() as u64;
        held.saturating_sub(filled) * page_bytes
    }

    fn capture(&self, program: Arc<Program>) -> Result<Captured, Error> {
        let layout = &self.device.layout;
        Captured::new(&self.device, program, |index| {
            let (page, offset) = self.prepared.packing.place(index);
            let page = match self.window {
                Some(window) => window + u64::from(page) * layout.page_bytes,
                None => layout.page(self.pages.pages()[page as usize]),
            };
            page + offset
        })
    }

    /// The graph for inputs of the given shapes; planned and captured now where none was foreseen.
    fn captured(&self, shapes: Shapes) -> Result<Arc<Captured>, Error> {
        if let Some(captured) = self.known(&shapes) {
            return Ok(captured);
        }
        // Batches of known shapes do not wait meanwhile.
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

    /// The graph for inputs of the given shapes, which counts as used now.
    fn known(&self, shapes: &Shapes) -> Option<Arc<Captured>> {
        let mut graphs = self.graphs.lock();
        let index = graphs.iter().position(|(known, _)| known == shapes)?;
        graphs[index..].rotate_left(1);
        graphs.last().map(|(_, captured)| Arc::clone(captured))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let parked = Parked {
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

    fn batch(&self, inputs: &[NamedTensor]) -> Result<Batch, Error> {
        let prepared = &self.resident.prepared;
        check_inputs(&prepared.signature, inputs)?;
        if inputs.iter().any(|input| input.tensor.is_empty()) {
            return Err(Error::InvalidInput("an input has no elements".to_owned()));
        }
        let rows = inputs.first().map_or(1, |input| input.tensor.rows() as u64);
        let uneven = |input: &NamedTensor| input.tensor.rows() as u64 != rows;
        if prepared.signature.batched && inputs.iter().any(uneven) {
            let reason = "the inputs have different numbers of rows";
            return Err(Error::InvalidInput(reason.to_owned()));
        }
        let shapes = prepared.shapes(inputs);
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
        batch.bring(inputs)?;
        Ok(batch)
    }
}

impl LoadedModel for CudaModel {
    fn signature(&self) -> &Signature {
        &self.resident.prepared.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let mut batch = Box::new(self.batch(inputs)?);
        batch.exec()?;
        batch.collect()
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn Staged>>, Error> {
        Ok(Some(Box::new(self.batch(inputs)?)))
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

    /// Takes the inputs to the device and waits until they are there. Rows that only the program has
    /// are zeros.
    fn bring(&self, inputs: &[NamedTensor]) -> Result<(), Error> {
        let driver = &self.resident.device.driver;
        let program = &self.captured.program;
        let start = self.staging.start();
        let mut end = 0;
        let mut put = |offset: u64, bytes: &[u8], length: u64| -> Result<(), Error> {
            // Gaps are written too: the copy takes all in one piece.
            driver.write_staging(start + end, &vec![0; (offset - end) as usize])?;
            driver.write_staging(start + offset, bytes)?;
            let given = offset + bytes.len() as u64;
            end = offset + length;
            driver.write_staging(start + given, &vec![0; (end - given) as usize])
        };
        let mut parts: Vec<(u64, Bytes, u64)> = program
            .constants
            .iter()
            .map(|(offset, bytes)| (*offset, bytes.clone(), bytes.len() as u64))
            .collect();
        for (slot, input) in program.inputs.iter().zip(inputs) {
            if let Data::Plain(bytes) = input.tensor.data() {
                parts.push((slot.offset, bytes.clone(), slot.bytes()));
            }
        }
        parts.sort_by_key(|(offset, ..)| *offset);
        for (offset, bytes, length) in &parts {
            put(*offset, bytes, *length)?;
        }
        put(self.input_bytes(), &[], 0)?;
        let (device, bytes) = (&self.resident.device, self.input_bytes());
        device.wait_for(device.input, || {
            driver.copy_in(device.input, start, self.io.start(), bytes)
        })
    }

    /// Computes the outputs and waits for them.
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

impl Staged for Batch {
    fn exec(&mut self) -> Result<Option<Duration>, Error> {
        let device = &self.resident.device;
        let execution = device.execution();
        if let Err(error) = self.execute(&execution) {
            // What was begun reads the model's pages and the batch's memory, which others get next.
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
