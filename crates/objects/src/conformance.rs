//! The properties that every object store has; one function each.
