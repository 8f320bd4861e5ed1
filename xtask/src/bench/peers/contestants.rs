//! The servers with which Sextant is compared, and how each is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::bed::{Bench, numbers};
use crate::bench::example;
use crate::bench::load::{Load, Sample};
use crate::bench::report::Report;
use crate::provision::python;
use crate::server::{self, Server};
use crate::{paths, shell};

/// A server under a kind of query.
#[derive(Clone)]
pub struct Contestant {
    /// Its name in figures.
    pub name: &'static str,
    /// The process that serves.
    pub server: Rc<Server>,
    /// The path that takes queries.
    pub path: &'static str,
    /// File with the query's body.
    pub body: PathBuf,
    /// The form in which it gets queries.
    pub way: Way,
}

/// The form in which a server gets queries.
#[derive(Clone)]
pub enum Way {
    /// In JSON.
    Json,
    /// As this number of bytes of JSON with the tensor behind them.
    Binary(usize),
    /// Over gRPC by this program, with the model by its name.
    Grpc(PathBuf, Model),
}

impl Contestant {
    /// Runs one load.
    pub fn load(&self, bench: &Bench<'_>, connections: usize) -> Result<Sample> {
        let load = Load {
            address: self.server.address,
            path: self.path,
            body: &self.body,
            connections,
            seconds: bench.arguments.seconds,
        };
        match &self.way {
            Way::Json => load.run(),
            Way::Binary(json_bytes) => load.run_binary(*json_bytes),
            Way::Grpc(program, model) => {
                let mut command = shell::command(program);
                command.args([&load.address.to_string(), model.name, model.input]);
                let elements: usize = model.row.iter().product();
                command.args([elements.to_string(), connections.to_string()]);
                command.arg(load.seconds.to_string());
                Sample::read(&shell::output(&mut command)?)
            }
        }
    }
}

/// The model that all servers serve.
#[derive(Clone, Copy)]
pub struct Model {
    /// Name of its file in `target/models`.
    pub name: &'static str,
    /// Name of its input.
    pub input: &'static str,
    /// Shape of a row.
    pub row: &'static [usize],
    /// Target of the application, milliseconds.
    pub latency_ms: f64,
}

impl Model {
    /// A query of its application, with targets.
    pub fn body(&self) -> String {
        format!(
            r#"{{"application":"{}","targets":{},{}}}"#,
            self.name,
            self.targets(),
            tensors(*self)
        )
    }

    /// The targets of a query. The other servers run the file as it is, so no less accurate variant may answer here.
    fn targets(&self) -> String {
        format!(
            r#"{{"latency_ms":{},"min_relative_accuracy":0.99}}"#,
            self.latency_ms
        )
    }
}

/// How a peer takes a query's row.
enum Body {
    /// As `inputs` of the Open Inference Protocol.
    Tensors,
    /// As nested arrays under `rows`.
    Rows,
}

/// A server from the package index.
pub struct Peer {
    name: &'static str,
    requirements: &'static str,
    environment: fn(&Path, &str) -> Result<PathBuf>,
    path: &'static str,
    ready: &'static str,
    body: Body,
    /// The one of 0, 1 and 2 ms with which it does best under both loads.
    wait_ms: &'static str,
    command: fn(&Path, SocketAddr, &Path) -> Result<Command>,
}

/// All peers that are measured. A peer's name is also the name of its package.
pub const PEERS: [Peer; 6] = [
    Peer {
        name: "mosec",
        requirements: include_str!("../../../bench/peers/requirements-mosec.txt"),
        environment: python::environment,
        path: "/inference",
        ready: "/",
        body: Body::Tensors,
        wait_ms: "1",
        command: |python, at, _| {
            let mut command = python::script(python, "bench/peers/mosec_server.py");
            let port = at.port().to_string();
            command.args(["--address", "127.0.0.1", "--port", &port]);
            command.args(["--log-level", "warning"]);
            Ok(command)
        },
    },
    Peer {
        name: "litserve",
        requirements: include_str!("../../../bench/peers/requirements-litserve.txt"),
        environment: python::environment,
        path: "/predict",
        ready: "/health",
        body: Body::Tensors,
        wait_ms: "1",
        command: |python, at, _| Ok(with_port(python, "litserve_server.py", at)),
    },
    Peer {
        name: "bentoml",
        requirements: include_str!("../../../bench/peers/requirements-bentoml.txt"),
        environment: python::environment,
        path: "/predict",
        ready: "/readyz",
        body: Body::Rows,
        wait_ms: "0",
        command: |python, at, _| {
            let mut command = shell::command(python);
            command.args(["-m", "bentoml", "serve", "bentoml_server:Peer"]);
            command.args(["--host", "127.0.0.1", "--port", &at.port().to_string()]);
            command.arg("--working-dir").arg(scripts());
            command.env("BENTOML_DO_NOT_TRACK", "True");
            Ok(command)
        },
    },
    Peer {
        name: "kserve",
        requirements: include_str!("../../../bench/peers/requirements-kserve.txt"),
        environment: python::environment,
        path: "/v2/models/peer/infer",
        ready: "/v2/models/peer/ready",
        body: Body::Tensors,
        wait_ms: "0",
        command: |python, at, _| Ok(with_port(python, "kserve_server.py", at)),
    },
    Peer {
        name: "mlserver",
        requirements: include_str!("../../../bench/peers/requirements-mlserver.txt"),
        environment: python::environment,
        path: "/v2/models/peer/infer",
        ready: "/v2/models/peer/ready",
        body: Body::Tensors,
        wait_ms: "1",
        command: mlserver,
    },
    Peer {
        name: "nvidia-pytriton",
        requirements: include_str!("../../../bench/peers/requirements-nvidia-pytriton.txt"),
        // Its runtime is built for one release of Python and reads the modules of the interpreter that starts it.
        environment: python::system_environment,
        path: "/v2/models/peer/infer",
        ready: "/v2/models/peer/ready",
        body: Body::Tensors,
        wait_ms: "0",
        command: |python, at, _| Ok(with_port(python, "triton_server.py", at)),
    },
];

