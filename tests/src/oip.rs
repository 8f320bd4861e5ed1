//! A client of the Open Inference Protocol over gRPC, generated from the description that the service ships.

#![expect(missing_docs, unused_qualifications, reason = "generated")]

tonic::include_proto!("inference");
