//! Whole-system tests, laid out as the URLs are.
