//! Converts between Rust values and columns.

use std::{fmt::Display, str::FromStr};

use serde::{Serialize, de::DeserializeOwned};
use sqlx::Row as _;

use crate::{
    Entity, Error, Failure,
    database::{Json, Row},
};
use sextant_types::Code;

/// A row whose columns are read with detailed errors.
pub(crate) struct Columns<'r> {
    row: &'r Row,
    entity: Entity,
    id: String,
}

/// The value of a column as a type that both databases know.
macro_rules! value {
    ($row:expr, $column:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($column).map_err(Error::from),
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => row.try_get($column).map_err(Error::of_server),
        }
    };
}

pub(crate) use value;

impl<'r> Columns<'r> {
    pub(crate) fn new(row: &'r Row, entity: Entity, key: &str) -> Result<Self, Error> {
        let id = value!(row, key)?;
        Ok(Self { row, entity, id })
    }

    pub(crate) fn text(&self, column: &'static str) -> Result<String, Error> {
        value!(self.row, column)
    }

    pub(crate) fn optional_text(&self, column: &'static str) -> Result<Option<String>, Error> {
        value!(self.row, column)
    }

    pub(crate) fn count<T: TryFrom<i64, Error: Display>>(
        &self,
        column: &'static str,
    ) -> Result<T, Error> {
        let value: i64 = value!(self.row, column)?;
        T::try_from(value).map_err(|error| self.corrupt(column, error))
    }

    pub(crate) fn optional_count<T: TryFrom<i64, Error: Display>>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, Error> {
        let value: Option<i64> = value!(self.row, column)?;
        value
            .map(|value| T::try_from(value).map_err(|error| self.corrupt(column, error)))
            .transpose()
    }

    pub(crate) fn optional_real(&self, column: &'static str) -> Result<Option<f64>, Error> {
        value!(self.row, column)
    }

    pub(crate) fn real(&self, column: &'static str) -> Result<f64, Error> {
        let value = self.optional_real(column)?;
        value.ok_or_else(|| self.corrupt(column, "it is null"))
    }

    pub(crate) fn parse<T: FromStr<Err: Display>>(&self, column: &'static str) -> Result<T, Error> {
        self.text(column)?
            .parse()
            .map_err(|error| self.corrupt(column, error))
    }

    pub(crate) fn parse_optional<T: FromStr<Err: Display>>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, Error> {
        self.optional_text(column)?
            .map(|text| text.parse().map_err(|error| self.corrupt(column, error)))
            .transpose()
    }

    /// A value from a closed set of names.
    pub(crate) fn one_of<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let text = self.text(column)?;
        parse(&text).ok_or_else(|| self.corrupt(column, format!("unknown value `{text}`")))
    }

    /// The same for a column that may be null.
    pub(crate) fn optional_one_of<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.optional_text(column)? else {
            return Ok(None);
        };
        let parsed = parse(&text);
        let unknown = || self.corrupt(column, format!("unknown value `{text}`"));
        parsed.ok_or_else(unknown).map(Some)
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Error> {
        let document = self.optional_json(column)?;
        document.ok_or_else(|| self.corrupt(column, "it is null"))
    }

    pub(crate) fn optional_json<T: DeserializeOwned>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, Error> {
        let document = self.optional_json_text(column)?;
        document
            .map(|text| serde_json::from_str(&text).map_err(|error| self.corrupt(column, error)))
            .transpose()
    }

    /// A document as it was written.
    pub(crate) fn json_text(&self, column: &'static str) -> Result<String, Error> {
        let document = self.optional_json_text(column)?;
        document.ok_or_else(|| self.corrupt(column, "it is null"))
    }

    fn optional_json_text(&self, column: &'static str) -> Result<Option<String>, Error> {
        match self.row {
            Row::Sqlite(row) => Ok(row.try_get(column)?),
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => {
                let found: Option<Json> = row.try_get(column).map_err(Error::of_server)?;
                Ok(found.map(|document| document.0))
            }
        }
    }

    /// The pair of error columns. A code that this version does not know is read as an internal
    /// error.
    pub(crate) fn failure(&self) -> Result<Option<Failure>, Error> {
        let code = self.optional_text("error_code")?;
        let message = self.optional_text("error_message")?.unwrap_or_default();
        Ok(code.map(|code| Failure {
            code: Code::parse(&code).unwrap_or(Code::Internal),
            message,
        }))
    }

    fn corrupt(&self, column: &'static str, reason: impl Display) -> Error {
        Error::Corrupt {
            entity: self.entity,
            id: self.id.clone(),
            column,
            reason: reason.to_string(),
        }
    }
}

/// Writes a document and reads it back: JSON turns a NaN into a null, which would make the row
/// unreadable later.
pub(crate) fn document<T>(entity: Entity, id: impl Display, value: &T) -> Result<Json, Error>
where
    T: Serialize + DeserializeOwned,
{
    let unstorable = |error: serde_json::Error| Error::Unstorable {
        entity,
        id: id.to_string(),
        reason: error.to_string(),
    };
    let text = serde_json::to_string(value).map_err(unstorable)?;
    serde_json::from_str::<T>(&text).map_err(unstorable)?;
    Ok(Json(text))
}

/// A count or a time as an SQL integer.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
