//! The properties that every metadata store has; one function each.
