//! A view that outlives the store's content.
