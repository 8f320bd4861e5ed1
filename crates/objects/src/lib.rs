//! Artefacts: content-addressed blobs and named files.
