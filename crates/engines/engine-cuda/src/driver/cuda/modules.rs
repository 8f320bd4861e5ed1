//! Compiling kernels with NVRTC, loading and launching them.

mod kept;

use std::{
    collections::HashMap,
    ffi::{CString, c_char, c_int, c_void},
    sync::Arc,
};

use cudarc::{
    driver::{CudaContext, CudaFunction, CudaStream, sys},
    nvrtc::{self, Ptx, result::NvrtcError},
};
use sextant_engine::Error;

use self::kept::ModuleCache;
use super::errors::{driver_error, unavailable};
use crate::kernels::{self, Launch, SOURCES, Source};

/// All kernels, loaded.
pub(super) struct Modules {
    functions: HashMap<String, CudaFunction>,
    version: (i32, i32),
}

/// A program of NVRTC, destroyed when dropped.
struct Program(nvrtc::sys::nvrtcProgram);

// === impl Modules ===

impl Modules {
    /// Compiles the sources in parallel and loads every kernel.
    pub(super) fn load(context: &Arc<CudaContext>, capability: (u32, u32)) -> Result<Self, Error> {
        let version = version()?;
        let images = compile_all(capability)?;
        let mut functions = HashMap::new();
        for (source, image) in SOURCES.iter().zip(images) {
            let module = context.load_module(Ptx::from_binary(image));
            let module = module.map_err(driver_error)?;
            for name in source.kernels() {
                let function = module.load_function(&name).map_err(driver_error)?;
                // Reading a property loads the code, which otherwise happens at the first launch.
                function.num_regs().map_err(driver_error)?;
                functions.insert(name, function);
            }
        }
        Ok(Self { functions, version })
    }

    /// NVRTC's version.
    pub(super) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Puts a kernel into a stream of the bound context. `parameters` hold addresses of the device.
    pub(super) fn launch(
        &self,
        stream: &CudaStream,
        launch: &Launch,
        parameters: &[u8],
    ) -> Result<(), Error> {
        let missing = || Error::Failed(format!("there is no kernel `{}`", launch.kernel));
        let function = self.functions.get(&launch.kernel).ok_or_else(missing)?;
        let mut size = parameters.len();
        let mut extra: [*mut c_void; 5] = [
            sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
            parameters.as_ptr().cast_mut().cast(),
            sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
            (&raw mut size).cast(),
            sys::CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
        ];
        // SAFETY: function and stream are alive and of the bound context. The buffer is laid out as
        // the kernel's parameters are, which the tests compare for every kernel, and is copied
        // before the call returns. Addresses in it are of the arena, where the planner keeps
        // operations inside their ranges.
        let result = unsafe {
            sys::cuLaunchKernel(
                function.cu_function(),
                launch.grid,
                1,
                1,
                launch.block,
                1,
                1,
                0,
                stream.cu_stream(),
                std::ptr::null_mut(),
                extra.as_mut_ptr(),
            )
        };
        result.result().map_err(driver_error)
    }
}

/// Compiles the sources in parallel. Code that a folder keeps is read instead.
pub(super) fn compile_all(capability: (u32, u32)) -> Result<Vec<Vec<u8>>, Error> {
    let options = options(capability)?;
    let kept = ModuleCache::new(version()?, &options);
    let (options, kept) = (&options, kept.as_ref());
    std::thread::scope(|scope| {
        let compile = |source| {
            scope.spawn(move || match kept {
                Some(kept) => kept.image(source, || compile(source, options)),
                None => compile(source, options),
            })
        };
        let threads: Vec<_> = SOURCES.iter().map(compile).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            let died = |_| Err(Error::Failed("NVRTC died".to_owned()));
            thread.join().unwrap_or_else(died)
        };
        threads.into_iter().map(join).collect()
    })
}

/// Checks that an image has all kernels that are expected in it.
pub(super) fn check_names(names: &[String], image: &[u8]) -> Result<(), Error> {
    let has = |name: &String| {
        let mut windows = image.windows(name.len());
        windows.any(|window| window == name.as_bytes())
    };
    match names.iter().find(|name| !has(name)) {
        Some(name) => Err(Error::Failed(format!("there is no kernel `{name}`"))),
        None => Ok(()),
    }
}

