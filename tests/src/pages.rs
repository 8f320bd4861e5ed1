//! The text that readers copy from the documents: fenced blocks, and the commands in them.

use std::process::{Command, Stdio};

/// A fenced block of a page.
#[derive(Debug)]
pub struct Block<'a> {
    /// The word after the fence: `sh`, `console`, `toml`, ..
    pub language: &'a str,
    /// The number of its first line in the page.
    pub line: usize,
    /// Its lines, without the fences.
    pub lines: Vec<&'a str>,
}

impl<'a> Block<'a> {
    /// All blocks of a page, in order.
    pub fn all(text: &'a str) -> Vec<Self> {
        let mut blocks = Vec::new();
        let mut open: Option<Self> = None;
        for (at, line) in text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Self {
                        language,
                        line: at + 2,
                        lines: Vec::new(),
                    });
                }
                (None, Some(block)) => block.lines.push(line),
                (None, None) => {}
            }
        }
        blocks
    }

    /// Its commands: the text after `$ ` in a `console` block, and everything in an `sh` block.
    pub fn commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        let mut command = String::new();
        for line in &self.lines {
            if command.is_empty() && self.language == "console" {
                let Some(begin) = line.strip_prefix("$ ") else {
                    continue;
                };
                command.push_str(begin);
            } else {
                command.push_str(line);
            }
            command.push('\n');
            if is_complete(&command) {
                commands.push(std::mem::take(&mut command));
            }
        }
        assert!(command.is_empty(), "a command without an end: {command}");
        commands
    }
}

fn is_complete(command: &str) -> bool {
    if command.trim_end_matches('\n').ends_with('\\') {
        return false;
    }
    let mut shell = Command::new("bash");
    let shell = shell.args(["-n", "-c", command]).stderr(Stdio::null());
    shell.status().expect("bash is there").success()
}
