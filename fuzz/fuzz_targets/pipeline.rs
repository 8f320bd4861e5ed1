//! Feeds made-up bytes to [`sextant_fuzz::pipeline`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::pipeline(bytes));
