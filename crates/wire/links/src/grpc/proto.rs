//! Messages and services, generated from `proto/`.

#![expect(clippy::allow_attributes, reason = "generated")]

tonic::include_proto!("sextant.v1");
