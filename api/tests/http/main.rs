//! The wire format, through the complete router and without a socket.

mod auth;
mod bodies;
mod budgets;
mod changes;
mod connections;
mod costs;
mod documents;
mod double;
mod errors;
mod forms;
mod places;
mod protocol;
mod queries;
mod rates;
mod resources;
mod scaling;
mod served;
mod serving;
mod storage;
mod tls;
mod worker;
mod workers;
