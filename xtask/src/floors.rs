//! The floors of the workspace: which folders lie on which, from below.

use std::path::Path;

/// One of them.
pub struct Floor {
    /// As ARCHITECTURE.md calls it.
    pub name: &'static str,
    /// Its folders; an inner one may lie on another floor.
    pub folders: &'static [&'static str],
}

/// They reach each other by the traits and messages of `crates/wire` alone. Packages inside the folder of one are parts
/// of it.
pub const ROLES: &[&str] = &["worker", "dispatcher", "autoscaler", "variant-gen", "api"];

/// Nothing outside it is built of it; tests of decisions may run the policies of others.
pub const LABORATORY: &str = "lab";

/// From below, as ARCHITECTURE.md has them from above. Packages of one floor may be built of each other.
pub const FLOORS: &[Floor] = &[
    floor("types", &["crates/types"]),
    floor("decisions", &["crates/decide"]),
    floor(
        "engines and providers",
        &["crates/engines", "crates/providers"],
    ),
    floor("stores", &["crates/stores"]),
    floor("picture", &["crates/picture"]),
    floor("wire", &["crates/wire"]),
    floor("formats", &["crates/formats"]),
    floor(
        "surroundings of a query",
        &["crates/pages", "crates/pipeline", "crates/python"],
    ),
    floor("roles", ROLES),
    floor("configuration", &["server/config"]),
    floor("simulation and load", &["crates/bench-client", "simulator"]),
    floor("program", &["server"]),
    floor("laboratory", &[LABORATORY]),
    floor("proof", &["crates/test-servers", "fuzz", "tests", "xtask"]),
];

const fn floor(name: &'static str, folders: &'static [&'static str]) -> Floor {
    Floor { name, folders }
}

/// The number of the floor on which a folder or file lies.
pub fn of(path: &Path) -> Option<usize> {
    let floors = FLOORS.iter().enumerate();
    let around = floors.flat_map(|(at, of)| of.folders.iter().map(move |it| (at, Path::new(it))));
    let around = around.filter(|(_, it)| path.starts_with(it));
    let innermost = around.max_by_key(|(_, it)| it.components().count());
    innermost.map(|(at, _)| at)
}
