//! Messages, generated from `proto/`.

#![expect(clippy::enum_variant_names, reason = "generated")]

tonic::include_proto!("inference");

/// Whether the service accepts calls.
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// The descriptors of the services for reflection: an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.bin"));
