//! Operations on images.

use super::{Activation, Address, Arithmetic, Element, Placed};

/// A two-dimensional convolution of images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convolution<S = Placed> {
    /// Input `[batch, in_channels, in_size]`, or `[batch, in_size, in_channels]` where channels come last.
    pub x: Address<S>,
    /// Weights `[out_channels, in_channels / groups, kernel]`, or `[out_channels, kernel, in_channels / groups]`.
    pub weights: Address<S>,
    /// One value for each output channel.
    pub bias: Option<Address<S>>,
    /// A tensor with the layout of `y`, added before the activation. Only where channels come last.
    pub addend: Option<Address<S>>,
    /// Output `[batch, out_channels, window.out_size]`, or `[batch, window.out_size, out_channels]`.
    pub y: Address<S>,
    /// Whether the channels of a pixel are contiguous, as tensor cores need them. Only with [`Method::Library`].
    pub channels_last: bool,
    /// Images.
    pub batch: u64,
    /// Channels of the input.
    pub in_channels: u64,
    /// Channels of the output.
    pub out_channels: u64,
    /// Independent groups of channels; divides both.
    pub groups: u64,
    /// The moving window.
    pub window: Window,
    /// Applied last.
    pub activation: Activation,
    /// Type of all operands: a float.
    pub element: Element,
    /// For 32-bit floats.
    pub arithmetic: Arithmetic,
    /// What computes it.
    pub method: Method,
}

/// What computes a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// The device's library. It is planned only if [`crate::driver::Driver::has_convolution`] returns `true`, and only
    /// with symmetric padding.
    Library,
    /// A kernel with one thread for each output element, for any padding and any groups. Grouped convolutions use it if
    /// there is no library.
    Direct,
}

/// A window that moves over an image; `[height, width]` everywhere. Output positions may reach beyond the padding at
/// the end (ceiling mode). Everything outside the image is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Size of the input image.
    pub in_size: [u64; 2],
    /// Size of the output image.
    pub out_size: [u64; 2],
    /// Size of the window.
    pub kernel: [u64; 2],
    /// Steps between windows.
    pub strides: [u64; 2],
    /// Steps inside a window.
    pub dilations: [u64; 2],
    /// Padding before the image: top, left.
    pub pads_begin: [u64; 2],
    /// Padding behind the image: bottom, right.
    pub pads_end: [u64; 2],
}

/// Unfolds images for a convolution by [`super::Gemm`]: `y[b][c * kernel + at][position]` is the input under
/// element `at` of the window at `position`, 0 in the padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Im2col<S = Placed> {
    /// Input `[batch, channels, in_size]`.
    pub x: Address<S>,
    /// Output `[batch, channels * kernel, out_size]`.
    pub y: Address<S>,
    /// Images.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// The moving window.
    pub window: Window,
    /// Type of both.
    pub element: Element,
}

/// `y = activation(x * scale[channel] + shift[channel])` over `[outer, channels, inner]`: batch
/// normalisation at inference, and the bias of a convolution by [`super::Gemm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine<S = Placed> {
    /// Input.
    pub x: Address<S>,
    /// Output.
    pub y: Address<S>,
    /// `channels` values; 1 where absent.
    pub scale: Option<Address<S>>,
    /// `channels` values; 0 where absent.
    pub shift: Option<Address<S>>,
    /// Product of the dimensions before the channels.
    pub outer: u64,
    /// Channels.
    pub channels: u64,
    /// Product of the dimensions after the channels.
    pub inner: u64,
    /// Applied last.
    pub activation: Activation,
    /// Type of all operands: a float.
    pub element: Element,
}

/// Pooling over images. `planes` is batch times channels and `inner` is 1; where channels come last, they are the batch
/// and its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool<S = Placed> {
    /// What pooling computes from each window.
    pub function: PoolFunction,
    /// Input `[planes, in_size, inner]`.
    pub x: Address<S>,
    /// Output `[planes, out_size, inner]`.
    pub y: Address<S>,
    /// Images.
    pub planes: u64,
    /// Values of a pixel, each pooled separately.
    pub inner: u64,
    /// The moving window.
    pub window: Window,
    /// Type of both: a float.
    pub element: Element,
}

/// What pooling computes from a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolFunction {
    /// The largest value inside the image.
    Max,
    /// The mean of the values inside the image.
    Average,
    /// The sum of the values inside the image over the number of window elements that lie inside the
    /// image or its declared padding.
    AverageWithPadding,
}

// === impl Window ===

impl Window {
    /// Elements of the input image.
    pub fn in_count(&self) -> u64 {
        self.in_size[0] * self.in_size[1]
    }

    /// Elements of the output image.
    pub fn out_count(&self) -> u64 {
        self.out_size[0] * self.out_size[1]
    }

    /// Elements of the window.
    pub fn kernel_count(&self) -> u64 {
        self.kernel[0] * self.kernel[1]
    }
}
