//! `sextant explain`: what the service decided, and why.

use std::time::{Duration, Instant};

use clap::value_parser;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Client, Error, Output,
    output::{cell, rows},
};
use sextant_types::time::unix_ms;

mod events;
mod text;

use events::Events;

/// Pause before a stream that was cut off is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// For so long a server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

/// What can be explained.
#[derive(Debug, clap::Subcommand)]
pub enum Explain {
    /// Show the desired and the actual number of workers, and what the autoscaler changed.
    ///
    /// The command first shows the pools of workers, with the desired and the actual number. Then it shows the last
    /// decisions, the newest at the end: their number, when they were made (UTC), the pool or the variant, how many
    /// workers were desired before and after, and why; what was asked for; what was not done, and what all workers
    /// would then cost. With `--json` it prints everything, including the variants.
    Scaling(Scaling),
}

/// Which decisions.
#[derive(Debug, clap::Args)]
pub struct Scaling {
    /// Most decisions to show; the service keeps 64.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=64))]
    limit: u32,
    /// Only decisions on this pool or variant.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Go on to show new decisions as they are made; with `--json` each is one line.
    #[arg(long)]
    follow: bool,
}

// === impl Explain ===

impl Explain {
    /// Asks the server.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let Self::Scaling(scaling) = self;
        scaling.run(client, output).await
    }
}

// === impl Scaling ===

impl Scaling {
    async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let overview: Value = client.get(&["v1", "scaling"]).await?;
        let decisions = self.list(client).await?;
        let both = json!({ "scaling": overview, "decisions": decisions });
        output.either(&both, || page(&overview, &decisions))?;
        if !self.follow {
            return Ok(());
        }
        // The user has seen the listed decisions; if there are none, the stream begins with the oldest kept one on this
        // subject.
        let known = decisions.first().and_then(number).unwrap_or_default();
        self.follow(client, output, known).await
    }

    /// The last decisions, newest first.
    async fn list(&self, client: &Client) -> Result<Vec<Value>, Error> {
        let limit = self.limit.to_string();
        let mut parameters = vec![("limit", limit.as_str())];
        parameters.extend(self.subject.as_deref().map(|name| ("subject", name)));
        let segments = ["v1", "scaling", "decisions"];
        let answer: Value = client.get_with(&segments, &parameters).await?;
        Ok(rows(&answer, "/decisions").to_vec())
    }

    /// Shows what follows the decision with the number `known`, until the server refuses to tell more or
    /// nobody reads it any more.
    async fn follow(&self, client: &Client, output: Output, mut known: u64) -> Result<(), Error> {
        let mut until = Instant::now() + PATIENCE;
        loop {
            let request = client.request(Method::GET, &["v1", "scaling", "events"]);
            let request = request.header("last-event-id", known);
            let mut stream = match client.send(request).await {
                Err(Error::Unreachable { .. } | Error::Http { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                answered => answered?,
            };
            let mut events = Events::default();
            // The stream ends with its server, or when something between cuts it off.
            while let Ok(Some(piece)) = stream.chunk().await {
                for decision in events.read(&piece) {
                    known = number(&decision).unwrap_or(known);
                    if self.is_asked_for(&decision) && !show(&decision, output)? {
                        return Ok(());
                    }
                }
            }
            until = Instant::now() + PATIENCE;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn is_asked_for(&self, decision: &Value) -> bool {
        let desired = self.subject.as_ref();
        desired.is_none_or(|desired| *desired == cell(decision, "/subject/name"))
    }
}

fn number(decision: &Value) -> Option<u64> {
    decision.get("number")?.as_u64()
}

/// Everything as text; `decisions` come newest first.
fn page(overview: &Value, decisions: &[Value]) -> String {
    let now_ms = unix_ms();
    let mut parts = vec![text::overview(overview)];
    let oldest_first = decisions.iter().rev();
    parts.extend(oldest_first.map(|decision| text::decision(decision, now_ms)));
    if decisions.is_empty() {
        parts.push("no decisions".to_owned());
    }
    parts.join("\n\n")
}

/// Whether somebody still reads it.
fn show(decision: &Value, output: Output) -> Result<bool, Error> {
    let text = match output.json {
        true => decision.to_string(),
        false => format!("\n{}", text::decision(decision, unix_ms())),
    };
    output.text_while_read(&text)
}
