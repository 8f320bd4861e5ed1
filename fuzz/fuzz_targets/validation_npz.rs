//! Feeds made-up bytes to [`sextant_fuzz::validation_npz`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::validation_npz(bytes));
