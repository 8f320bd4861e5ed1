//! `sextant job`: offline jobs over a file of records, and every job's state.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};
use sextant_objects::ObjectPath;
use sextant_types::{JobId, offline::check_webhook};

use super::{
    Client, Error, Output, follow,
    listing::or,
    output::{Table, cell, rows},
    targets::{Addressee, Targets},
};

/// Most jobs that the service tells at once.
const MOST_OF_A_PAGE: &str = "1000";

/// How files of records are read.
const READ: [&str; 6] = ["jsonl", "npy", "npz", "csv", "parquet", "file"];

/// How they are written.
const WRITTEN: [&str; 5] = ["jsonl", "npy", "npz", "csv", "parquet"];

/// Submit and follow jobs.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Answer every record of a file, or of all files of a folder, in the artefact store.
    Submit(Box<Submit>),
    /// Show one job.
    Show {
        /// Its id.
        id: JobId,
    },
    /// List jobs.
    List,
    /// Follow a job to its end and show its progress; the exit code is 1 if the job fails.
    #[command(visible_alias = "wait")]
    Follow {
        /// Its id.
        id: JobId,
        /// Also exit with 1 if records could not be answered.
        #[arg(long)]
        fail_on_errors: bool,
    },
    /// Stop a job; output files that it has not finished do not appear.
    Cancel {
        /// Its id.
        id: JobId,
    },
    /// Delete an ended job and its record; its output stays.
    Delete {
        /// Its id.
        id: JobId,
    },
}

/// Answer every record of a file, or of all files of a folder, in the artefact store.
#[derive(Debug, clap::Args)]
pub struct Submit {
    #[command(flatten)]
    addressee: Addressee,
    #[command(flatten)]
    targets: Targets,
    /// Path of the input in the artefact store: JSONL, NPY, NPZ, CSV or Parquet, or a picture or a text that is one
    /// record. If the path ends in `/`, all files below it.
    #[arg(long, value_name = "PATH")]
    input: String,
    /// Path of the output in the artefact store. If the path ends in `/`, a file for each input file.
    #[arg(long, value_name = "PATH")]
    output: String,
    /// The format of the input; `file` if each file is one record [default: by its suffix].
    #[arg(long, value_name = "FORMAT", value_parser = READ)]
    format: Option<String>,
    /// The format of the output [default: by its suffix].
    #[arg(long, value_name = "FORMAT", value_parser = WRITTEN)]
    output_format: Option<String>,
    /// Address to which the service sends a message when the job has ended.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Records that are answered and committed together [default: the server's default].
    #[arg(long, value_name = "RECORDS")]
    chunk: Option<u32>,
    /// Follow the job to its end.
    #[arg(long)]
    wait: bool,
    /// Also exit with 1 if records could not be answered.
    #[arg(long, requires = "wait")]
    fail_on_errors: bool,
}

impl Job {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Submit(submit) => submit.run(client, output).await,
            Self::List => list(client, output).await,
            Self::Follow { id, fail_on_errors } => {
                follow_to_the_end(client, (id.as_str(), fail_on_errors), output).await
            }
            Self::Delete { id } => {
                let path = ["v1", "jobs", id.as_str()];
                let forget = [("forget", "true")];
                let request = client.request_with(Method::DELETE, &path, &forget);
                client.send(request).await?;
                let deleted = json!({"deleted": id});
                output.either(&deleted, || format!("job `{id}` is deleted"))
            }
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
        check_path("--input", without_slash(&self.input))?;
        check_path("--output", without_slash(&self.output))?;
        if let Some(Err(reason)) = self.webhook.as_deref().map(check_webhook) {
            return Err(Error::Usage(format!("`--webhook`: {reason}")));
        }
        let mut request = Map::new();
        self.addressee.fill(&mut request);
        self.targets.fill(&mut request);
        request.insert("input".to_owned(), json!(self.input));
        request.insert("output".to_owned(), json!(self.output));
        if let Some(chunk) = self.chunk {
            request.insert("chunk".to_owned(), json!(chunk));
        }
        let others = [
            ("format", self.format),
            ("output_format", self.output_format),
            ("webhook", self.webhook),
        ];
        for (name, value) in others {
            if let Some(value) = value {
                request.insert(name.to_owned(), json!(value));
            }
        }
        let job: Value = client
            .post(&["v1", "jobs"], &Value::Object(request))
            .await?;
        match self.wait {
            true => {
                let id = cell(&job, "/id");
                follow_to_the_end(client, (&id, self.fail_on_errors), output).await
            }
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

/// A path that means a folder ends in a slash, which the path of a file may not.
fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

async fn follow_to_the_end(
    client: &Client,
    (id, fail_on_errors): (&str, bool),
    output: Output,
) -> Result<(), Error> {
    let (job, document) = follow::follow(client, id, output.json).await?;
    output.either(&document, || text(&document))?;
    job.outcome()?;
    match job.failed_records() {
        failed if failed > 0 && fail_on_errors => Err(Error::FailedRecords {
            job: job.id,
            failed,
        }),
        _ => Ok(()),
    }
}

/// All jobs, the newest first.
async fn pages(client: &Client) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut parameters = vec![("limit", MOST_OF_A_PAGE)];
        parameters.extend(after.as_deref().map(|after| ("after", after)));
        let page: Value = client.get_with(&["v1", "jobs"], &parameters).await?;
        all.extend_from_slice(rows(&page, "/jobs"));
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            return Ok(all);
        }
    }
}

async fn list(client: &Client, output: Output) -> Result<(), Error> {
    let answer = json!({"jobs": pages(client).await?});
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
    if job.failed_records() > 0 {
        lines.push(format!("failed    {}", job.failed_records()));
    }
    // The last step of a job says nothing once the job is over.
    if !job.step.is_empty() && !job.is_over() {
        lines.push(format!("step      {}", job.step));
    }
    if let Some(error) = &job.error {
        lines.push(format!("error     [{}] {}", error.code, error.message));
    }
    lines.join("\n")
}
