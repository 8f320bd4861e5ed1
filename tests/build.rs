//! Compiles a client of the Open Inference Protocol over gRPC from the description that the service ships.

use std::error::Error;

const FOLDER: &str = "../api/v2/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let descriptors = protox::compile(["open_inference.proto"], [FOLDER])?;
    tonic_prost_build::configure()
        .build_server(false)
        .compile_fds(descriptors)?;
    Ok(())
}
