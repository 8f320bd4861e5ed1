//! The shapes of records, from the file itself.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use sextant_formats::{
    npy::{BEGINNING_BYTES, Header},
    zip::Archive,
};
use sextant_types::Names;

use super::{Invalid, LABELS, Limits, bundle, jsonl};

/// The shape of a record of each input, by name; `None` for a dimension that differs between records.
pub type RecordShapes = BTreeMap<String, Vec<Option<u64>>>;

/// The shape of a record of each input. Arrays of an `.npz` and records of JSONL show it; the columns of CSV do not, so
/// the result is then empty. Inputs whose records differ in rank are left out.
///
/// # Errors
/// If the file cannot be read.
pub fn record_shapes(bytes: &Bytes, limits: Limits) -> Result<RecordShapes, Invalid> {
    let bundle = bundle::open(bytes)?;
    let whole = || (bytes.clone(), Names::new());
    let (file, names) = bundle.map_or_else(whole, bundle::Bundle::into_file);
    let first = file.iter().find(|byte| !byte.is_ascii_whitespace());
    let mut shapes = match first {
        _ if sextant_formats::zip::is_archive(&file) => of_arrays(&file)?,
        Some(b'{') => of_lines(&file, limits)?,
        _ => BTreeMap::new(),
    };
    for (old, new) in names {
        if let Some(shape) = shapes.remove(&old) {
            shapes.entry(new).or_insert(shape);
        }
    }
    Ok(shapes)
}

fn of_arrays(file: &Bytes) -> Result<RecordShapes, Invalid> {
    let archive = Archive::open(file.clone()).map_err(|it| Invalid::Archive(it.to_string()))?;
    let mut shapes = BTreeMap::new();
    for entry in archive.entries() {
        let name = entry.name.strip_suffix(".npy");
        let Some(name) = name.filter(|name| *name != LABELS) else {
            continue;
        };
        let array = archive.beginning(entry, BEGINNING_BYTES);
        let array = array.map_err(|problem| Invalid::Entry {
            name: name.to_owned(),
            why: problem.to_string(),
        })?;
        let header = Header::of_any_order(&array).map_err(|problem| Invalid::Array {
            name: name.to_owned(),
            problem,
        })?;
        let row = header.shape.iter().skip(1).map(|size| Some(*size as u64));
        shapes.insert(name.to_owned(), row.collect());
    }
    Ok(shapes)
}

fn of_lines(file: &Bytes, limits: Limits) -> Result<RecordShapes, Invalid> {
    let mut shapes: BTreeMap<String, Option<Vec<Option<u64>>>> = BTreeMap::new();
    for inputs in jsonl::inputs(file, limits) {
        for (name, value) in inputs? {
            let sizes = value.0.into_iter().map(|size| Some(size as u64));
            let sizes: Vec<Option<u64>> = sizes.collect();
            let known = shapes.entry(name).or_insert_with(|| Some(sizes.clone()));
            *known = known.take().and_then(|known| common(&known, &sizes));
        }
    }
    let known = shapes.into_iter();
    Ok(known.filter_map(|(name, it)| Some((name, it?))).collect())
}

/// The lengths along the first element of each level of a nested list; the elements are skipped.
#[derive(Default)]
pub(super) struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Levels)
    }
}

struct Levels;

impl<'de> Visitor<'de> for Levels {
    type Value = Shape;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an element or a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let Some(Shape(mut inner)) = items.next_element()? else {
            return Ok(Shape(vec![0]));
        };
        let mut length = 1;
        while items.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        inner.insert(0, length);
        Ok(Shape(inner))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Shape, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Shape::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::default())
    }
}

/// The common part of two shapes of one rank.
fn common(one: &[Option<u64>], other: &[Option<u64>]) -> Option<Vec<Option<u64>>> {
    let both = one.iter().zip(other);
    let both = both.map(|(a, b)| a.filter(|_| a == b));
    (one.len() == other.len()).then(|| both.collect())
}
