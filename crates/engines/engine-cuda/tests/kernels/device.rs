use sextant_engine::Error;
use sextant_engine_cuda::driver::{Driver, cuda::CudaDriver};

/// With a device it opens; without, the error names what is missing and what to do.
#[test]
fn opening_a_device_works_or_says_what_is_missing() {
    match CudaDriver::open(0) {
        Ok(driver) => assert_eq!(driver.properties().ordinal, 0),
        Err(Error::Unavailable { engine, reason }) => {
            assert_eq!(engine, "cuda");
            let advice = ["install", "nvidia-smi", "supported"];
            assert!(advice.iter().any(|it| reason.contains(it)), "{reason}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_device_that_is_not_there_is_unavailable() {
    let opened = CudaDriver::open(4000).map(|_| ());
    assert!(
        matches!(opened, Err(Error::Unavailable { .. })),
        "{opened:?}"
    );
}
