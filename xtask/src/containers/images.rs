//! The needed images that are not built here. They are pulled, or, if no registry can be reached, made from packages
//! under the same names.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::engine;
use super::stand_ins::{self, Recipe};
use crate::shell::say;

/// The base image of the recipes.
const DEBIAN: &str = "debian:bookworm-slim";

/// The images that were replaced by stand-ins, and the missing ones.
#[derive(Debug, Default)]
pub struct Images {
    /// Names of stand-ins.
    pub stand_ins: Vec<String>,
    /// Names of images that are not available.
    pub missing: Vec<String>,
}

/// Gets all images into the engine. The images from which stand-ins are made come first.
pub fn ensure(wanted: BTreeSet<String>) -> Result<Images> {
    let mut images = Images::default();
    let (first, rest): (Vec<String>, Vec<String>) = wanted
        .into_iter()
        .partition(|name| name.starts_with("debian:"));
    for name in first.into_iter().chain(rest) {
        images.have(name)?;
    }
    for name in &images.stand_ins {
        say(format!(
            "{name}: a stand-in from packages; `docker image rm {name}` drops it"
        ));
    }
    for name in &images.missing {
        say(format!("{name}: no registry has it for us, and no package"));
    }
    Ok(images)
}

/// Gets an image that no registry has; a recipe makes it from Debian's.
pub fn ensure_made(name: &str, recipe: Recipe) -> Result<()> {
    ensure(BTreeSet::from([DEBIAN.to_owned()]))?;
    if engine::label(name, stand_ins::LABEL) != Some(recipe.digest()?) {
        let context = || format!("cannot make the image `{name}`");
        recipe.make(name).with_context(context)?;
    }
    Ok(())
}

impl Images {
    fn have(&mut self, name: String) -> Result<()> {
        let made_as = engine::label(&name, stand_ins::LABEL);
        let is_real = made_as.as_deref().is_some_and(str::is_empty);
        if is_real || made_as.is_none() && engine::pull(&name) {
            return Ok(());
        }
        let Some(recipe) = Recipe::of(&name) else {
            self.missing.push(name);
            return Ok(());
        };
        if made_as != Some(recipe.digest()?) {
            let context = || format!("cannot make a stand-in for `{name}`");
            recipe.make(&name).with_context(context)?;
        }
        self.stand_ins.push(name);
        Ok(())
    }
}

/// The images that a Dockerfile starts from.
pub fn bases(dockerfile: &str) -> BTreeSet<String> {
    let from = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "));
    let words = from.map(|rest| rest.split_whitespace().collect::<Vec<_>>());
    let words: Vec<Vec<&str>> = words.collect();
    let stages: BTreeSet<&str> = words
        .iter()
        .filter_map(|words| words.get(2))
        .copied()
        .collect();
    let bases = words.iter().filter_map(|words| words.first());
    bases
        .filter(|base| !stages.contains(*base))
        .map(|base| (*base).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_no_bases() {
        let bases =
            bases("FROM rust:1 AS build\nRUN x\nFROM debian:12 AS base\nFROM base AS gpu\n");
        assert_eq!(
            bases.into_iter().collect::<Vec<_>>(),
            ["debian:12", "rust:1"]
        );
    }

    #[test]
    fn what_the_image_is_built_from_has_stand_ins() {
        let dockerfile = include_str!("../../../Dockerfile");
        for base in bases(dockerfile) {
            assert!(Recipe::of(&base).is_some(), "{base}");
        }
    }
}
