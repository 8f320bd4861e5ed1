//! Feeds made-up bytes to [`sextant_fuzz::binary_query`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::binary_query(bytes));