/// Options for machine code if NVRTC knows the device, otherwise for PTX of the newest device that it knows, which the
/// graphics driver translates.
fn options((major, minor): (u32, u32)) -> Result<Vec<String>, Error> {
    let device = major * 10 + minor;
    let known = known_devices()?;
    let mut options = kernels::compiler_options((major, minor));
    if !known.contains(&device) {
        let newest = known.into_iter().filter(|known| *known < device).max();
        let old = || unavailable(format!("NVRTC knows no device as old as sm_{device}"));
        options[0] = format!("--gpu-architecture=compute_{}", newest.ok_or_else(old)?);
    }
    Ok(options)
}

fn compile(source: &Source, options: &[String]) -> Result<Vec<u8>, Error> {
    let wrong = |_| Error::Failed(format!("`{}.cu` has a zero byte", source.name));
    let text = CString::new(source.text).map_err(wrong)?;
    let name = CString::new(format!("{}.cu", source.name)).map_err(wrong)?;
    let program = nvrtc::result::create_program(&text, Some(&name)).map_err(nvrtc_error)?;
    let program = Program(program);
    // SAFETY: the program is alive, and so are text and name until it is dropped.
    let compiled = unsafe { nvrtc::result::compile_program(program.0, options) };
    compiled.map_err(|error| {
        let log = program.log();
        Error::Failed(format!(
            "NVRTC refuses `{}.cu`: {error}: {log}",
            source.name
        ))
    })?;
    let translated = options.iter().any(|it| it.contains("=compute_"));
    program.image(translated).map_err(nvrtc_error)
}

/// NVRTC's version.
pub(super) fn version() -> Result<(i32, i32), Error> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes to two live variables.
    let result = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    result.result().map_err(nvrtc_error)?;
    Ok((major, minor))
}

/// Compute capabilities for which NVRTC makes machine code, such as `90`.
fn known_devices() -> Result<Vec<u32>, Error> {
    let mut count: c_int = 0;
    // SAFETY: writes to a live variable.
    let result = unsafe { nvrtc::sys::nvrtcGetNumSupportedArchs(&raw mut count) };
    result.result().map_err(nvrtc_error)?;
    let mut devices: Vec<c_int> = vec![0; count.unsigned_abs() as usize];
    // SAFETY: writes as many numbers as the call before said, for which there is room.
    let result = unsafe { nvrtc::sys::nvrtcGetSupportedArchs(devices.as_mut_ptr()) };
    result.result().map_err(nvrtc_error)?;
    Ok(devices.into_iter().map(c_int::unsigned_abs).collect())
}

fn nvrtc_error(error: NvrtcError) -> Error {
    Error::Failed(format!("NVRTC: {error}"))
}

// === impl Program ===

impl Program {
    /// The compiled program: machine code, or PTX with its final zero.
    fn image(&self, translated: bool) -> Result<Vec<u8>, NvrtcError> {
        if translated {
            // SAFETY: the program is alive and was compiled.
            let ptx = unsafe { nvrtc::result::get_ptx(self.0) }?;
            return Ok(ptx.into_iter().map(c_char::cast_unsigned).collect());
        }
        let mut size = 0;
        // SAFETY: the program is alive and was compiled; writes to a live variable.
        unsafe { nvrtc::sys::nvrtcGetCUBINSize(self.0, &raw mut size) }.result()?;
        let mut image = vec![0u8; size];
        // SAFETY: writes as many bytes as the call before said, for which there is room.
        unsafe { nvrtc::sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()) }.result()?;
        Ok(image)
    }

    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { nvrtc::result::get_program_log(self.0) }.unwrap_or_default();
        let bytes = log.into_iter().map(c_char::cast_unsigned);
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, destroyed once.
        if let Err(error) = unsafe { nvrtc::result::destroy_program(self.0) } {
            tracing::warn!(%error, "NVRTC keeps a program");
        }
    }
}
