//! The keys that sign the tokens of answers. All front ends share them.

use crate::{
    Entity, Error, Registry,
    rows::{Columns, int},
    sql,
};

/// A key that signs tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct FeedbackKey {
    /// Grows with each key.
    pub number: u32,
    /// 64 hexadecimal digits.
    pub secret: String,
    /// When it was made, ms since the Unix epoch.
    pub created_ms: u64,
    /// From when on it signs tokens, ms since the Unix epoch.
    pub from_ms: u64,
}

impl Registry {
    /// The keys, the oldest first.
    pub async fn feedback_keys(&self) -> Result<Vec<FeedbackKey>, Error> {
        let rows = self
            .read()
            .await?
            .rows((&sql::FEEDBACK_KEYS).into())
            .await?;
        let read = |row| {
            let columns = Columns::new(row, Entity::Feedback, "secret")?;
            Ok(FeedbackKey {
                number: columns.count("number")?,
                secret: columns.text("secret")?,
                created_ms: columns.count("created_ms")?,
                from_ms: columns.count("from_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Stores a key, unless a key of that number exists: of several concurrent writers the first one wins.
    pub async fn put_feedback_key(&self, key: &FeedbackKey) -> Result<(), Error> {
        let put = sql::PUT_FEEDBACK_KEY
            .bind(i64::from(key.number))
            .bind(key.secret.as_str())
            .bind(int(key.created_ms))
            .bind(int(key.from_ms));
        let mut tx = self.begin_rows().await?;
        tx.run(put).await?;
        tx.commit().await
    }

    /// Removes the keys with numbers below this one.
    pub async fn forget_feedback_keys(&self, below: u32) -> Result<(), Error> {
        let mut tx = self.begin_rows().await?;
        tx.run(sql::FORGET_FEEDBACK_KEYS.bind(i64::from(below)))
            .await?;
        tx.commit().await
    }
}

impl std::fmt::Debug for FeedbackKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedbackKey")
            .field("number", &self.number)
            .field("from_ms", &self.from_ms)
            .finish_non_exhaustive()
    }
}
