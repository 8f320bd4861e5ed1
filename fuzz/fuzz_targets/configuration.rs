//! Feeds made-up bytes to [`sextant_fuzz::configuration`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::configuration(bytes));
