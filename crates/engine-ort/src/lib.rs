//! ONNX Runtime behind the engine trait.
