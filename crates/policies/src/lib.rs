//! Every decision of Sextant as pure code.