// === impl Peer ===

impl Peer {
    /// The peer of this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        let found = PEERS.iter().find(|peer| peer.name == name);
        found.with_context(|| format!("there is no peer `{name}`"))
    }

    /// The Python interpreter that has its package, which is installed if it is missing.
    pub fn interpreter(&self, cache: &Path) -> Result<PathBuf> {
        (self.environment)(&cache.join("peers").join(self.name), self.requirements)
    }

    /// Starts the peer with an ONNX file as the model `peer` and waits until it is ready. Writes the files that the
    /// peer needs into `folder`.
    pub fn start(
        &self,
        interpreter: &Path,
        model: &Path,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Server> {
        self.start_with(&[], interpreter, model, (address, folder))
    }

    fn start_with(
        &self,
        environment: &[(&str, String)],
        interpreter: &Path,
        model: &Path,
        (address, folder): (SocketAddr, &Path),
    ) -> Result<Server> {
        let mut command = (self.command)(interpreter, address, folder)?;
        command.env("MODEL", model).env("WAIT_MS", self.wait_ms);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Server::start(self.name, command, address, self.ready)
    }
}

fn scripts() -> PathBuf {
    paths::root().join("xtask/bench/peers")
}

fn with_port(python: &Path, script: &str, at: SocketAddr) -> Command {
    let mut command = python::script(python, &format!("bench/peers/{script}"));
    command.args(["--port", &at.port().to_string()]);
    command
}

/// MLServer reads its settings from a folder.
fn mlserver(python: &Path, at: SocketAddr, folder: &Path) -> Result<Command> {
    let folder = folder.join("mlserver");
    std::fs::create_dir_all(&folder)?;
    let settings = json!({
        "host": "127.0.0.1",
        "http_port": at.port(),
        "grpc_port": server::free_address()?.port(),
        "metrics_port": server::free_address()?.port(),
        "parallel_workers": 0,
        "debug": false,
    });
    let model = json!({
        "name": "peer",
        "implementation": "mlserver_runtime.Peer",
        "max_batch_size": 32,
        "max_batch_time": 0.001,
    });
    std::fs::write(folder.join("settings.json"), settings.to_string())?;
    std::fs::write(folder.join("model-settings.json"), model.to_string())?;
    let mut command = shell::command(python);
    command.args(["-c", "from mlserver.cli import main; main()", "start"]);
    command.arg(&folder).env("PYTHONPATH", scripts());
    Ok(command)
}

/// Starts Sextant with one thread and the peers that can be installed, all with the model.
pub fn start(bench: &Bench<'_>, report: &mut Report, model: Model) -> Result<Vec<Contestant>> {
    let mut contestants = vec![sextant(bench, report, model)?];
    for peer in &PEERS {
        match start_peer(bench, report, (peer, &[]), model) {
            Ok(contestant) => contestants.push(contestant),
            Err(error) => {
                shell::say(format!("{} is left out: {error:#}", peer.name));
                report.version(peer.name, "left out, it could not be started");
            }
        }
    }
    Ok(contestants)
}

/// Starts Sextant with one thread.
pub fn sextant(bench: &Bench<'_>, report: &mut Report, model: Model) -> Result<Contestant> {
    let server = Rc::new(bench.sextant(model.name, &["worker.cores=1"])?);
    bench.register(&server, model.name)?;
    crate::bench::main_job::warm(&server, model.name)?;
    let body = model.body();
    let answer = server.ask("/v1/queries", &serde_json::from_str(&body)?)?;
    let variant = answer["variant"].as_str();
    let variant = variant.context("an answer tells its `variant`")?;
    report.version(&format!("{} by", model.name), variant);
    Ok(Contestant {
        name: "sextant",
        server,
        path: "/v1/queries",
        body: bench.write(&format!("{}-sextant.json", model.name), &body)?,
        way: Way::Json,
    })
}

