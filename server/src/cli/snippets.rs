//! Checks that the program accepts every command line in the documents.

use std::{fs, path::Path};

use clap::Parser;

use super::Arguments;

/// The words of a command line, quotes resolved; what stands behind `#` is left out.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '#') if words.last().is_some_and(String::is_empty) => break,
            (None, letter) if letter.is_whitespace() => words.push(String::new()),
            (_, letter) => {
                if let Some(word) = words.last_mut() {
                    word.push(letter);
                }
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The words of a command line that the program gets: what follows a pipe or a redirection is the shell's.
pub(super) fn ours(line: &str) -> Vec<String> {
    let shell = ["|", ">", "&", "&&", "2>&1"];
    let all = words(line).into_iter();
    all.take_while(|word| !shell.contains(&word.as_str()))
        .collect()
}

/// Lines of the code of a page that are commands of this program, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    let code = page.split("```").skip(1).step_by(2);
    let joined: Vec<String> = code.map(|block| block.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|block| block.lines());
    lines
        .map(|line| line.trim().trim_start_matches("$ "))
        .filter(|line| line.starts_with("sextant "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_of_the_documents_is_understood() {
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
            let parsed = Arguments::try_parse_from(ours(&command));
            let why = parsed.err().map(|error| error.to_string());
            assert_eq!(why, None, "{}: {command}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} commands were found");
}

#[test]
fn words_are_those_of_a_shell() {
    let line = r#"sextant query --input 'x="a b"' -a digits   # why"#;
    let wanted = ["sextant", "query", "--input", r#"x="a b""#, "-a", "digits"];
    assert_eq!(words(line), wanted);
}
