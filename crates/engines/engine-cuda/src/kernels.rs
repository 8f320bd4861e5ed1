//! The CUDA C++ kernels, and the launches of kernels for operations.
//!
//! Entry points: [`SOURCES`] (the text of `kernels/`), [`launch`] (the launch for an operation). Nothing here touches a
//! device: the real driver compiles and launches, and the tests run the same sources and launches in an emulation of
//! CUDA's execution model on the host.
//!
//! NVRTC compiles the sources when a device is opened, to machine code of exactly that device. The graphics driver
//! would have to translate PTX that was made in advance, which is the slower half of the work, and drivers refuse PTX
//! of a newer toolkit. Machine code for every device, made in advance, needs a toolkit where Sextant is built. All of
//! this happens before the first model is loaded: nothing is compiled or loaded while batches run.

mod attention;
mod compute;
mod parameters;
mod rows;
mod shapes;

use sextant_engine::Error;

pub use parameters::Parameters;

use crate::operation::{Address, Element, Method, Operation};

/// A kernel with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its name in the sources.
    pub kernel: String,
    /// Blocks.
    pub grid: u32,
    /// Threads of a block: whole warps.
    pub block: u32,
    /// The parameters of the call.
    pub parameters: Parameters,
}

/// One source file.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its name without the ending.
    pub name: &'static str,
    /// Its text, the common headers in front.
    pub text: &'static str,
    /// Families of kernels: the beginnings of their names, with the endings that exist.
    families: &'static [(&'static [&'static str], &'static [&'static str])],
}

const FLOATS: &[&str] = &["f32", "f16", "bf16"];
const WIDE: &[&str] = &["f32_wide", "f16_wide", "bf16_wide"];
const NUMBERS: &[&str] = &["f32", "f16", "bf16", "i64", "i32"];
const ALL: &[&str] = &["f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"];
const SIZES: &[&str] = &["1", "2", "4", "8"];
const DEPTHS: &[&str] = &["32", "64", "128"];

macro_rules! source {
    ($name:literal, $families:expr) => {
        Source {
            name: $name,
            text: concat!(
                include_str!("../kernels/common.cuh"),
                include_str!("../kernels/window.cuh"),
                include_str!(concat!("../kernels/", $name, ".cu"))
            ),
            families: $families,
        }
    };
}

/// All source files.
pub const SOURCES: [Source; 6] = [
    source!(
        "attention",
        &[(&["attention_f16", "attention_bf16"], DEPTHS)]
    ),
    source!(
        "elementwise",
        &[
            (&["unary", "arithmetic", "comparison"], ALL),
            (&["affine", "arithmetic_flat"], FLOATS),
            (&["unary", "arithmetic_flat"], WIDE),
            (&["arithmetic_packed"], FLOATS),
        ]
    ),
    source!("gemm", &[(&["gemm"], FLOATS)]),
    source!(
        "images",
        &[(&["pool", "convolution"], FLOATS), (&["pool"], WIDE)]
    ),
    source!(
        "movement",
        &[
            (
                &["copy", "transpose", "fill", "select", "gather", "im2col"],
                SIZES,
            ),
            (&["copy"], &["wide", "16"]),
            (
                &["convert"],
                &["", "f32_f16", "f32_bf16", "f16_f32", "bf16_f32"],
            ),
        ]
    ),
    source!(
        "rows",
        &[
            (&["reduce_rows", "reduce_columns"], NUMBERS),
            (&["arg_rows", "arg_columns"], NUMBERS),
            (
                &["softmax_rows", "softmax_warps", "softmax_columns"],
                FLOATS,
            ),
            (&["layer_norm", "layer_norm_warps"], FLOATS),
        ]
    ),
];

/// Options for NVRTC: machine code for a compute capability.
pub fn compiler_options((major, minor): (u32, u32)) -> Vec<String> {
    vec![
        format!("--gpu-architecture=sm_{major}{minor}"),
        "--std=c++17".to_owned(),
    ]
}

/// The launch for an operation; `None` where there is nothing to compute. A [`Operation::Gemm`] gives the kernel that
/// computes it where cuBLASLt has no algorithm.
///
/// # Errors
/// [`Error::Unsupported`] for a convolution that is planned for the device's library, for functions
/// of element types that they are not defined for, and for images of more than 2^32 pixels.
pub fn launch(operation: &Operation) -> Result<Option<Launch>, Error> {
    match operation {
        Operation::Gemm(it) => compute::gemm(it),
        Operation::Convolution(it) if it.method == Method::Library => Err(Error::Unsupported(
            "a convolution that is planned for a library has no kernel".to_owned(),
        )),
        Operation::Convolution(it) => compute::convolution(it),
        Operation::Im2col(it) => compute::im2col(it),
        Operation::Affine(it) => compute::affine(it),
        Operation::Pool(it) => compute::pool(it),
        Operation::Unary(it) => compute::unary(it),
        Operation::Binary(it) => shapes::binary(it),
        Operation::Select(it) => shapes::select(it),
        Operation::Reduce(it) => rows::reduce(it),
        Operation::Arg(it) => rows::arg(it),
        Operation::Softmax(it) => rows::softmax(it),
        Operation::LayerNorm(it) => rows::layer_norm(it),
        Operation::Attention(it) => attention::attention(it),
        Operation::Gather(it) => compute::gather(it),
        Operation::Copy(it) => shapes::copy(it),
        Operation::Fill(it) => shapes::fill(it),
    }
}

/// A copy of whole packs of 16 bytes between addresses of the device, with few blocks, so that it runs beside
/// computations.
pub(crate) fn copy_between(from: u64, to: u64, bytes: u64) -> Launch {
    const BLOCKS: u32 = 32;
    let packs = bytes / 16;
    let launch = Launch::flat(
        "copy_wide".to_owned(),
        packs,
        Parameters::default().u64s(&[from, to, packs]),
    );
    Launch {
        grid: launch.grid.min(BLOCKS),
        ..launch
    }
}

// === impl Source ===

impl Source {
    /// The kernels of the source.
    pub fn kernels(&self) -> Vec<String> {
        let join = |first: &&str, last: &&str| match last.is_empty() {
            true => (*first).to_owned(),
            false => format!("{first}_{last}"),
        };
        let family = |(firsts, lasts): &(&[&str], &'static [&'static str])| -> Vec<String> {
            let names = |first| lasts.iter().map(move |last| join(first, last));
            firsts.iter().flat_map(names).collect()
        };
        self.families.iter().flat_map(family).collect()
    }
}

