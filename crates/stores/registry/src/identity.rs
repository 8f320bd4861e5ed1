//! The name that the registry has in common with its artefact store.

use sextant_types::StoreId;

use crate::{Entity, Error, Registry, rows::Columns, sql};

impl Registry {
    /// The name; `None` where it has none yet.
    pub async fn identity(&self) -> Result<Option<StoreId>, Error> {
        let row = self.read().await?.row((&sql::IDENTITY).into()).await?;
        let read = |row| Columns::new(&row, Entity::Identity, "id")?.parse("id");
        row.map(read).transpose()
    }

    /// Gives it a name where it has none, and returns the one that it then has: of several who do so at once all get the
    /// same.
    pub async fn identify(&self, id: StoreId) -> Result<StoreId, Error> {
        let mut tx = self.begin().await?;
        tx.run(sql::IDENTIFY.bind(id.to_string())).await?;
        let row = tx.one((&sql::IDENTITY).into()).await?;
        let known = Columns::new(&row, Entity::Identity, "id")?.parse("id")?;
        tx.commit().await?;
        Ok(known)
    }

    /// Gives it another name.
    pub async fn rename(&self, id: StoreId) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        tx.run(sql::RENAME.bind(id.to_string())).await?;
        tx.commit().await
    }
}
