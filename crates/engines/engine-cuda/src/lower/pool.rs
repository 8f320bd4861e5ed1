//! Windows over images, and pooling.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Value},
};
use crate::operation::{Operation, Pool, PoolFunction, Window};

/// A tensor `[batch, channels, height, width]`; one-dimensional images have a height of 1.
pub(super) struct Images {
    pub batch: u64,
    pub channels: u64,
    pub size: [u64; 2],
    /// Whether the height was added.
    pub flat: bool,
}

// === impl Images ===

impl Images {
    pub fn new(call: &Call<'_>, dims: &[u64]) -> Result<Self, Error> {
        let (batch, channels, size, flat) = match *dims {
            [batch, channels, width] => (batch, channels, [1, width], true),
            [batch, channels, height, width] => (batch, channels, [height, width], false),
            _ => return Err(call.unsupported(&format!("of {} dimensions", dims.len()))),
        };
        Ok(Self {
            batch,
            channels,
            size,
            flat,
        })
    }

    /// The shape of images of another size and number of channels.
    pub fn dims(&self, channels: u64, size: [u64; 2]) -> Vec<u64> {
        if self.flat {
            vec![self.batch, channels, size[1]]
        } else {
            vec![self.batch, channels, size[0], size[1]]
        }
    }

    /// The window that the node's attributes describe.
    pub fn window(&self, call: &Call<'_>, kernel: [u64; 2]) -> Result<Window, Error> {
        let node = call.node;
        let strides = node.pair("strides", 1, 1)?;
        let dilations = node.pair("dilations", 1, 1)?;
        if strides.contains(&0) || dilations.contains(&0) || kernel.contains(&0) {
            return Err(call.invalid("a window, stride or dilation is 0"));
        }
        let reach = [0, 1].map(|dim| (kernel[dim] - 1) * dilations[dim] + 1);
        let (pads_begin, pads_end) = self.pads(call, reach, strides)?;
        let ceiling = node.int("ceil_mode", 0) != 0;
        let mut out_size = [0; 2];
        for dim in 0..2 {
            let padded = self.size[dim] + pads_begin[dim] + pads_end[dim];
            let free = padded.checked_sub(reach[dim]).ok_or_else(|| {
                call.invalid(&format!("a window of {} over {padded}", reach[dim]))
            })?;
            let steps = if ceiling {
                free.div_ceil(strides[dim])
            } else {
                free / strides[dim]
            };
            out_size[dim] = steps + 1;
            // A window that begins behind the image and its leading padding does not count.
            if ceiling && steps * strides[dim] >= self.size[dim] + pads_begin[dim] {
                out_size[dim] = steps;
            }
        }
        Ok(Window {
            in_size: self.size,
            out_size,
            kernel,
            strides,
            dilations,
            pads_begin,
            pads_end,
        })
    }

    fn pads(
        &self,
        call: &Call<'_>,
        reach: [u64; 2],
        strides: [u64; 2],
    ) -> Result<([u64; 2], [u64; 2]), Error> {
        let lower = match call.node.text("auto_pad") {
            "" | "NOTSET" => return self.given_pads(call),
            "VALID" => return Ok(([0; 2], [0; 2])),
            "SAME_LOWER" => true,
            "SAME_UPPER" => false,
            other => return Err(call.unsupported(&format!("padding `{other}`"))),
        };
        let (mut begin, mut end) = ([0; 2], [0; 2]);
        for dim in 0..2 {
            let positions = self.size[dim].div_ceil(strides[dim]);
            let needed = (positions.max(1) - 1) * strides[dim] + reach[dim];
            let missing = needed.saturating_sub(self.size[dim]);
            begin[dim] = if lower {
                missing.div_ceil(2)
            } else {
                missing / 2
            };
            end[dim] = missing - begin[dim];
        }
        Ok((begin, end))
    }

    fn given_pads(&self, call: &Call<'_>) -> Result<([u64; 2], [u64; 2]), Error> {
        let pads: Vec<u64> = match call.node.ints("pads") {
            None => return Ok(([0; 2], [0; 2])),
            Some(pads) => pads
                .iter()
                .map(|pad| call.node.size("pads", *pad))
                .collect::<Result<_, _>>()?,
        };
        match pads[..] {
            [left, right] if self.flat => Ok(([0, left], [0, right])),
            [top, left, bottom, right] if !self.flat => Ok(([top, left], [bottom, right])),
            _ => Err(call.invalid(&format!("padding {pads:?}"))),
        }
    }
}

pub(super) fn pool(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let node = call.node;
    if node.outputs.get(1).is_some_and(|name| !name.is_empty()) {
        return Err(call.unsupported("its indices as an output"));
    }
    let x = lowering.stored(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    let images = Images::new(call, &x.dims)?;
    if node.ints("kernel_shape").is_none() {
        return Err(call.invalid("it has no kernel shape"));
    }
    let window = images.window(call, node.pair("kernel_shape", 1, 1)?)?;
    let padded = node.int("count_include_pad", 0) != 0;
    let function = match node.op_type.as_str() {
        "MaxPool" => PoolFunction::Max,
        _ if padded => PoolFunction::AverageWithPadding,
        _ => PoolFunction::Average,
    };
    let dims = images.dims(images.channels, window.out_size);
    let y = Device {
        channels_last: x.channels_last,
        ..lowering.activation(call, &dims, x.data_type)?
    };
    let (planes, inner) = match x.channels_last {
        true => (images.batch, images.channels),
        false => (images.batch * images.channels, 1),
    };
    if y.count() > 0 {
        lowering.emit(Operation::Pool(Pool {
            function,
            x: x.address,
            y: y.address,
            planes,
            inner,
            window,
            element: x.element,
        }));
    }
    Ok(vec![y.into()])
}
