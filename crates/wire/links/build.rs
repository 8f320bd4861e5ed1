//! Compiles the messages and services; `protoc` is not needed.

use std::error::Error;

const FILES: [&str; 5] = [
    "sextant/v1/common.proto",
    "sextant/v1/variant.proto",
    "sextant/v1/worker.proto",
    "sextant/v1/mailbox.proto",
    "sextant/v1/dispatcher.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // Tensors are not copied: `Bytes` share the receive buffer.
    tonic_prost_build::configure()
        .bytes(".")
        // A rare large message does not make every message large.
        .boxed(".sextant.v1.Order.order.load")
        .boxed(".sextant.v1.Outcome.outcome.stats")
        .boxed(".sextant.v1.AskMessage.body.ask")
        .compile_fds(descriptors)?;
    Ok(())
}
