//! Compiles the messages and the service; `protoc` is not needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["externalscaler.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
