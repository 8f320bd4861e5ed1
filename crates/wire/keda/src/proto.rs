//! Messages and the service, generated from `proto/`.

#![expect(clippy::allow_attributes, missing_docs, reason = "generated")]

tonic::include_proto!("externalscaler");
