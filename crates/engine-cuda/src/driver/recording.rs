//! A driver without a device.
