//! Messages, generated from `proto/`.

#![expect(clippy::enum_variant_names, reason = "generated")]

tonic::include_proto!("inference");

/// Whether the service takes calls.
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// The services as reflection describes them: an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.bin"));
