//! The process that converts a model: Python with this program's scripts, which report in lines of JSON.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

use super::{error, failed};
use crate::cli::{Error, output::tell};

/// The scripts, a package.
const SCRIPTS: [(&str, &str); 8] = [
    ("__init__.py", include_str!("__init__.py")),
    ("say.py", include_str!("say.py")),
    ("records.py", include_str!("records.py")),
    ("compare.py", include_str!("compare.py")),
    ("estimators.py", include_str!("estimators.py")),
    ("hugging_face.py", include_str!("hugging_face.py")),
    ("pytorch.py", include_str!("pytorch.py")),
    (
        "keras_and_tensorflow.py",
        include_str!("keras_and_tensorflow.py"),
    ),
];
const PACKAGE: &str = "sextant_convert";

/// Begins there. Nothing of the folder that the command runs in is found in place of a library.
const BEGIN: &str = "import sys; sys.path[:] = [it for it in sys.path if it]; sys.path.insert(0, sys.argv.pop(1)); \
                     import sextant_convert; sextant_convert.main()";

/// What is converted where.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// The interpreter.
    pub python: &'a Path,
    /// The file or the folder.
    pub model: &'a Path,
}

/// Why it does not convert, where it has told that.
#[derive(Debug, Default)]
struct ConversionFailure {
    missing: Option<String>,
    refused: Option<String>,
}

// === impl Child ===

impl Child<'_> {
    /// Runs it to its end, or ends it where the user interrupts; the scripts lie below the folder.
    ///
    /// # Errors
    /// When a package is missing, the model is refused, Python breaks, or the user interrupts.
    pub async fn run(&self, folder: &Path, request: &Value, is_quiet: bool) -> Result<(), Error> {
        let package = folder.join(PACKAGE);
        std::fs::create_dir(&package).map_err(failed(&package))?;
        for (name, script) in SCRIPTS {
            let path = package.join(name);
            std::fs::write(&path, script).map_err(failed(&path))?;
        }
        let mut child = Command::new(self.python)
            .args(["-c", BEGIN])
            .arg(folder)
            .arg(request.to_string())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed(self.python))?;
        // The child ends itself when this pipe is closed, also by the end of this process.
        let lifeline = child.stdin.take();
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let ended = async {
            let told = self.listen(out, is_quiet);
            tokio::join!(told, last_line(errors), child.wait())
        };
        let ended = tokio::select! {
            ended = ended => Some(ended),
            () = interruption() => None,
        };
        let Some((told, last, status)) = ended else {
            child.kill().await.map_err(failed(self.python))?;
            return Err(self.fail("conversion_interrupted", "was interrupted"));
        };
        drop(lifeline);
        let python = self.python.display();
        if let Some(packages) = told.missing {
            let names = packages.replace(' ', "`, `");
            let text = format!(
                "`{python}` lacks `{names}`: install there what is missing, `{python} -m pip install {packages}`"
            );
            return Err(error("conversion_package_missing", text));
        }
        if let Some(why) = told.refused {
            let text = format!("`{}`: {why}", self.model.display());
            return Err(error("conversion_refused", text));
        }
        match status.map_err(failed(self.python))?.success() {
            true => Ok(()),
            false => Err(self.fail("conversion_failed", &format!("broke: {last}"))),
        }
    }

    fn fail(&self, code: &'static str, what: &str) -> Error {
        let (model, python) = (self.model.display(), self.python.display());
        error(
            code,
            format!("the conversion of `{model}` in `{python}` {what}"),
        )
    }

    /// Tells the user what it tells.
    async fn listen(
        &self,
        out: Option<impl AsyncRead + Unpin>,
        is_quiet: bool,
    ) -> ConversionFailure {
        let mut told = ConversionFailure::default();
        let Some(out) = out else {
            return told;
        };
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            let text = |name: &str| said[name].as_str().map(str::to_owned);
            told.missing = told.missing.or_else(|| text("missing"));
            told.refused = told.refused.or_else(|| text("refused"));
            let converter = text("converter").map(|package| self.progress(&package, &said));
            let line = converter.or_else(|| text("did")).or_else(|| text("note"));
            if let Some(line) = line.filter(|_| !is_quiet) {
                tell(&line);
            }
        }
        told
    }

    fn progress(&self, package: &str, said: &Value) -> String {
        let (model, python) = (self.model.display(), self.python.display());
        let version = said["version"].as_str().unwrap_or_default();
        let with = format!("{package} {version}");
        format!("converting {model} with {} in {python} ..", with.trim_end())
    }
}

/// What a broken Python says at its end.
async fn last_line(errors: Option<impl AsyncRead + Unpin>) -> String {
    let mut last = "it ended without a word".to_owned();
    let Some(errors) = errors else {
        return last;
    };
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while errors
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|read| read > 0)
    {
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            last = text.trim().to_owned();
        }
        line.clear();
    }
    last
}

/// Ctrl-C, or the signal that ends a process.
async fn interruption() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = terminated => {}
        () = interrupted => {}
    }
}
