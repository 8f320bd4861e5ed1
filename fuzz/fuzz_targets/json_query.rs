//! Feeds made-up bytes to [`sextant_fuzz::json_query`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::json_query(bytes));
