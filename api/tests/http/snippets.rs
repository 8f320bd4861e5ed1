//! Every request of the documents is one that the interface takes.

use std::{fs, path::Path};

use axum::{body::Body, http::Request};
use sextant_types::Code;

use crate::double::{Api, Recorder};

/// A request as `curl` would send it.
#[derive(Debug)]
struct CurlRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

/// The words of a command line, quotes resolved.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, letter) if letter.is_whitespace() => words.push(String::new()),
            (_, letter) => words.last_mut().expect("there is one").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The command lines with `curl` in the code of a page, with the lines in which a quote goes on.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let block = block.replace("\\\n", " ");
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let Some(at) = line.find("curl ") else {
                continue;
            };
            let mut command = line[at..].to_owned();
            while command.matches('\'').count() % 2 == 1 {
                let Some(more) = lines.next() else { break };
                command.push('\n');
                command.push_str(more);
            }
            commands.push(command);
        }
    }
    commands
}

/// The path of an address of this service.
fn path(word: &str) -> Option<String> {
    let rest = word.strip_prefix("http://").unwrap_or(word);
    let (host, path) = rest.split_once('/')?;
    let (host, port) = host.split_once(':')?;
    let is_ours = ["127.0.0.1", "localhost"].contains(&host) && port.parse::<u16>().is_ok();
    is_ours.then(|| format!("/{path}"))
}

/// What a command sends to the service; `None` where it asks somebody else or sends a file.
fn sent(command: &str) -> Option<CurlRequest> {
    let mut words = words(command).into_iter().skip(1);
    let mut sent = CurlRequest {
        method: String::new(),
        path: String::new(),
        headers: Vec::new(),
        body: String::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "-X" => sent.method = words.next()?,
            "-H" => {
                let header = words.next()?;
                let (name, value) = header.split_once(':')?;
                sent.headers
                    .push((name.to_owned(), value.trim().to_owned()));
            }
            "-d" | "--data-binary" => sent.body = words.next()?,
            "-T" | "-o" => drop(words.next()?),
            "-F" => return None,
            "|" | ">" => break,
            // In a shell's loop the command ends before the line does.
            word if word.ends_with(';') => {
                sent.path = path(word.trim_end_matches(';')).unwrap_or(sent.path);
                break;
            }
            word => sent.path = path(word).unwrap_or(sent.path),
        }
    }
    if command.contains(" -T ") || sent.path.is_empty() || sent.body.starts_with('@') {
        return None;
    }
    if sent.method.is_empty() {
        sent.method = if sent.body.is_empty() { "GET" } else { "POST" }.to_owned();
    }
    Some(sent)
}

#[tokio::test]
async fn every_request_of_the_documents_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("docs")).expect("the folder can be read");
    let pages = pages.map(|entry| entry.expect("an entry").path());
    let mut seen = 0;
    for page in pages.chain([root.join("README.md")]) {
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("a readable page");
        for command in commands(&text) {
            let Some(sent) = sent(&command) else {
                continue;
            };
            let api = Api::new(Recorder::answering()).await;
            let request = sent.headers.iter().fold(
                Request::builder()
                    .method(sent.method.as_str())
                    .uri(&sent.path),
                |request, (name, value)| request.header(name, value),
            );
            let request = request.body(Body::from(sent.body.clone()));
            let response = api.open(request.expect("a request")).await;
            let place = format!("{}: {command}", page.display());
            // What the command is about need not be there; how it asks must be right.
            if !response.status().is_success() {
                let body = axum::body::to_bytes(response.into_body(), usize::MAX);
                let body = body.await.expect("a whole body");
                let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
                for wrong in [
                    Code::RouteNotFound,
                    Code::MethodNotAllowed,
                    Code::InvalidRequest,
                    Code::InvalidTensor,
                ] {
                    assert_ne!(problem["code"], wrong.as_str(), "{place}: {problem}");
                }
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} requests were found");
}
