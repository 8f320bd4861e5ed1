//! Runs the program once, with limits for its time and its output.

use std::{io, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use sextant_types::DeviceTypeName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use super::{MAX_ANSWER_BYTES, Settings, away, refused};
use crate::Error;

/// Number of the last bytes of its standard error that are kept.
const LAST_WORDS_BYTES: usize = 4096;

/// Longest line of it that an error quotes, characters.
const LINE_CHARS: usize = 300;

/// Time for which the outputs of a program that has ended are still read. Its children may hold them open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The output of the program.
#[derive(Default)]
struct ProgramOutput {
    answer: Vec<u8>,
    last_words: Vec<u8>,
}

/// The answer of a program that has ended successfully.
pub(super) async fn call(
    settings: &Settings,
    verb: &str,
    pool: &DeviceTypeName,
    request: &impl Serialize,
) -> Result<Vec<u8>, Error> {
    let request = serde_json::to_vec(request).map_err(|error| away(verb, error))?;
    let mut child = command(settings, verb)
        .spawn()
        .map_err(|error| not_started(settings, pool, &error))?;
    let time = Duration::from_millis(settings.timeout_ms);
    let ended = match timeout(time, converse(&mut child, verb, &request)).await {
        Ok(ended) => ended,
        Err(_) => Err(Error::Away {
            provider: super::PROVIDER,
            reason: format!(
                "`{verb}` took longer than {} ms and was ended",
                settings.timeout_ms
            ),
        }),
    };
    if ended.is_err() {
        kill(&mut child).await;
    }
    ended
}

fn command(settings: &Settings, verb: &str) -> Command {
    let mut command = Command::new(&settings.program);
    command
        .args(&settings.arguments)
        .arg(verb)
        .envs(&settings.environment)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

async fn converse(child: &mut Child, verb: &str, request: &[u8]) -> Result<Vec<u8>, Error> {
    let mut said = ProgramOutput::default();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let talk = async {
            tokio::try_join!(
                tell(stdin, request),
                hear(stdout, &mut said.answer),
                hear_last(stderr, &mut said.last_words)
            )
        };
        tokio::pin!(talk);
        // The end of the process and the end of its outputs are awaited together: either may come first, and the second
        // may never come.
        let mut talked = false;
        loop {
            tokio::select! {
                result = &mut talk, if !talked => {
                    result.map_err(|error| refused(format!("`{verb}`: {error}")))?;
                    talked = true;
                }
                status = child.wait() => {
                    if !talked && let Ok(result) = timeout(LAST_WORDS, &mut talk).await {
                        result.map_err(|error| refused(format!("`{verb}`: {error}")))?;
                    }
                    break status;
                }
            }
        }
    };
    let status = status.map_err(|error| away(verb, error))?;
    match status.success() {
        true => Ok(said.answer),
        false => Err(refused(format!(
            "`{verb}` ended with {status}: {}",
            last_line(&said.last_words)
        ))),
    }
}

/// Writes the request. A program need not read it.
async fn tell(pipe: Option<impl AsyncWriteExt + Unpin>, request: &[u8]) -> io::Result<()> {
    let Some(mut pipe) = pipe else {
        return Ok(());
    };
    match pipe.write_all(request).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

async fn hear(pipe: Option<impl AsyncRead + Unpin>, answer: &mut Vec<u8>) -> io::Result<()> {
    let Some(pipe) = pipe else {
        return Ok(());
    };
    let mut pipe = pipe.take(MAX_ANSWER_BYTES as u64 + 1);
    while pipe.read_buf(answer).await? > 0 {}
    match answer.len() > MAX_ANSWER_BYTES {
        true => Err(io::Error::other(format!(
            "it answered more than {MAX_ANSWER_BYTES} bytes and was ended"
        ))),
        false => Ok(()),
    }
}

async fn hear_last(pipe: Option<impl AsyncRead + Unpin>, last: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut pipe) = pipe else {
        return Ok(());
    };
    while pipe.read_buf(last).await? > 0 {
        let surplus = last.len().saturating_sub(LAST_WORDS_BYTES);
        last.drain(..surplus);
    }
    Ok(())
}

fn last_line(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.unwrap_or("it said nothing on standard error");
    line.chars()
        .filter(|character| !character.is_control())
        .take(LINE_CHARS)
        .collect()
}

/// Ends the process and its children, and reaps it. Until then no other process or group has its id.
async fn kill(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // Fails only if no process is left.
        kill_process_group(pid, Signal::KILL).ok();
    }
    child.wait().await.ok();
}

fn not_started(settings: &Settings, pool: &DeviceTypeName, error: &io::Error) -> Error {
    let program = &settings.program;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Error::Settings {
            pool: pool.clone(),
            reason: format!("`{program}` cannot be started, name a program that can: {error}"),
        },
        _ => refused(format!("`{program}` was not started: {error}")),
    }
}