// === impl Launch ===

/// Threads of a block where each thread has its own element.
const BLOCK: u64 = 256;
/// Most blocks; the kernels loop over the remaining elements.
const GRID: u64 = 1 << 20;

impl Launch {
    /// One thread for each of `items`, up to the size of the grid.
    fn flat(kernel: String, items: u64, parameters: Parameters) -> Self {
        Self {
            kernel,
            grid: items.div_ceil(BLOCK).clamp(1, GRID) as u32,
            block: BLOCK as u32,
            parameters,
        }
    }

    /// One warp for each of `rows` rows.
    fn warps(kernel: String, rows: u64, parameters: Parameters) -> Self {
        const WARPS: u64 = 4;
        Self {
            kernel,
            grid: rows.div_ceil(WARPS).clamp(1, GRID) as u32,
            block: (WARPS * 32) as u32,
            parameters,
        }
    }

    /// One block for each of `rows` rows of `length` values.
    fn rows(kernel: String, rows: u64, length: u64, parameters: Parameters) -> Self {
        Self {
            kernel,
            grid: rows.clamp(1, GRID) as u32,
            block: length.min(512).next_power_of_two().max(32) as u32,
            parameters,
        }
    }
}

/// The ending of kernels for an element type.
fn suffix(element: Element) -> &'static str {
    match element {
        Element::F32 => "f32",
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
        Element::I64 => "i64",
        Element::I32 => "i32",
        Element::I8 => "i8",
        Element::U8 => "u8",
        Element::Bool => "bool",
    }
}

/// The code of an element type in the CUDA sources.
fn code(element: Element) -> i32 {
    match element {
        Element::F32 => 0,
        Element::F16 => 1,
        Element::Bf16 => 2,
        Element::I64 => 3,
        Element::I32 => 4,
        Element::I8 => 5,
        Element::U8 => 6,
        Element::Bool => 7,
    }
}

fn unsupported(text: &str, element: Element) -> Error {
    Error::Unsupported(format!("there is no kernel for {text} of {element:?}"))
}

fn float_only(text: &str, element: Element) -> Result<(), Error> {
    match element.is_float() {
        true => Ok(()),
        false => Err(unsupported(text, element)),
    }
}

/// Number of values in 16 bytes.
fn lanes(element: Element) -> u64 {
    16 / element.bytes()
}

/// Whether 16 bytes can be accessed at once at each of these addresses.
fn aligned(addresses: &[Address]) -> bool {
    addresses.iter().all(|address| address.get() % 16 == 0)
}
