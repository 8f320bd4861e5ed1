//! Messages and services, generated from `proto/`.

tonic::include_proto!("sextant.v1");
