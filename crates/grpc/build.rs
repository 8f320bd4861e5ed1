//! Compiles the messages and services; no `protoc` is needed.

use std::error::Error;

const FILES: [&str; 4] = [
    "sextant/v1/common.proto",
    "sextant/v1/worker.proto",
    "sextant/v1/mailbox.proto",
    "sextant/v1/dispatcher.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // Tensors stay where they were received: `Bytes` share the buffer.
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
