//! Feeds made-up bytes to [`sextant_fuzz::feedback_token`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::feedback_token(bytes));
