//! Compiles the messages of the gRPC services and what reflection tells of them; no `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: [&str; 2] = ["open_inference.proto", "health.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("services.bin"), descriptors.encode_to_vec())?;
    // Tensors stay where they were received: `Bytes` share the buffer.
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .bytes(".")
        .btree_map(".")
        // Strings are put together where they are read.
        .extern_path(
            ".inference.InferTensorContents",
            "crate::grpc::contents::Contents",
        )
        .compile_fds(descriptors)?;
    Ok(())
}
