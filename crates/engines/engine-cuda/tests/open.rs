//! Opening a device of this machine.

use sextant_engine::Error;
use sextant_engine_cuda::{Config, CudaEngine, NAME};

/// If there is no device, or a library is missing, the error says so and what to do. If there is a device, it opens.
#[test]
fn a_machine_without_a_device_is_told_what_to_do() {
    let small = Config {
        pages: Some(1),
        workspace_bytes: 1 << 20,
        io_bytes: 1 << 20,
        scratch_bytes: 1 << 20,
        host_bytes: 0,
        ..Config::default()
    };
    match CudaEngine::open(0, small) {
        Ok(engine) => assert_eq!(engine.free_pages(), 1),
        Err(Error::Unavailable { engine, reason }) => {
            assert_eq!(engine, NAME);
            assert!(
                reason.contains("install") || reason.contains("driver"),
                "{reason}"
            );
        }
        Err(other) => panic!("not opened as `{other}`"),
    }
}
