//! Offline jobs: files of records in, files of records out, on spare resources.
