//! The command line: every command but `serve`, `config`, `doctor`, `backup`, `restore`, `openapi` and `simulate` is an
//! HTTP client of a server.
//!
//! Answers go to standard output (a table or sentence, or JSON with `--json`), progress and errors to standard error.
//! Progress bars are drawn on a terminal only; elsewhere each step is a line.

use std::io;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use sextant_config::{self as config, Config};

use crate::{environment, logging, serve};

mod application;
mod artefact;
mod backup;
mod bench;
mod client;
mod completions;
#[cfg(test)]
mod docs;
mod doctor;
mod download;
mod error;
mod examples;
mod explain;
mod feedback;
mod follow;
mod health;
mod input;
mod inspect;
mod job;
mod key;
mod listing;
mod model;
mod output;
mod pipeline;
mod plan;
mod query;
mod register;
mod settings;
#[cfg(not(feature = "simulator"))]
#[path = "cli/simulate/absent.rs"]
mod simulate;
#[cfg(feature = "simulator")]
mod simulate;
#[cfg(test)]
mod snippets;
mod status;
mod storage;
mod targets;
mod top;
mod trust;
mod upload;
mod variants;
mod version;
mod worker;

pub use error::Error;
pub use output::tell;

use client::Client;
use output::Output;
use settings::Settings;

/// Model-less inference: clients say how fast and how accurate, not which model.
#[derive(Debug, Parser)]
#[command(name = "sextant", version, max_term_width = 100)]
pub struct Arguments {
    // Not by clap's `env`, by which every usage line shows what the environment gives as if it were asked for.
    /// Address of the server that client commands talk to [env: SEXTANT_SERVER] [default: http://127.0.0.1:8080].
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// Answer in JSON on standard output, errors in JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(Settings),
    /// Print the configuration that `serve` would run with, as TOML.
    Config(Inspect),
    Doctor(doctor::Doctor),
    /// Register a trained model and follow how its variants are made and measured.
    Register(Box<register::Register>),
    /// Ask an application, a model or a variant.
    Query(query::Query),
    /// Show how applications are served: rate, share of answers in time, refusals, where the time goes, cost.
    Status(status::Status),
    Top(top::Top),
    Bench(Box<bench::Bench>),
    /// List variants with their accuracy, latency and cost.
    Variants(variants::Variants),
    /// List models.
    Models,
    Inspect(inspect::InspectModel),
    /// List applications.
    Applications,
    /// Create, show, change and delete applications.
    #[command(subcommand)]
    Application(application::Application),
    /// Register, check, show, ask, measure, tune, list and delete pipelines.
    #[command(subcommand)]
    Pipeline(pipeline::Pipeline),
    /// Show and delete models.
    #[command(subcommand)]
    Model(model::Model),
    /// List, try, promote and roll back versions of models.
    #[command(subcommand)]
    Version(version::Version),
    /// Give, send, export and erase feedback, and show the accuracy that results from it.
    #[command(subcommand)]
    Feedback(feedback::Feedback),
    /// Submit and follow jobs.
    #[command(subcommand)]
    Job(job::Job),
    /// Put, get, list and delete files of the artefact store.
    #[command(subcommand)]
    Artefact(artefact::Artefact),
    /// Create, list and revoke API keys.
    #[command(subcommand)]
    Key(key::Key),
    /// Show what uses the artefact store, and remove what nobody needs.
    Storage(storage::Storage),
    Backup(backup::Backup),
    Restore(backup::Restore),
    /// List workers.
    Workers,
    /// Ask whether the server is ready; if not, say why and exit with 1.
    Health,
    /// Show what workers did, and drain a worker.
    #[command(subcommand)]
    Worker(worker::Worker),
    /// Show what the service decided, and why.
    #[command(subcommand)]
    Explain(explain::Explain),
    /// Print the OpenAPI document of the API.
    Openapi,
    /// Print the script with which a shell completes commands, flags and their values.
    Completions(completions::Completions),
    Plan(plan::Plan),
    Simulate(simulate::Simulate),
    /// Measure models for the process that has started this one.
    #[command(hide = true)]
    Measure(serve::Measure),
    /// Serve models for the process that has started this one.
    #[command(hide = true)]
    Host(serve::Host),
    /// Run Python steps of pipelines for the process that has started this one.
    #[command(hide = true)]
    Step(serve::Step),
}

