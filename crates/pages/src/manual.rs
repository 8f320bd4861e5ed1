//! The page of an error code, from Markdown: headings, paragraphs and lists of text, code and links.

use askama::Template;

use crate::{Frame, Question, figures};

/// The meaning of a code, its causes and what to do.
#[derive(Debug, Template)]
#[template(path = "manual.html")]
pub struct Manual<'a> {
    /// The frame.
    pub frame: Frame,
    blocks: Vec<Block<'a>>,
}

/// A part of the page.
#[derive(Debug, PartialEq, Eq)]
enum Block<'a> {
    Title(Vec<Run<'a>>),
    Heading(Vec<Run<'a>>),
    Items(Vec<Vec<Run<'a>>>),
    Paragraph(Vec<Run<'a>>),
}

/// A part of a line. Only the text of links is shown, because their targets are not served.
#[derive(Debug, PartialEq, Eq)]
enum Run<'a> {
    Text(&'a str),
    Code(&'a str),
}

// === impl Manual ===

impl<'a> Manual<'a> {
    /// A page of such Markdown.
    pub fn new(frame: Frame, markdown: &'a str) -> Self {
        let blocks = markdown.split("\n\n").flat_map(blocks).collect();
        Self { frame, blocks }
    }
}

/// The blocks between two empty lines: a heading may be followed by what is below it.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let text = text.trim();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let heading = match (first.strip_prefix("# "), first.strip_prefix("## ")) {
        (Some(title), _) => Some(Block::Title(runs(title))),
        (None, Some(heading)) => Some(Block::Heading(runs(heading))),
        (None, None) => None,
    };
    let body = match heading {
        Some(_) => rest,
        None => text,
    };
    let body = match body.strip_prefix("- ") {
        _ if body.is_empty() => None,
        Some(items) => Some(Block::Items(items.split("\n- ").map(runs).collect())),
        None => Some(Block::Paragraph(runs(body))),
    };
    heading.into_iter().chain(body).collect()
}

fn runs(text: &str) -> Vec<Run<'_>> {
    let pieces = text.split('`').enumerate();
    let runs = pieces.flat_map(|(at, piece)| match at % 2 {
        0 => without_links(piece),
        _ => vec![Run::Code(piece)],
    });
    runs.filter(|run| *run != Run::Text("")).collect()
}

/// `[text](target)` as its text.
fn without_links(text: &str) -> Vec<Run<'_>> {
    let link = text.split_once("](");
    let Some(((before, name), (_, after))) =
        link.and_then(|(before, after)| Some((before.rsplit_once('[')?, after.split_once(')')?)))
    else {
        return vec![Run::Text(text)];
    };
    let mut runs = vec![Run::Text(before), Run::Text(name)];
    runs.extend(without_links(after));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_lists_and_paragraphs_are_told_apart() {
        let text = "# A `b` title\n\n## Cause\nOne line\nand [a page](../page.md) more.\n\n- first\n- `second`\n";
        let all: Vec<Block<'_>> = text.split("\n\n").flat_map(blocks).collect();
        let text = Run::Text;
        assert_eq!(
            all,
            [
                Block::Title(vec![text("A "), Run::Code("b"), text(" title")]),
                Block::Heading(vec![text("Cause")]),
                Block::Paragraph(vec![text("One line\nand "), text("a page"), text(" more.")]),
                Block::Items(vec![vec![text("first")], vec![Run::Code("second")]]),
            ]
        );
    }
}
