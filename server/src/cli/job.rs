//! `sextant job`: offline jobs over a file of records, and every job's state.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};
use sextant_objects::ObjectPath;
use sextant_types::JobId;

use super::{
    Client, Error, Output, follow,
    listing::or,
    output::{Table, cell, rows},
    targets::{Addressee, Targets},
};

/// Submit and follow jobs.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Answer every record of a file in the artefact store.
    Submit(Box<Submit>),
    /// Show one job.
    Show {
        /// Its id.
        id: JobId,
    },
    /// List jobs.
    List,
    /// Follow a job to its end; exit code 1 where it fails.
    Wait {
        /// Its id.
        id: JobId,
    },
    /// Stop a job; what it has committed stays.
    Cancel {
        /// Its id.
        id: JobId,
    },
}

/// Answer every record of a file in the artefact store.
#[derive(Debug, clap::Args)]
pub struct Submit {
    #[command(flatten)]
    addressee: Addressee,
    #[command(flatten)]
    targets: Targets,
    /// Path of the input in the artefact store: one JSON record per line.
    #[arg(long, value_name = "PATH")]
    input: String,
    /// Path of the output in the artefact store: one line per record.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// Records that are answered and committed together [default: as the server has it].
    #[arg(long, value_name = "RECORDS")]
    chunk: Option<u32>,
    /// Follow the job to its end.
    #[arg(long)]
    wait: bool,
}

impl Job {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Submit(submit) => submit.run(client, output).await,
            Self::List => list(client, output).await,
            Self::Wait { id } => wait(client, id.as_str(), output).await,
            Self::Show { id } => {
                let job: Value = client.get(&["v1", "jobs", id.as_str()]).await?;
                output.either(&job, || text(&job))
            }
            Self::Cancel { id } => {
                let path = ["v1", "jobs", id.as_str()];
                let job: Value = client.answer(client.request(Method::DELETE, &path)).await?;
                output.either(&job, || text(&job))
            }
        }
    }
}

impl Submit {
    async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        check_path("--input", &self.input)?;
        check_path("--output", &self.output)?;
        let mut request = Map::new();
        self.addressee.fill(&mut request);
        if let Some(targets) = self.targets.document() {
            request.insert("targets".to_owned(), targets);
        }
        request.insert("input".to_owned(), json!(self.input));
        request.insert("output".to_owned(), json!(self.output));
        if let Some(chunk) = self.chunk {
            request.insert("chunk".to_owned(), json!(chunk));
        }
        let job: Value = client
            .post(&["v1", "jobs"], &Value::Object(request))
            .await?;
        match self.wait {
            true => wait(client, &cell(&job, "/id"), output).await,
            false => output.either(&job, || text(&job)),
        }
    }
}

/// Refuses a path that the artefact store would refuse, before anything is sent: an address
/// library would silently drop its `..`.
pub fn check_path(flag: &str, path: &str) -> Result<(), Error> {
    ObjectPath::parse(path)
        .map(drop)
        .map_err(|error| Error::Usage(format!("`{flag}`: {error}")))
}

async fn wait(client: &Client, id: &str, output: Output) -> Result<(), Error> {
    let (job, document) = follow::follow(client, id, output.json).await?;
    output.either(&document, || text(&document))?;
    job.outcome()
}

async fn list(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "jobs"]).await?;
    let mut table = Table::new(&["job", "kind", "state", "#progress", "step"]);
    for document in rows(&answer, "/jobs") {
        let job = follow::read(document)?;
        let progress = job.progress_text();
        table.row(vec![job.id, job.kind, job.state, progress, job.step]);
    }
    output.either(&answer, || or(&table, "no jobs"))
}

fn text(document: &Value) -> String {
    let Ok(job) = follow::read(document) else {
        return document.to_string();
    };
    let mut lines = vec![
        format!("job       {}", job.id),
        format!("kind      {}", job.kind),
        format!("state     {}", job.state),
        format!("progress  {}", job.progress_text()),
    ];
    if !job.step.is_empty() {
        lines.push(format!("step      {}", job.step));
    }
    if let Some(error) = &job.error {
        lines.push(format!("error     [{}] {}", error.code, error.message));
    }
    lines.join("\n")
}
