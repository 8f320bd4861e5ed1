//! The state of lowering: values, buffers, operations.

use std::collections::BTreeMap;

use bytes::Bytes;
use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    ALIGNMENT, Buffer, Call, Constant, Content, Draft, HostTensor, OFFSET_BITS, Port, Target,
    Weights, layout,
};
use crate::operation::{Address, Element, Operation, Symbolic};

/// A value of the graph.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Constant(Constant),
    Device(Device),
}

/// A contiguous tensor on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Symbolic.
    pub address: Address<Symbolic>,
    /// The dimensions as the graph has them, whatever the layout.
    pub dims: Vec<u64>,
    /// Whether the second dimension, the channels of images, lies behind the other dimensions.
    pub channels_last: bool,
    /// The type in the graph.
    pub data_type: DataType,
    /// The element in which it is stored.
    pub element: Element,
}

/// Rows of a weight that lie in one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Symbolic.
    pub address: Address<Symbolic>,
    pub first_row: u64,
    pub rows: u64,
}

/// The number of rows in a piece is a multiple of this where possible. Results that are computed from a piece then also
/// begin at an aligned address.
const ROWS_TOGETHER: u64 = 64;

pub(crate) struct Lowering<'a> {
    pub target: Target,
    /// `None` while constants are folded; then weights are inputs.
    weights: Option<&'a mut Weights>,
    values: BTreeMap<String, Value>,
    buffers: Vec<Buffer>,
    operations: Vec<Operation<Symbolic>>,
    inputs: Vec<Port>,
    constants: Vec<(u64, Bytes)>,
    /// Addresses of constants in the first buffer, by key and type.
    placed: BTreeMap<(String, Element), Address<Symbolic>>,
    /// Buffers of weights, by the number of the weight.
    weight_buffers: BTreeMap<usize, Address<Symbolic>>,
    outputs: Vec<Port>,
}

impl<'a> Lowering<'a> {
    pub fn new(target: Target, weights: Option<&'a mut Weights>) -> Self {
        let inputs = Buffer {
            bytes: 0,
            content: Content::Inputs,
        };
        Self {
            target,
            weights,
            values: BTreeMap::new(),
            buffers: vec![inputs],
            operations: Vec::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            placed: BTreeMap::new(),
            weight_buffers: BTreeMap::new(),
            outputs: Vec::new(),
        }
    }

    pub fn value(&self, name: &str) -> Option<Value> {
        self.values.get(name).cloned()
    }

