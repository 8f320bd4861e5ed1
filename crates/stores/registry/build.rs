//! Lists the migrations, so that the binary contains them: a new file in `migrations/` needs no other change.

use std::{env, error::Error, fmt::Write, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../../migrations");
    let out = env::var("OUT_DIR")?;
    for dialect in ["sqlite", "postgres"] {
        let folder = root.join(dialect);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut list = String::from("[\n");
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let (version, description) = name
                .and_then(|name| name.split_once('_'))
                .ok_or_else(|| format!("`{}` is not named `NNNN_what.sql`", path.display()))?;
            let version: i64 = version.parse()?;
            let description = description.replace('_', " ");
            let path = path.canonicalize()?;
            writeln!(
                list,
                "({version}, {description:?}, include_str!({path:?})),"
            )?;
        }
        list.push(']');
        fs::write(Path::new(&out).join(format!("{dialect}.rs")), list)?;
    }
    Ok(())
}
