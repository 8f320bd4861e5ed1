//! How many of which variant where.