    pub fn bind(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    pub fn emit(&mut self, operation: Operation<Symbolic>) {
        self.operations.push(operation);
    }

    /// Adds an input of the graph. It comes in the declared type and is converted if it is stored in another.
    pub fn input(&mut self, name: &str, data_type: DataType, dims: &[u64]) -> Result<(), Error> {
        let outside = outside(name, data_type)?;
        let count = elements(dims).filter(|_| self.buffers[0].bytes < 1 << (OFFSET_BITS - 1));
        let Some(count) = count else {
            let reason = format!("input `{name}` of shape {dims:?} is too large");
            return Err(Error::InvalidModel(reason));
        };
        let bytes = count * outside.bytes();
        let given = Device {
            address: self.reserve_input(bytes),
            dims: dims.to_vec(),
            channels_last: false,
            data_type,
            element: outside,
        };
        self.inputs.push(Port {
            address: given.address,
            data_type,
            dims: dims.to_vec(),
        });
        let element = self.target.element(data_type).unwrap_or(outside);
        let value = self.converted(&given, data_type, element);
        self.bind(name, value.into());
        Ok(())
    }

    /// Adds an output of the graph, converted to the declared type.
    pub fn output(&mut self, name: &str, data_type: DataType) -> Result<(), Error> {
        let outside = outside(name, data_type)?;
        let Some(value) = self.value(name) else {
            let reason = format!("nothing gives its output `{name}`");
            return Err(Error::InvalidModel(reason));
        };
        let value = self.place(&value)?;
        let value = self.row_major(&value);
        if value.data_type != data_type {
            return Err(Error::InvalidModel(format!(
                "output `{name}` is of {}, not {data_type} as declared",
                value.data_type
            )));
        }
        let value = self.converted(&value, data_type, outside);
        self.outputs.push(Port {
            address: value.address,
            data_type,
            dims: value.dims,
        });
        Ok(())
    }

    pub fn finish(self) -> Draft {
        Draft {
            buffers: self.buffers,
            operations: self.operations,
            inputs: self.inputs,
            constants: self.constants,
            outputs: self.outputs,
        }
    }

    /// A new tensor that an operation will write.
    pub fn activation(
        &mut self,
        call: &Call<'_>,
        dims: &[u64],
        data_type: DataType,
    ) -> Result<Device, Error> {
        let element = self.element(call, data_type)?;
        let count = elements(dims).ok_or_else(|| call.invalid("a tensor is too large"))?;
        Ok(Device {
            address: self.scratch(count * element.bytes()),
            dims: dims.to_vec(),
            channels_last: false,
            data_type,
            element,
        })
    }

    /// New bytes that operations will write.
    pub fn scratch(&mut self, bytes: u64) -> Address<Symbolic> {
        self.buffer(bytes, Content::Activation)
    }

    /// The element in which values of a type are stored.
    pub fn element(&self, call: &Call<'_>, data_type: DataType) -> Result<Element, Error> {
        let element = self.target.element(data_type);
        element.ok_or_else(|| call.unsupported(&format!("of {data_type}")))
    }

    /// A value on the device in row-major order.
    pub fn device(&mut self, call: &Call<'_>, value: &Value) -> Result<Device, Error> {
        let stored = self.stored(call, value)?;
        Ok(self.row_major(&stored))
    }

    /// A value on the device in any order of its dimensions.
    pub fn stored(&mut self, call: &Call<'_>, value: &Value) -> Result<Device, Error> {
        self.place(value).map_err(|error| match error {
            Error::Unsupported(reason) => call.unsupported(&reason),
            other => other,
        })
    }

    /// The rows of a weight `[rows, row]` in pieces that fit into pages. Anything except a weight larger than a page is
    /// one piece.
    pub fn pieces(
        &mut self,
        call: &Call<'_>,
        value: &Value,
        rows: u64,
    ) -> Result<Vec<Piece>, Error> {
        let whole = |address| Piece {
            address,
            first_row: 0,
            rows,
        };
        let Value::Constant(constant) = value else {
            return Ok(vec![whole(self.device(call, value)?.address)]);
        };
        let element = self.element(call, constant.tensor.data_type)?;
        let bytes = constant.tensor.count() * element.bytes();
        let fits = bytes <= self.target.page_bytes || rows == 0;
        if fits || !constant.fixed || self.weights.is_none() {
            return Ok(vec![whole(self.device(call, value)?.address)]);
        }
        let row_bytes = bytes / rows;
        let mut each = self.target.page_bytes / row_bytes.max(1);
        if each > ROWS_TOGETHER {
            each -= each % ROWS_TOGETHER;
        }
        if each == 0 {
            return Err(call.unsupported(&too_large(row_bytes, self.target.page_bytes)));
        }
        let starts = (0..rows).step_by(each as usize);
        Ok(starts
            .map(|first_row| {
                let rows = each.min(rows - first_row);
                let key = format!("{}#{first_row}", constant.key);
                let range =
                    (first_row * row_bytes) as usize..((first_row + rows) * row_bytes) as usize;
                let make = || constant.tensor.stored(element).slice(range.clone());
                let address = self.weight(&key, element, rows * row_bytes, make);
                Piece {
                    address,
                    first_row,
                    rows,
                }
            })
            .collect())
    }

    fn place(&mut self, value: &Value) -> Result<Device, Error> {
        let constant = match value {
            Value::Device(device) => return Ok(device.clone()),
            Value::Constant(constant) => constant,
        };
        let tensor = &constant.tensor;
        let element = self.target.element(tensor.data_type).ok_or_else(|| {
            Error::Unsupported(format!(
                "constant `{}` is of {}",
                constant.key, tensor.data_type
            ))
        })?;
        let bytes = tensor.count() * element.bytes();
        let make = || tensor.stored(element);
        let address = if constant.fixed && self.weights.is_some() {
            if bytes > self.target.page_bytes {
                return Err(Error::Unsupported(too_large(bytes, self.target.page_bytes)));
            }
            self.weight(&constant.key, element, bytes, make)
        } else {
            self.brought(&constant.key, element, make)
        };
        Ok(Device {
            address,
            dims: tensor.dims.clone(),
            channels_last: false,
            data_type: tensor.data_type,
            element,
        })
    }

    /// A weight of `count` elements that `make` derives from a constant. It is made only if there is none of that key
    /// yet, and has the constant's type.
    pub fn made(
        &mut self,
        call: &Call<'_>,
        key: &str,
        data_type: DataType,
        count: u64,
        make: impl Fn() -> HostTensor,
    ) -> Result<Address<Symbolic>, Error> {
        let element = self.element(call, data_type)?;
        let bytes = count * element.bytes();
        if bytes > self.target.page_bytes {
            return Err(call.unsupported(&too_large(bytes, self.target.page_bytes)));
        }
        Ok(self.weight(key, element, bytes, || make().stored(element)))
    }

    fn weight(
        &mut self,
        key: &str,
        element: Element,
        bytes: u64,
        make: impl Fn() -> Bytes,
    ) -> Address<Symbolic> {
        let weights = self.weights.as_mut();
        let Some(index) = weights.and_then(|weights| weights.place(key, &make)) else {
            return self.brought(key, element, make);
        };
        if let Some(address) = self.weight_buffers.get(&index) {
            return *address;
        }
        let address = self.buffer(bytes, Content::Weight(index));
        self.weight_buffers.insert(index, address);
        address
    }

    /// A constant that comes to the device with each batch.
    fn brought(
        &mut self,
        key: &str,
        element: Element,
        make: impl Fn() -> Bytes,
    ) -> Address<Symbolic> {
        if let Some(address) = self.placed.get(&(key.to_owned(), element)) {
            return *address;
        }
        let bytes = make();
        let address = self.reserve_input(bytes.len() as u64);
        self.constants.push((address.get(), bytes));
        self.placed.insert((key.to_owned(), element), address);
        address
    }

    fn reserve_input(&mut self, bytes: u64) -> Address<Symbolic> {
        let at = self.buffers[0].bytes;
        self.buffers[0].bytes = (at + bytes).next_multiple_of(ALIGNMENT);
        Address::new(at)
    }

    fn buffer(&mut self, bytes: u64, content: Content) -> Address<Symbolic> {
        self.buffers.push(Buffer { bytes, content });
        Address::new(((self.buffers.len() - 1) as u64) << OFFSET_BITS)
    }
}

impl From<Constant> for Value {
    fn from(constant: Constant) -> Self {
        Self::Constant(constant)
    }
}

impl From<Device> for Value {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

// === impl Value ===

impl Value {
    pub fn dims(&self) -> &[u64] {
        match self {
            Self::Constant(constant) => &constant.tensor.dims,
            Self::Device(device) => &device.dims,
        }
    }