/// Print the configuration that `serve` would run with, as TOML.
#[derive(Debug, clap::Args)]
struct Inspect {
    /// Describe every setting instead, in Markdown.
    #[arg(long)]
    describe: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Arguments {
    /// What this process was started with.
    ///
    /// # Errors
    /// Help that was asked for, and what is wrong with the arguments.
    pub fn of_process() -> Result<Self, clap::Error> {
        let matches = examples::add(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// Does what the command line says.
pub fn run(arguments: Arguments) -> Result<(), Error> {
    let output = Output {
        json: arguments.json,
    };
    match arguments.command {
        Command::Serve(settings) => {
            // This comes before the configuration is read, because a pipe can be read only once.
            let completed = environment::complete();
            run_service(settings.load()?, completed)
        }
        Command::Config(inspect) if inspect.describe => output.text(config::describe().trim_end()),
        Command::Config(inspect) => print_configuration(inspect.settings.load()?, output),
        Command::Doctor(doctor) => {
            environment::warn(environment::complete());
            doctor.run(output)
        }
        Command::Backup(backup) => backup.run(output),
        Command::Restore(restore) => restore.run(output),
        Command::Measure(measure) => measure.run().map_err(Error::Service),
        Command::Host(host) => host.run().map_err(Error::Service),
        Command::Step(step) => step.run().map_err(Error::Service),
        Command::Inspect(inspect) => {
            environment::warn(environment::complete());
            inspect.run(output)
        }
        Command::Openapi => output.value(&sextant_api::openapi()),
        Command::Completions(completions) => completions.run(output),
        Command::Simulate(simulate) if !simulate.asks_service() => simulate.run(output),
        Command::Plan(plan) if !plan.asks_service() => plan.run(output),
        command => {
            let client = Client::new(&server(arguments.server))?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(Error::Runtime)?;
            runtime.block_on(ask(command, &client, output))
        }
    }
}

async fn ask(command: Command, client: &Client, output: Output) -> Result<(), Error> {
    match command {
        Command::Register(register) => register.run(client, output).await,
        Command::Query(query) => query.run(client, output).await,
        Command::Status(status) => status.run(client, output).await,
        Command::Top(top) => top.run(client, output).await,
        Command::Bench(bench) => bench.run(client, output).await,
        Command::Variants(variants) => variants.run(client, output).await,
        Command::Models => listing::models(client, output).await,
        Command::Applications => listing::applications(client, output).await,
        Command::Application(application) => application.run(client, output).await,
        Command::Pipeline(pipeline) => pipeline.run(client, output).await,
        Command::Model(model) => model.run(client, output).await,
        Command::Version(version) => version.run(client, output).await,
        Command::Workers => listing::workers(client, output).await,
        Command::Health => health::run(client, output).await,
        Command::Worker(worker) => worker.run(client, output).await,
        Command::Explain(explain) => explain.run(client, output).await,
        Command::Feedback(feedback) => feedback.run(client, output).await,
        Command::Job(job) => job.run(client, output).await,
        Command::Artefact(artefact) => artefact.run(client, output).await,
        Command::Key(key) => key.run(client, output).await,
        Command::Storage(storage) => storage.run(client, output).await,
        Command::Simulate(simulate) => simulate.run_registered(client, output).await,
        Command::Plan(plan) => plan.run_registered(client, output).await,
        Command::Serve(_)
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Inspect(_)
        | Command::Openapi
        | Command::Completions(_)
        | Command::Measure(_)
        | Command::Host(_)
        | Command::Step(_) => Ok(()),
    }
}

/// The flag, the environment, or the local service.
fn server(flag: Option<String>) -> String {
    let named = flag.or_else(|| std::env::var("SEXTANT_SERVER").ok());
    let named = named.filter(|address| !address.is_empty());
    named.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned())
}

fn run_service(config: Config, completed: io::Result<()>) -> Result<(), Error> {
    logging::start(&config.log).map_err(Error::Service)?;
    environment::warn(completed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(config.runtime.threads()))
        .thread_name("sextant")
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(serve::run(config)).map_err(Error::Service)
}

fn print_configuration(config: Config, output: Output) -> Result<(), Error> {
    let config = config.resolved();
    if output.json {
        return output.value(&config);
    }
    let text = toml::to_string(&config).map_err(|error| {
        Error::from(config::Error::Unreadable {
            origin: "the configuration".to_owned(),
            reason: error.to_string(),
        })
    })?;
    output.text(text.trim_end())
}
