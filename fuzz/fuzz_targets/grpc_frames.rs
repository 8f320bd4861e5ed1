//! Feeds made-up bytes to [`sextant_fuzz::grpc_frames`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::grpc_frames(bytes));
