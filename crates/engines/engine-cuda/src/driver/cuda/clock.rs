//! The multiprocessors' clock, from NVML where it is installed.
//!
//! The driver interface knows only the highest clock. NVML, which comes with the graphics driver, knows the current
//! one.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use cudarc::driver::{CudaContext, sys};
use libloading::os::unix::Library;
use sextant_engine::Error;

use super::errors::driver_error;

const NVML_SUCCESS: c_int = 0;
const NVML_CLOCK_SM: c_uint = 1;

/// A device's clock.
pub(super) struct Clock {
    nvml: Option<Nvml>,
    highest_mhz: u32,
}

struct Nvml {
    device: *mut c_void,
    read: unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int,
    /// Keeps the functions loaded. NVML stays initialised until the process ends.
    _library: Library,
}

// SAFETY: NVML is thread-safe, and its device handles belong to the process.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

// === impl Clock ===

impl Clock {
    pub(super) fn new(context: &CudaContext) -> Self {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
        let highest_khz = context.attribute(attribute).unwrap_or(0);
        Self {
            nvml: Nvml::open(context),
            highest_mhz: highest_khz.unsigned_abs() / 1000,
        }
    }

    pub(super) fn now_mhz(&self) -> Result<u32, Error> {
        let Some(nvml) = &self.nvml else {
            return Ok(self.highest_mhz);
        };
        let mut clock = 0;
        // SAFETY: the function has this signature in `nvml.h`; the handle is NVML's own; writes to a
        // live variable.
        match unsafe { (nvml.read)(nvml.device, NVML_CLOCK_SM, &raw mut clock) } {
            NVML_SUCCESS => Ok(clock),
            code => Err(Error::Failed(format!("NVML cannot read the clock: {code}"))),
        }
    }
}

// === impl Nvml ===

impl Nvml {
    /// `None` if NVML is missing or does not know the device.
    fn open(context: &CudaContext) -> Option<Self> {
        let bus = bus_id(context)?;
        // SAFETY: NVML's initialisers have no requirements; the signatures are those of `nvml.h`; the
        // functions are called while the library is loaded.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let start = *library
                .get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0")
                .ok()?;
            let find = *library
                .get::<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int>(
                    b"nvmlDeviceGetHandleByPciBusId_v2\0",
                )
                .ok()?;
            let read = *library.get(b"nvmlDeviceGetClockInfo\0").ok()?;
            let mut device = std::ptr::null_mut();
            let found =
                start() == NVML_SUCCESS && find(bus.as_ptr(), &raw mut device) == NVML_SUCCESS;
            found.then_some(Self {
                device,
                read,
                _library: library,
            })
        }
    }
}

/// The device's address on the bus, by which NVML knows it.
fn bus_id(context: &CudaContext) -> Option<CString> {
    let mut text = [0u8; 32];
    // SAFETY: writes at most the bytes that it is told of, with a final zero.
    let result = unsafe {
        sys::cuDeviceGetPCIBusId(
            text.as_mut_ptr().cast(),
            text.len() as c_int,
            context.cu_device(),
        )
    };
    result.result().map_err(driver_error).ok()?;
    let end = text.iter().position(|byte| *byte == 0)?;
    CString::new(&text[..end]).ok()
}
