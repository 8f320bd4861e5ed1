//! Reading JSON bodies so that errors say where the mistake is.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{DeserializeOwned, Error, SeqAccess, Visitor},
};
use serde_json::Deserializer;
use sextant_types::Code;

use crate::problem::{Position, Problem};

mod objects;
mod words;

use objects::Objects;

/// Reads a body that may borrow from itself. A body that is refused is read a second time, with the
/// path recorded: only bad requests pay for good messages.
pub fn borrowed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    read(body).map_err(|error| explain::<T>(body, &error))
}

/// Reads a body into an owned value.
pub fn owned<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    borrowed(body)
}

/// Reads an optional member. It may be `null`, because many clients write that for a member that
/// they leave out.
pub fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Reads a list of at most `N` members: each takes more memory than its text.
///
/// # Errors
/// If there are more.
pub fn at_most<'de, T, D, const N: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    from.deserialize_seq(AtMost::<T, N>(PhantomData))
}

/// The same for an optional list, which may be `null`.
///
/// # Errors
/// If there are more.
pub fn at_most_or_default<'de, T, D, const N: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    let list = Option::<Bounded<T, N>>::deserialize(from)?;
    Ok(list.map_or_else(Vec::new, |Bounded(all)| all))
}

/// A list that has been read with a bound.
struct Bounded<T, const N: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Bounded<T, N> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        at_most::<T, D, N>(from).map(Self)
    }
}

/// Reads a list with a bound.
struct AtMost<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for AtMost<T, N> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {N}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            if all.len() == N {
                return Err(A::Error::invalid_length(N + 1, &self));
            }
            all.push(one);
        }
        Ok(all)
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    let mut deserializer = Deserializer::from_slice(body);
    let read = T::deserialize(Objects(&mut deserializer))?;
    deserializer.end()?;
    Ok(read)
}

fn explain<'a, T: Deserialize<'a>>(body: &'a [u8], error: &serde_json::Error) -> Problem {
    if body.starts_with(&[0x1f, 0x8b]) {
        let detail = "the body is compressed, and no `Content-Encoding` says so: it may be `gzip` or `deflate`";
        return Problem::new(Code::InvalidRequest, detail);
    }
    let mut deserializer = Deserializer::from_slice(body);
    let field = serde_path_to_error::deserialize::<_, T>(Objects(&mut deserializer))
        .err()
        .and_then(|error| words::place(&error.path().to_string()));
    let position = Position {
        line: error.line(),
        column: error.column(),
    };
    let problem = Problem::new(Code::InvalidRequest, words::plain(&error.to_string()));
    problem.at(position, field)
}
