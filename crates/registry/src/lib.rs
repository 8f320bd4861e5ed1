//! Applications, models, variants and jobs in SQL.
