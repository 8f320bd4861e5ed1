//! Devices, memory, engines: running a batch on time.
