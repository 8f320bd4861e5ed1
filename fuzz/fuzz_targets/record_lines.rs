//! Feeds made-up bytes to [`sextant_fuzz::record_lines`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::record_lines(bytes));
