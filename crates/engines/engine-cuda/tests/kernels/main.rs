//! The kernels, emulated on the host, agree with the operations' definitions.
//!
//! `kernels/host` compiles the same sources with a C++ compiler and runs the same launches as a
//! device would, block by block and thread by thread. What is computed is compared with
//! `sextant_engine_cuda::reference`; what lies around the outputs must stay as it was.

mod attention;
mod cases;
mod device;
mod elementwise;
mod emulator;
mod images;
mod kit;
mod matrices;
mod movement;
mod packages;
mod rows;
mod stand_in;

use sextant_engine_cuda::kernels::SOURCES;

#[test]
fn kernels_have_names_of_their_own() {
    let mut names: Vec<String> = SOURCES.iter().flat_map(|it| it.kernels()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
