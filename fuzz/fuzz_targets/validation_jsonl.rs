//! Feeds made-up bytes to [`sextant_fuzz::validation_jsonl`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sextant_fuzz::validation_jsonl(bytes));