/// Starts a peer with these variables in its environment.
pub fn start_peer(
    bench: &Bench<'_>,
    report: &mut Report,
    (peer, environment): (&Peer, &[(&str, String)]),
    model: Model,
) -> Result<Contestant> {
    let address = server::free_address()?;
    let file = bench.models.join(format!("{}.onnx", model.name));
    let cache = &bench.provisioned.cache;
    let interpreter = peer.interpreter(cache)?;
    report.version(peer.name, python::version(&interpreter, peer.name)?);
    let at = (address, &*bench.folder);
    let server = peer.start_with(environment, &interpreter, &file, at)?;
    let body = match peer.body {
        Body::Tensors => format!("{{{}}}", tensors(model)),
        Body::Rows => format!(r#"{{"rows":[{}]}}"#, nested(model.row)),
    };
    let answer = server
        .connect()?
        .post(peer.path, &serde_json::from_str(&body)?)?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 200, "it answers {}: {text}", answer.status);
    Ok(Contestant {
        name: peer.name,
        server: Rc::new(server),
        path: peer.path,
        body: bench.write(&format!("{}-{}.json", model.name, peer.name), &body)?,
        way: Way::Json,
    })
}

/// Starts an HTTP server that parses the query and sends it back.
pub fn floor(body: &Path) -> Result<Contestant> {
    let address = server::free_address()?;
    let mut command = shell::command(example("xtask", "floor")?);
    command.arg(address.to_string());
    let server = Server::start("the axum floor", command, address, "/health/ready")?;
    Ok(Contestant {
        name: "floor",
        server: Rc::new(server),
        path: "/v1/queries",
        body: body.to_owned(),
        way: Way::Json,
    })
}

/// Sextant and the floor, with tensors in binary form in queries and answers.
pub fn binary(
    bench: &Bench<'_>,
    model: Model,
    [sextant, floor]: [&Contestant; 2],
) -> Result<[Contestant; 2]> {
    let elements: usize = model.row.iter().product();
    let shape: Vec<String> = model.row.iter().map(usize::to_string).collect();
    let json = format!(
        r#"{{"application":"{}","targets":{},"binary_outputs":true,"inputs":[{{"name":"{}","shape":[1,{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}]}}"#,
        model.name,
        model.targets(),
        model.input,
        shape.join(","),
        4 * elements,
    );
    let numbers = (0..elements).map(|index| (index % 17) as f32 / 17.0);
    let body: Vec<u8> = json
        .bytes()
        .chain(numbers.flat_map(f32::to_le_bytes))
        .collect();
    let file = bench.folder.join(format!("{}.bin", model.name));
    std::fs::write(&file, body)?;
    let of = |name, server: &Rc<Server>, path| Contestant {
        name,
        server: Rc::clone(server),
        path,
        body: file.clone(),
        way: Way::Binary(json.len()),
    };
    Ok([
        of("sextant-binary", &sextant.server, "/v1/queries"),
        of("floor-binary", &floor.server, "/binary"),
    ])
}

/// Sextant and a bare tonic server over gRPC.
pub fn grpc(bench: &Bench<'_>, model: Model, sextant: &Contestant) -> Result<[Contestant; 2]> {
    let address = server::free_address()?;
    let mut command = shell::command(example("xtask", "floor_grpc")?);
    command.arg(address.to_string());
    let floor = Server::start_listening("the tonic floor", command, address)?;
    let program = example("xtask", "load_grpc")?;
    let of = |name, server: Rc<Server>| Contestant {
        name,
        server,
        path: "",
        body: bench.folder.clone(),
        way: Way::Grpc(program.clone(), model),
    };
    Ok([
        of("sextant-grpc", Rc::clone(&sextant.server)),
        of("floor-grpc", Rc::new(floor)),
    ])
}

/// The member `inputs` with one row.
fn tensors(model: Model) -> String {
    let shape: Vec<String> = model.row.iter().map(usize::to_string).collect();
    format!(
        r#""inputs":[{{"name":"{}","shape":[1,{}],"datatype":"FP32","data":[{}]}}]"#,
        model.input,
        shape.join(","),
        numbers(model.row.iter().product()),
    )
}

/// The row's numbers as nested arrays.
fn nested(row: &[usize]) -> String {
    let numbers = numbers(row.iter().product());
    let mut parts: Vec<String> = numbers.split(',').map(str::to_owned).collect();
    for size in row.iter().rev() {
        let groups = parts.chunks(*size);
        parts = groups
            .map(|group| format!("[{}]", group.join(",")))
            .collect();
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_nested_by_their_shape() {
        let nested: serde_json::Value = serde_json::from_str(&nested(&[2, 3])).unwrap();
        let rows = nested.as_array().unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.as_array().unwrap().len() == 3));
    }

    #[test]
    fn every_peer_has_exact_versions_and_the_same_engine() {
        for peer in &PEERS {
            let pins = peer
                .requirements
                .lines()
                .filter(|line| !line.starts_with('#'));
            assert!(pins.clone().all(|pin| pin.contains("==")), "{}", peer.name);
            let has = |package: &str| pins.clone().any(|pin| pin.starts_with(package));
            assert!(has("onnxruntime==1.31.1"), "{}", peer.name);
            assert!(has(&format!("{}==", peer.name)), "{}", peer.name);
        }
    }
}