    pub fn data_type(&self) -> DataType {
        match self {
            Self::Constant(constant) => constant.tensor.data_type,
            Self::Device(device) => device.data_type,
        }
    }
}

// === impl Device ===

impl Device {
    pub fn count(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Strides of the dimensions viewed as `dims`, in elements; 0 where one value is used for a whole dimension.
    pub fn strides(&self, dims: &[u64]) -> Vec<i64> {
        if !self.channels_last {
            return layout::expanded(&self.dims, dims);
        }
        let (mut lying, mut order) = (self.dims.clone(), dims.to_vec());
        lying[1..].rotate_left(1);
        order[1..].rotate_left(1);
        let mut strides = layout::expanded(&lying, &order);
        strides[1..].rotate_right(1);
        strides
    }

    /// The same bytes in another shape; row-major.
    pub fn reshaped(&self, dims: &[u64]) -> Self {
        Self {
            dims: dims.to_vec(),
            ..self.clone()
        }
    }
}

/// The product of dimensions, if it is a size that memory could have even without the zeros among them.
pub(crate) fn elements(dims: &[u64]) -> Option<u64> {
    let product = |all: u64, dim: &u64| all.checked_mul((*dim).max(1));
    let product = dims.iter().try_fold(1, product)?;
    let possible = product < 1 << (OFFSET_BITS - 4);
    possible.then(|| if dims.contains(&0) { 0 } else { product })
}

fn outside(name: &str, data_type: DataType) -> Result<Element, Error> {
    let target = Target {
        float: Element::F32,
        arithmetic: crate::operation::Arithmetic::Full,
        convolution: false,
        attention: false,
        page_bytes: 0,
    };
    target
        .element(data_type)
        .ok_or_else(|| Error::Unsupported(format!("`{name}` is of type {data_type}")))
}

fn too_large(bytes: u64, page_bytes: u64) -> String {
    format!("{bytes} bytes that cannot be divided do not fit into a page of {page_bytes} bytes")
}
