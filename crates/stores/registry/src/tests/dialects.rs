//! The two dialects describe the same tables.

use std::{collections::BTreeMap, fs, path::Path};

/// A column that both dialects should have.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Column {
    kind: &'static str,
    not_null: bool,
    key: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Schema {
    columns: BTreeMap<String, Column>,
    /// Constraints of whole tables and indexes, as text.
    others: Vec<String>,
}

/// The kind of a type. JSON is text in SQLite, so documents count as text in both.
fn kind(dialect: &str, name: &str) -> &'static str {
    match (dialect, name) {
        (_, "text") | ("postgres", "json") => "text",
        ("sqlite", "integer") | ("postgres", "bigint") => "integer",
        ("sqlite", "real") | ("postgres", "double") => "real",
        ("sqlite", "blob") | ("postgres", "bytea") => "bytes",
        _ => panic!("type `{name}` is not known in {dialect}"),
    }
}

fn migrations(dialect: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../migrations")
        .join(dialect);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Reads the plain statements that migrations are made of.
fn schema(dialect: &str, sql: &str) -> Schema {
    let mut schema = Schema::default();
    let is_code = |line: &&str| !line.trim().starts_with("--");
    let code: Vec<_> = sql.lines().filter(is_code).collect();
    for statement in code.join(" ").split(';') {
        let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        // SQLite sorts names byte by byte by default.
        let words = words.replace(" collate \"C\"", "");
        let words = words.replace("double precision", "double");
        let words = words.strip_suffix(" strict").unwrap_or(&words);
        schema.apply(dialect, words);
    }
    schema.others.sort();
    schema
}

impl Schema {
    fn apply(&mut self, dialect: &str, statement: &str) {
        if let Some(table) = statement.strip_prefix("create table ") {
            read_table(dialect, table, self);
        } else if let Some(table) = statement.strip_prefix("drop table ") {
            self.columns.retain(|name, _| table_of(name) != table);
            self.others.retain(|text| table_of(text) != table);
        } else if let Some(change) = statement.strip_prefix("alter table ") {
            let (table, change) = change.split_once(' ').expect("a change of a table");
            self.alter(dialect, table, change);
        } else if !statement.is_empty() && !statement.starts_with("insert into ") {
            self.others.push(statement.to_owned());
        }
    }

    fn alter(&mut self, dialect: &str, table: &str, change: &str) {
        let constraint = |name: &str| {
            let column = name.strip_prefix(&format!("{table}_"));
            let column = column.and_then(|rest| rest.strip_suffix("_check"));
            format!("{table}.{}:", column.expect("a column's constraint"))
        };
        if let Some(to) = change.strip_prefix("rename to ") {
            self.rename(table, to);
        } else if let Some(column) = change.strip_prefix("add column ") {
            read_table(dialect, &format!("{table} ({column})"), self);
        } else if let Some(name) = change.strip_prefix("drop constraint ") {
            let dropped = constraint(name);
            self.others.retain(|text| !text.starts_with(&dropped));
        } else if let Some(added) = change.strip_prefix("add constraint ") {
            let (name, check) = added.split_once(' ').expect("a name and a check");
            self.others.push(format!("{} {check}", constraint(name)));
        } else {
            panic!("`alter table {table} {change}` is not known");
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let renamed = |text: String| match table_of(&text) == from && !text.contains(" index ") {
            true => text.replacen(from, to, 1),
            false => text.replace(&format!(" on {from} ("), &format!(" on {to} (")),
        };
        let columns = std::mem::take(&mut self.columns).into_iter();
        self.columns = columns
            .map(|(name, column)| (renamed(name), column))
            .collect();
        let others = std::mem::take(&mut self.others).into_iter();
        self.others = others.map(renamed).collect();
    }
}

/// The table that a column, a constraint or an index belongs to.
fn table_of(text: &str) -> &str {
    let name = match text.split_once(" index ") {
        Some((_, index)) => index.split_once(" on ").expect("an index has a table").1,
        None => text,
    };
    let end = name.find(['.', ':', ' ']).unwrap_or(name.len());
    &name[..end]
}

fn read_table(dialect: &str, table: &str, schema: &mut Schema) {
    let (name, body) = table.split_once(" (").expect("a table has columns");
    let body = body.strip_suffix(')').expect("a table ends");
    for item in split_outside_brackets(body) {
        let words: Vec<_> = item.split_whitespace().collect();
        if words[0] == "primary" || words[0] == "foreign" || words[0] == "unique" {
            schema.others.push(format!("{name}: {item}"));
            continue;
        }
        let rest = words[2..].join(" ");
        let column = Column {
            kind: kind(dialect, words[1]),
            not_null: rest.starts_with("not null"),
            key: rest.contains("primary key"),
        };
        let constraint = rest.replace("not null", "").replace("primary key", "");
        if !constraint.trim().is_empty() {
            schema
                .others
                .push(format!("{name}.{}: {}", words[0], constraint.trim()));
        }
        let twice = schema
            .columns
            .insert(format!("{name}.{}", words[0]), column);
        assert_eq!(twice, None, "{dialect} has {name}.{} twice", words[0]);
    }
}

fn split_outside_brackets(body: &str) -> Vec<String> {
    let mut depth = 0;
    let mut items = vec![String::new()];
    for letter in body.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if letter == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(letter);
        }
    }
    items
        .into_iter()
        .map(|item| item.trim().to_owned())
        .collect()
}

#[test]
fn both_have_the_same_migrations_columns_and_constraints() {
    let (sqlite, postgres) = (migrations("sqlite"), migrations("postgres"));
    let names = |files: &[(String, String)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&sqlite), names(&postgres));
    assert!(!sqlite.is_empty());
    // A change in one dialect may be a rewrite in the other: the result counts.
    let mut joined = [String::new(), String::new()];
    for ((name, left), (_, right)) in sqlite.iter().zip(&postgres) {
        joined[0] += left;
        joined[1] += right;
        let [left, right] = &joined;
        assert_eq!(schema("sqlite", left), schema("postgres", right), "{name}");
    }
}

#[test]
fn the_reader_sees_a_difference() {
    let one = "create table a (id text not null primary key, n integer check (n in (1, 2)));";
    let read = schema("sqlite", one);
    assert_eq!(read.columns.len(), 2);
    assert_eq!(read.others, ["a.n: check (n in (1, 2))"]);
    for other in [
        "create table a (id text not null primary key, n bigint check (n in (1, 3)));",
        "create table a (id text not null primary key, n text check (n in (1, 2)));",
        "create table a (id text not null, n bigint check (n in (1, 2)));",
        "create table a (id text primary key, n bigint check (n in (1, 2)));",
        "create table a (id text not null primary key, m bigint check (m in (1, 2)));",
    ] {
        assert_ne!(read, schema("postgres", other), "{other}");
    }
    let same = "create table a (id text not null primary key, n bigint check (n in (1, 2)));";
    assert_eq!(read, schema("postgres", same));
    let again = "create table b (id text not null primary key, n integer); drop table a; \
                insert into b (id) select id from a; alter table b rename to a;";
    let altered = "alter table a drop constraint a_n_check;";
    let again = schema("sqlite", &format!("{one} {again}"));
    assert_eq!(again, schema("postgres", &format!("{same} {altered}")));
    assert_ne!(again, read);
}
