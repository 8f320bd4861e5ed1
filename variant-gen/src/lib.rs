//! Variants from one ONNX file: rewritten, measured, profiled.
