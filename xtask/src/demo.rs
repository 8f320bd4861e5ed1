//! `cargo xtask demo`: from a fresh clone to four models that serve one application.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

mod load;

use crate::server::{self, Server};
use crate::{paths, provision, shell};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address and port to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Folder for the data [default: target/demo]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Show how workers come and go with the load, on emulated devices, in about five minutes
    #[arg(long)]
    load: bool,
    /// Stop once everything is registered and the queries were tried
    #[arg(long)]
    exit_after_ready: bool,
}

/// The example's models, cheapest first.
pub const MODELS: [&str; 4] = ["logistic", "mlp", "cnn-small", "cnn-large"];

/// Row 0 of `examples/digits/test.npz`: its pixels. The image shows the digit [`DIGIT`].
const IMAGE: &str = "0,0,10,16,15,1,0,0,0,0,16,12,5,0,0,0,0,2,16,9,4,0,0,0,0,4,16,16,16,14,2,0,\
    0,1,10,4,1,16,4,0,0,0,0,0,2,16,7,0,0,0,7,8,14,16,3,0,0,0,6,13,10,4,0,0";
/// The digit that the image of [`query`] shows.
pub const DIGIT: usize = 5;

/// A query to try: its purpose and its targets.
struct Try {
    about: &'static str,
    targets: Value,
}

/// Runs the demo until Ctrl-C.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.load {
        return load::run();
    }
    let provisioned = provision::runtime()?;
    let binary = server::build_quickly()?;
    check_free(arguments.listen)?;
    let data = arguments
        .data
        .clone()
        .unwrap_or_else(|| paths::target("demo"));
    let command = server::sextant(&binary, &provisioned, arguments.listen, &data);
    let server = Server::start("sextant", command, arguments.listen, "/health/ready")?;
    register(&binary, server.address)?;
    print_queries(&server)?;
    if arguments.exit_after_ready {
        return Ok(());
    }
    println!(
        "Sextant keeps running on http://{} until Ctrl-C.",
        server.address
    );
    let status = server.wait()?;
    shell::say(format!("sextant ended: {status}"));
    Ok(())
}

/// Registers the example's models with the command line client. Models that are already registered remain.
pub fn register(binary: &Path, address: SocketAddr) -> Result<()> {
    for model in MODELS {
        register_model(binary, address, ("digits", model))?;
    }
    Ok(())
}

/// Registers one of the example's models for an application.
pub fn register_model(
    binary: &Path,
    address: SocketAddr,
    (application, model): (&str, &str),
) -> Result<()> {
    let digits = paths::root().join("examples/digits");
    shell::run(
        shell::command(binary)
            .args(["--server", &format!("http://{address}"), "register"])
            .args([
                "--application",
                application,
                "--metric",
                "top1",
                "--name",
                model,
                "--model",
            ])
            .arg(digits.join(format!("{model}.onnx")))
            .arg("--validation")
            .arg(digits.join("validation.npz")),
    )
}

fn check_free(address: SocketAddr) -> Result<()> {
    if let Err(error) = TcpListener::bind(address) {
        bail!("cannot listen on `{address}` ({error}); choose another with `--listen`");
    }
    Ok(())
}

/// An answered query.
pub struct DemoQuery {
    about: &'static str,
    body: Value,
    variant: String,
    digit: Option<usize>,
}

/// Sends each of the demo's queries once.
pub fn ask(server: &Server) -> Result<Vec<DemoQuery>> {
    queries()
        .into_iter()
        .map(|Try { about, targets }| {
            let body = query(&targets);
            let answer = server.ask("/v1/queries", &body)?;
            let variant = answer["variant"]
                .as_str()
                .context("an answer names its variant")?;
            let digit = best(&answer["outputs"][0]["data"]);
            Ok(DemoQuery {
                about,
                body,
                variant: variant.to_owned(),
                digit,
            })
        })
        .collect()
}

fn print_queries(server: &Server) -> Result<()> {
    println!("\nOne application, four models, and what answers depends on the targets:\n");
    let asked = ask(server)?;
    for DemoQuery {
        about,
        body,
        variant,
        digit,
    } in &asked
    {
        let digit = digit.map_or_else(|| "nothing".to_owned(), |digit| digit.to_string());
        println!("# {about}: {variant} says {digit}, and it is {DIGIT}");
        println!(
            "curl -s http://{}/v1/queries -H 'content-type: application/json' -d '{body}'\n",
            server.address
        );
    }
    let mut variants: Vec<_> = asked.iter().map(|asked| &asked.variant).collect();
    variants.sort_unstable();
    variants.dedup();
    println!("{} different variants answered.", variants.len());
    Ok(())
}

fn queries() -> [Try; 3] {
    [
        Try {
            about: "quick and cheap",
            targets: json!({"latency_ms": 5, "min_accuracy": 0.9}),
        },
        Try {
            about: "accurate",
            targets: json!({"latency_ms": 500, "min_accuracy": 0.98}),
        },
        Try {
            about: "accurate and quick",
            targets: json!({"latency_ms": 5, "min_accuracy": 0.97}),
        },
    ]
}

/// A query of the application `digits` with these targets.
pub fn query(targets: &Value) -> Value {
    let pixels: Vec<u8> = IMAGE
        .split(',')
        .filter_map(|pixel| pixel.parse().ok())
        .collect();
    json!({
        "application": "digits",
        "targets": targets,
        "inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": pixels}],
    })
}

/// Position of the largest score.
pub fn best(scores: &Value) -> Option<usize> {
    let scores = scores
        .as_array()?
        .iter()
        .map(|score| score.as_f64().unwrap_or(f64::MIN));
    scores
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(digit, _)| digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_carry_a_whole_image() {
        for attempt in queries() {
            let body = query(&attempt.targets);
            assert_eq!(body["inputs"][0]["data"].as_array().unwrap().len(), 64);
        }
    }

    #[test]
    fn the_best_score_is_the_digit() {
        assert_eq!(best(&json!([-3.0, 7.5, 0.1])), Some(1));
        assert_eq!(best(&json!("none")), None);
    }
}
