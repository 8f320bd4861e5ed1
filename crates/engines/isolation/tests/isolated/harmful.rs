//! An engine that does what its input says: it doubles what is positive, and is hard on its process
//! otherwise.

use std::{
    fs, hint,
    net::{TcpStream, UdpSocket},
    path::PathBuf,
    process,
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel};
use sextant_types::{
    DataType, NamedTensor, Optimization, Precision, Signature, Tensor, TensorSpec,
};

/// Ends the process as a fault in its code would.
pub const ABORTS: f32 = -1.0;

/// Never comes back.
pub const HANGS: f32 = -2.0;

/// Takes more memory than there is.
pub const FILLS: f32 = -3.0;

/// Descends for ever.
pub const DESCENDS: f32 = -4.0;

/// Ends the process as a script would.
pub const EXITS: f32 = -5.0;

/// Connects to the port of this machine that is what the input is below this, and tells whether it could.
pub const CONNECTS: f32 = -100_000.0;

/// Reads the file of the service's user that the model's file names, and writes one beside it; tells how
/// much of that it could.
pub const LOOKS: f32 = -6.0;

/// Makes a socket for UDP, and tells whether it could.
pub const SENDS: f32 = -7.0;

/// How long the model `slow` takes to load.
pub const SLOW: Duration = Duration::from_millis(500);

/// See the module.
pub struct HarmfulEngine;

struct Loaded(Signature, PathBuf);

impl Engine for HarmfulEngine {
    fn name(&self) -> &'static str {
        "harmful"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: vec![DataType::Fp32],
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        match &request.model.graph[..] {
            b"aborts" => process::abort(),
            b"hangs" => hang(),
            b"slow" => {
                let begun = Instant::now();
                while begun.elapsed() < SLOW {
                    hint::spin_loop();
                }
                Ok(Arc::new(Loaded(signature(), PathBuf::new())))
            }
            file => {
                let path = String::from_utf8_lossy(file).into_owned();
                Ok(Arc::new(Loaded(signature(), path.into())))
            }
        }
    }
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let value = inputs[0].tensor.to_vec::<f32>().unwrap()[0];
        match value {
            ABORTS => process::abort(),
            HANGS => hang(),
            FILLS => {
                let filled = vec![1u8; 100 << 30];
                assert_eq!(filled.iter().max(), Some(&1));
            }
            DESCENDS => assert_eq!(descend(1), 0),
            EXITS => process::exit(3),
            _ => {}
        }
        let answer = match value {
            LOOKS => {
                let reads = fs::read(&self.1).is_ok();
                let writes = fs::write(self.1.with_extension("new"), "new").is_ok();
                f32::from(u8::from(reads) + 2 * u8::from(writes))
            }
            SENDS => f32::from(u8::from(UdpSocket::bind("127.0.0.1:0").is_ok())),
            below if below < CONNECTS => {
                let port = (CONNECTS - below) as u16;
                f32::from(u8::from(TcpStream::connect(("127.0.0.1", port)).is_ok()))
            }
            value => value * 2.0,
        };
        Ok(vec![Tensor::from_elements(vec![1, 1], &[answer]).unwrap()])
    }

    fn weights_bytes(&self) -> u64 {
        100
    }
}

fn hang() -> ! {
    loop {
        hint::spin_loop();
    }
}

fn descend(depth: u64) -> u64 {
    let below = [depth; 64];
    match hint::black_box(&below)[0] {
        0 => 0,
        depth => descend(depth + 1) + hint::black_box(&below)[1],
    }
}

pub fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(1)],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}
