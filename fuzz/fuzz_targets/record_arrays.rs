//! Feeds made-up bytes to [`sextant_fuzz::record_arrays`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::record_arrays(bytes));
