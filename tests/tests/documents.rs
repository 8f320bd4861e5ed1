//! Everything that the documents name exists.

use sextant_tests::{documents, root};

/// Pieces of `text` between `open` and `close`.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split(close).next())
}

/// Text in backticks that looks like a path of this repository: it begins with a folder at its root.
fn quoted_paths(text: &str) -> Vec<&str> {
    let fenced = |part: &(usize, &str)| part.0.is_multiple_of(2);
    text.split("```")
        .enumerate()
        .filter(fenced)
        .flat_map(|(_, prose)| prose.split('`').skip(1).step_by(2))
        .filter(|word| {
            let first = word.split('/').next().unwrap_or_default();
            word.contains('/') && !first.is_empty() && root().join(first).is_dir()
        })
        .filter(|word| !word.contains(['{', '*', ' ', '<']))
        .filter(|word| !word.starts_with("target/"))
        .collect()
}

/// Targets of links that stay in the repository.
fn links(text: &str) -> Vec<&str> {
    between(text, "](", ')')
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or(target))
        .collect()
}

#[test]
fn every_path_in_the_documents_exists() {
    for document in documents() {
        let document = root().join(document);
        let text = std::fs::read_to_string(&document).expect("a readable page");
        let folder = document.parent().expect("a page lies in a folder");
        let quoted = quoted_paths(&text).into_iter();
        let linked = links(&text).into_iter();
        let missing: Vec<&str> = quoted
            .filter(|path| !root().join(path).exists())
            .chain(linked.filter(|path| !folder.join(path).exists()))
            .collect();
        let name = document.display();
        assert!(
            missing.is_empty(),
            "{name} names what does not exist: {missing:?}"
        );
    }
}

#[test]
fn the_architecture_names_every_crate() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the document");
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let members = between(&manifest, "members = [", ']')
        .next()
        .expect("members");
    for member in members
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|name| !name.is_empty())
    {
        let named = text.contains(&format!("`{member}`")) || text.contains(&format!("`{member}/`"));
        assert!(named, "ARCHITECTURE.md does not mention `{member}`");
    }
}
