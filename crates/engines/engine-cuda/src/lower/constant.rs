//! Values that are known while a graph is lowered.

use std::sync::Arc;

use bytes::Bytes;
use half::{bf16, f16};
use sextant_types::DataType;

use crate::operation::Element;

/// A tensor in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    /// Type of the elements; never strings.
    pub data_type: DataType,
    /// Dimensions.
    pub dims: Vec<u64>,
    /// Little-endian, row-major.
    pub bytes: Bytes,
}

/// A constant with the key that names it among the weights.
#[derive(Debug, Clone)]
pub(crate) struct Constant {
    /// Unique within the artefact.
    pub key: String,
    /// Whether it is the same for all input shapes, so that it can be a weight.
    pub fixed: bool,
    pub tensor: Arc<HostTensor>,
}

// === impl Constant ===

impl Constant {
    pub fn fixed(key: &str, tensor: Arc<HostTensor>) -> Self {
        Self {
            key: key.to_owned(),
            fixed: true,
            tensor,
        }
    }

    /// The transposed matrix.
    pub fn transposed(&self) -> Self {
        let size = self.tensor.data_type.size().unwrap_or(1);
        let (rows, columns) = match self.tensor.dims[..] {
            [rows, columns] => (rows as usize, columns as usize),
            _ => (1, self.tensor.count() as usize),
        };
        let bytes = &self.tensor.bytes;
        let mut turned = Vec::with_capacity(bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                let at = (row * columns + column) * size;
                turned.extend_from_slice(&bytes[at..at + size]);
            }
        }
        let tensor = HostTensor {
            data_type: self.tensor.data_type,
            dims: vec![columns as u64, rows as u64],
            bytes: turned.into(),
        };
        Self {
            key: format!("{} transposed", self.key),
            fixed: self.fixed,
            tensor: Arc::new(tensor),
        }
    }
}

// === impl HostTensor ===

impl HostTensor {
    /// Weights `[out, in, kernel..]` as `[out, kernel, channels]`; channels beyond `in` are 0.
    pub fn channels_last(&self, channels: u64) -> Self {
        let size = self.data_type.size().unwrap_or(1);
        let (outputs, inputs) = (self.dims[0] as usize, self.dims[1] as usize);
        let (kernel, channels) = (
            self.dims[2..].iter().product::<u64>() as usize,
            channels as usize,
        );
        let mut bytes = vec![0; outputs * kernel * channels * size];
        let filters = self.bytes.chunks_exact((inputs * kernel * size).max(1));
        for (from, to) in filters.zip(bytes.chunks_exact_mut((kernel * channels * size).max(1))) {
            for (input, plane) in from.chunks_exact((kernel * size).max(1)).enumerate() {
                for (place, value) in plane.chunks_exact(size).enumerate() {
                    let at = (place * channels + input) * size;
                    to[at..at + size].copy_from_slice(value);
                }
            }
        }
        Self {
            data_type: self.data_type,
            dims: vec![outputs as u64, kernel as u64, channels as u64],
            bytes: bytes.into(),
        }
    }

    /// A list of 64-bit integers.
    pub fn integers(values: &[i64]) -> Self {
        Self {
            data_type: DataType::Int64,
            dims: vec![values.len() as u64],
            bytes: Bytes::copy_from_slice(bytemuck::cast_slice(values)),
        }
    }

    /// A tensor of 32-bit floats.
    pub fn floats(dims: &[u64], values: &[f32]) -> Self {
        Self {
            data_type: DataType::Fp32,
            dims: dims.to_vec(),
            bytes: Bytes::copy_from_slice(bytemuck::cast_slice(values)),
        }
    }

    pub fn count(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The elements of an integer or boolean tensor.
    pub fn to_integers(&self) -> Option<Vec<i64>> {
        let size = self.data_type.size()?;
        let chunks = self.bytes.chunks_exact(size);
        let signed = |bytes: &[u8]| match (self.data_type, bytes) {
            (DataType::Int64, bytes) => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
            (DataType::Int32, bytes) => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            (DataType::Int8, [byte]) => Some(i64::from(*byte as i8)),
            (DataType::Uint8 | DataType::Bool, [byte]) => Some(i64::from(*byte)),
            _ => None,
        };
        chunks.map(signed).collect()
    }

    /// The elements of a tensor of floats.
    pub fn to_floats(&self) -> Option<Vec<f32>> {
        let halves = |convert: fn([u8; 2]) -> f32| {
            let chunks = self.bytes.chunks_exact(2);
            chunks.map(|pair| convert([pair[0], pair[1]])).collect()
        };
        match self.data_type {
            DataType::Fp32 => Some(bytemuck::pod_collect_to_vec(&self.bytes)),
            DataType::Fp16 => Some(halves(|bytes| f16::from_le_bytes(bytes).to_f32())),
            DataType::Bf16 => Some(halves(|bytes| bf16::from_le_bytes(bytes).to_f32())),
            _ => None,
        }
    }

    /// The only element, of whatever type.
    pub fn scalar(&self) -> Option<f64> {
        if self.count() != 1 {
            return None;
        }
        let float = self.to_floats().map(|it| f64::from(it[0]));
        float.or_else(|| self.to_integers().map(|it| it[0] as f64))
    }

    /// The bytes as stored on the device. Finite floats stay finite: exporters write masks as large numbers, and
    /// infinity times 0 would be NaN.
    pub fn stored(&self, element: Element) -> Bytes {
        if self.data_type != DataType::Fp32 || element == Element::F32 {
            return self.bytes.clone();
        }
        let floats: Vec<f32> = self.to_floats().unwrap_or_default();
        let limit = match element {
            Element::F16 => f16::MAX.to_f32(),
            _ => bf16::MAX.to_f32(),
        };
        let narrow = |value: &f32| {
            let value = if value.is_finite() {
                value.clamp(-limit, limit)
            } else {
                *value
            };
            match element {
                Element::F16 => f16::from_f32(value).to_le_bytes(),
                _ => bf16::from_f32(value).to_le_bytes(),
            }
        };
        floats.iter().flat_map(narrow).collect()
    }
}
