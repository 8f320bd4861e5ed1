//! Operations with a moving window.

use sextant_engine::Error;

use super::{
    Memory, fault, float_only,
    functions::activate,
    values::{floats, store_floats, tf32},
};
use crate::operation::{Arithmetic, Convolution, Element, Im2col, Pool, PoolFunction, Window};

pub(super) fn convolution(it: &Convolution, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    if !it.in_channels.is_multiple_of(it.groups) || !it.out_channels.is_multiple_of(it.groups) {
        return Err(fault("channels that the groups do not divide"));
    }
    let operands = Operands::read(it, memory)?;
    let positions = it.window.out_count();
    let mut y = vec![0.0; (it.batch * it.out_channels * positions) as usize];
    for image in 0..it.batch {
        for channel in 0..it.out_channels {
            operands.plane(it, image, channel, &mut y);
        }
    }
    store_floats(memory, it.y, it.element, &y)
}

struct Operands {
    x: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    addend: Vec<f32>,
}

/// The index of a channel of a pixel, in images with `channels` channels and `pixels` pixels.
fn index(last: bool, [image, channel, pixel]: [u64; 3], [channels, pixels]: [u64; 2]) -> usize {
    let index = match last {
        true => (image * pixels + pixel) * channels + channel,
        false => (image * channels + channel) * pixels + pixel,
    };
    index as usize
}

// === impl Operands ===

impl Operands {
    fn read(it: &Convolution, memory: &Memory) -> Result<Self, Error> {
        let inputs = it.batch * it.in_channels * it.window.in_count();
        let depth = it.in_channels / it.groups * it.window.kernel_count();
        let mut x = floats(memory, it.x, inputs, it.element)?;
        let mut weights = floats(memory, it.weights, it.out_channels * depth, it.element)?;
        if it.element == Element::F32 && it.arithmetic == Arithmetic::Tf32 {
            let round = |values: &mut Vec<f32>| values.iter_mut().for_each(|it| *it = tf32(*it));
            round(&mut x);
            round(&mut weights);
        }
        let bias = match it.bias {
            Some(at) => floats(memory, at, it.out_channels, it.element)?,
            None => vec![0.0; it.out_channels as usize],
        };
        let outputs = it.batch * it.out_channels * it.window.out_count();
        let addend = match it.addend {
            Some(at) => floats(memory, at, outputs, it.element)?,
            None => vec![0.0; outputs as usize],
        };
        Ok(Self {
            x,
            weights,
            bias,
            addend,
        })
    }

    /// One channel of one image.
    fn plane(&self, it: &Convolution, image: u64, channel: u64, y: &mut [f32]) {
        let last = it.channels_last;
        let depth = it.in_channels / it.groups;
        let first = channel / (it.out_channels / it.groups) * depth;
        let (pixels, kernel) = (it.window.in_count(), it.window.kernel_count());
        for position in 0..it.window.out_count() {
            let mut sum = 0.0;
            for (at, pixel) in inside(&it.window, position) {
                for plane in 0..depth {
                    let x = index(
                        last,
                        [image, first + plane, pixel],
                        [it.in_channels, pixels],
                    );
                    let weight = index(last, [channel, plane, at], [depth, kernel]);
                    sum += self.x[x] * self.weights[weight];
                }
            }
            let sizes = [it.out_channels, it.window.out_count()];
            let at = index(last, [image, channel, position], sizes);
            let sum = sum + self.bias[channel as usize] + self.addend[at];
            y[at] = activate(it.activation, sum);
        }
    }
}

pub(super) fn im2col(it: &Im2col, memory: &mut Memory) -> Result<(), Error> {
    let (pixels, positions) = (it.window.in_count(), it.window.out_count());
    let kernel = it.window.kernel_count();
    for plane in 0..it.batch * it.channels {
        let start = it.x + plane * pixels * it.element.bytes();
        let x = floats(memory, start, pixels, it.element)?;
        let mut y = vec![0.0; (kernel * positions) as usize];
        for position in 0..positions {
            for (at, pixel) in inside(&it.window, position) {
                y[(at * positions + position) as usize] = x[pixel as usize];
            }
        }
        let start = it.y + plane * kernel * positions * it.element.bytes();
        store_floats(memory, start, it.element, &y)?;
    }
    Ok(())
}

pub(super) fn pool(it: &Pool, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    let (pixels, positions) = (it.window.in_count(), it.window.out_count());
    for plane in 0..it.planes {
        let start = it.x + plane * pixels * it.inner * it.element.bytes();
        let x = floats(memory, start, pixels * it.inner, it.element)?;
        let value = |at: u64| {
            let (position, inner) = (at / it.inner, at % it.inner);
            let values = inside(&it.window, position).into_iter();
            let values = values.map(|(_, pixel)| x[(pixel * it.inner + inner) as usize]);
            let values: Vec<f32> = values.collect();
            let sum: f32 = values.iter().sum();
            match it.function {
                PoolFunction::Max => values.into_iter().fold(f32::NEG_INFINITY, f32::max),
                PoolFunction::Average => sum / values.len() as f32,
                PoolFunction::AverageWithPadding => sum / padded(&it.window, position) as f32,
            }
        };
        let y: Vec<f32> = (0..positions * it.inner).map(value).collect();
        let start = it.y + plane * positions * it.inner * it.element.bytes();
        store_floats(memory, start, it.element, &y)?;
    }
    Ok(())
}

/// The elements of the window at a position that lie inside the image: their index in the window and the pixel.
fn inside(window: &Window, position: u64) -> Vec<(u64, u64)> {
    let [height, width] = window.in_size;
    let mut found = Vec::new();
    for at in 0..window.kernel_count() {
        let [row, column] = place(window, position, at);
        let row = row.checked_sub(window.pads_begin[0]);
        let column = column.checked_sub(window.pads_begin[1]);
        if let (Some(row), Some(column)) = (row, column)
            && row < height
            && column < width
        {
            found.push((at, row * width + column));
        }
    }
    found
}

/// The number of elements of the window that lie inside the image or its padding.
fn padded(window: &Window, position: u64) -> usize {
    let limit = |dim: usize| window.in_size[dim] + window.pads_begin[dim] + window.pads_end[dim];
    let fits = |at: &u64| {
        let [row, column] = place(window, position, *at);
        row < limit(0) && column < limit(1)
    };
    (0..window.kernel_count()).filter(fits).count()
}

/// Row and column of a window's element, counted from the corner of the padding.
fn place(window: &Window, position: u64, at: u64) -> [u64; 2] {
    let out = [position / window.out_size[1], position % window.out_size[1]];
    let at = [at / window.kernel[1], at % window.kernel[1]];
    [0, 1].map(|dim| out[dim] * window.strides[dim] + at[dim] * window.dilations[dim])
}
