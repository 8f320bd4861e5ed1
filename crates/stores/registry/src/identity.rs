//! The name that the registry shares with its artefact store.

use sextant_types::StoreId;

use crate::{Entity, Error, Registry, rows::Columns, sql};

impl Registry {
    /// The name; `None` if it has none yet.
    pub async fn identity(&self) -> Result<Option<StoreId>, Error> {
        let row = self.read().await?.row((&sql::IDENTITY).into()).await?;
        let read = |row| Columns::new(&row, Entity::Identity, "id")?.parse("id");
        row.map(read).transpose()
    }

    /// Sets the name if there is none, and returns the present one: concurrent callers all get the same name.
    pub async fn identify(&self, id: StoreId) -> Result<StoreId, Error> {
        let mut tx = self.begin().await?;
        tx.run(sql::IDENTIFY.bind(id.to_string())).await?;
        let row = tx.one((&sql::IDENTITY).into()).await?;
        let known = Columns::new(&row, Entity::Identity, "id")?.parse("id")?;
        tx.commit().await?;
        Ok(known)
    }

    /// Replaces the name.
    pub async fn rename(&self, id: StoreId) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        tx.run(sql::RENAME.bind(id.to_string())).await?;
        tx.commit().await
    }
}
