//! `sextant artefact`: files of the artefact store.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{
    Client, Error, Output,
    download::Download,
    job::check_path,
    listing::or,
    output::{Table, bytes, bytes_cell, cell, rows},
    upload::{self, Upload},
};

/// Put, get, list and delete files of the artefact store.
#[derive(Debug, Subcommand)]
pub enum Artefact {
    /// Store a file.
    Put {
        /// The local file.
        file: PathBuf,
        /// Its path in the artefact store.
        path: String,
    },
    /// Fetch a file.
    Get {
        /// Its path in the artefact store.
        path: String,
        /// The local file; if it is left out, standard output.
        file: Option<PathBuf>,
    },
    /// List files.
    List {
        /// Only paths that begin with this.
        prefix: Option<String>,
    },
    /// Delete a file.
    Delete {
        /// Its path in the artefact store.
        path: String,
    },
}

impl Artefact {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Put { file, path } => put(client, &file, &path, output).await,
            Self::Get { path, file } => get(client, &path, file, output).await,
            Self::List { prefix } => list(client, prefix.as_deref(), output).await,
            Self::Delete { path } => {
                let segments = segments(&path)?;
                client
                    .send(client.request(Method::DELETE, &segments))
                    .await?;
                output.either(&json!({"deleted": path}), || format!("deleted `{path}`"))
            }
        }
    }
}

fn segments(path: &str) -> Result<Vec<&str>, Error> {
    check_path("path", path)?;
    Ok(["v1", "artefacts"]
        .into_iter()
        .chain(path.split('/'))
        .collect())
}

async fn put(client: &Client, file: &Path, path: &str, output: Output) -> Result<(), Error> {
    let segments = segments(path)?;
    let upload = Upload::open(file).await?;
    let length = upload.length();
    let bar = match output.json {
        true => indicatif::ProgressBar::hidden(),
        false => upload::bar(path, length),
    };
    let request = client
        .request(Method::PUT, &segments)
        .header(header::CONTENT_LENGTH, length)
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .body(upload.body(&bar));
    let stored = client.send(request).await;
    bar.finish_and_clear();
    stored?;
    let stored = json!({"path": path, "size_bytes": length});
    output.either(&stored, || format!("stored `{path}`, {}", bytes(length)))
}

async fn get(
    client: &Client,
    path: &str,
    file: Option<PathBuf>,
    output: Output,
) -> Result<(), Error> {
    let segments = segments(path)?;
    let mut response = client.send(client.request(Method::GET, &segments)).await?;
    let mut target = match &file {
        Some(file) => Some(Download::to(file).await?),
        None => None,
    };
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| client.failed(error))?
    {
        match &mut target {
            Some(target) => target.write(&chunk).await?,
            None => output.bytes(&chunk)?,
        }
    }
    match target {
        Some(target) => target.finish().await,
        None => Ok(()),
    }
}

async fn list(client: &Client, prefix: Option<&str>, output: Output) -> Result<(), Error> {
    let artefacts = Value::Array(pages(client, prefix.unwrap_or_default()).await?);
    output.either(&json!({"artefacts": artefacts}), || {
        let mut table = Table::new(&["path", "#size"]);
        for artefact in rows(&artefacts, "") {
            table.row(vec![
                cell(artefact, "/path"),
                bytes_cell(artefact, "/size_bytes"),
            ]);
        }
        or(&table, "no artefacts")
    })
}

async fn pages(client: &Client, prefix: &str) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut parameters = vec![("prefix", prefix)];
        parameters.extend(after.as_deref().map(|after| ("after", after)));
        let page: Value = client.get_with(&["v1", "artefacts"], &parameters).await?;
        all.extend_from_slice(rows(&page, "/artefacts"));
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            return Ok(all);
        }
    }
}
