//! ONNX protobuf: reading, checking, rewriting, quantising.
