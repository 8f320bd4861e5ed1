//! Follows a job to its end, with a bar on a terminal and a line for each step elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;

use super::{Client, Error, output::tell};

/// Time between two looks at a job.
const PERIOD: Duration = Duration::from_millis(200);

/// For so long a server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is shown of a job.
#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// `register`, `extend` or `offline`.
    pub kind: String,
    /// `queued`, `running`, `paused`, `succeeded`, `failed`, `cancelled`.
    pub state: String,
    /// What it is doing.
    #[serde(default)]
    pub step: String,
    /// How far it is.
    #[serde(default)]
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<Failure>,
}

/// How far a job is.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Progress {
    /// Steps or records that are done.
    pub done: u64,
    /// Steps or records in all; 0 while that is not known.
    pub total: u64,
    /// Records of an offline job that could not be answered.
    pub failed: Option<u64>,
}

/// Why a job failed.
#[derive(Debug, Clone, Deserialize)]
pub struct Failure {
    /// A stable code.
    pub code: String,
    /// What happened.
    pub message: String,
}

enum Display {
    Bar(ProgressBar),
    Lines(String),
}

impl Job {
    /// Whether nothing will happen to it any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// `12/40`, or `-` while the total is not known.
    pub fn progress_text(&self) -> String {
        match self.progress.total {
            0 => "-".to_owned(),
            total => format!("{}/{total}", self.progress.done),
        }
    }

    /// Records that could not be answered.
    pub fn failed_records(&self) -> u64 {
        self.progress.failed.unwrap_or(0)
    }

    /// An error where the job ended without success.
    pub fn outcome(&self) -> Result<(), Error> {
        if matches!(self.state.as_str(), "failed" | "cancelled") {
            return Err(Error::Job {
                job: self.id.clone(),
                state: self.state.clone(),
                code: self.error.as_ref().map(|error| error.code.clone()),
                message: self.error.as_ref().map(|error| error.message.clone()),
            });
        }
        Ok(())
    }
}

/// Looks at the job until it is over; the last document is returned whatever its state. Says which job it is, and
/// on Ctrl-C that it goes on.
pub async fn follow(client: &Client, id: &str, quiet: bool) -> Result<(Job, Value), Error> {
    if !quiet {
        tell(&format!("job `{id}`"));
    }
    tokio::select! {
        followed = to_its_end(client, id, quiet) => followed,
        Ok(()) = tokio::signal::ctrl_c() => Err(Error::Interrupted { job: id.to_owned() }),
    }
}

/// A job's document. A server that restarts is waited for, and one that refuses for now: the job goes on where it was.
async fn look(client: &Client, id: &str) -> Result<Value, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let error = match client.get(&["v1", "jobs", id]).await {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let pause = match &error {
            Error::Unreachable { .. } | Error::Http { .. } => Some(PERIOD),
            // The key's rate is limited.
            Error::Problem(problem) => problem.retry_after().map(|it| it.max(PERIOD)),
            _ => None,
        };
        match pause.filter(|pause| Instant::now() + *pause < until) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(error),
        }
    }
}

async fn to_its_end(client: &Client, id: &str, quiet: bool) -> Result<(Job, Value), Error> {
    let mut display = Display::new(quiet);
    loop {
        let document = look(client, id).await?;
        let job = read(&document)?;
        display.show(&job);
        if job.is_over() {
            display.finish();
            return Ok((job, document));
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// A job document as far as it is shown.
pub fn read(document: &Value) -> Result<Job, Error> {
    Job::deserialize(document).map_err(|error| Error::Answer {
        reason: format!("no job document: {error}"),
    })
}

// === impl Display ===

impl Display {
    fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Bar(ProgressBar::hidden());
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines(String::new());
        }
        let style = ProgressStyle::with_template(
            "{spinner} {msg:60!} [{bar:24}] {pos}/{len} {elapsed_precise}",
        );
        let bar =
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::Bar(bar)
    }

    fn show(&mut self, job: &Job) {
        let step = match job.step.as_str() {
            "" => job.state.clone(),
            step => format!("{}: {step}", job.state),
        };
        match self {
            Self::Bar(bar) => {
                bar.set_length(job.progress.total.max(1));
                bar.set_position(job.progress.done);
                bar.set_message(step);
            }
            Self::Lines(last) if *last != step => {
                tell(&format!("{} {step}", job.progress_text()));
                *last = step;
            }
            Self::Lines(_) => {}
        }
    }

    fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn a_look_that_is_refused_for_now_is_taken_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let later = json!({"code": "rate_limited", "detail": "later", "retry_after_ms": 1});
        let over = json!({"id": "j", "kind": "register", "state": "succeeded"});
        let serving = tokio::spawn(async move {
            for (status, document) in [("429 Later", later), ("200 OK", over)] {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let read = stream.read(&mut [0; 4096]).await.expect("a request");
                assert!(read > 0);
                let body = document.to_string();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                     connection: close\r\n\r\n{body}",
                    body.len()
                );
                let written = stream.write_all(answer.as_bytes()).await;
                written.expect("it waits");
            }
        });
        let client = Client::new(&format!("http://{address}")).expect("an address");
        let (job, _) = follow(&client, "j", true).await.expect("it is followed");
        assert_eq!(job.state, "succeeded");
        serving.await.expect("both were asked for");
    }
}
