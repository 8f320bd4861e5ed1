//! `--input name=value`: a tensor from a file, from standard input or from the line itself.

use std::{
    fs,
    io::{self, Read},
    str::FromStr,
};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_formats::{json::values, npy};

use super::Error;

/// One `--input`, not yet read.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    name: String,
    source: Source,
}

#[derive(Debug, Clone, PartialEq)]
enum Source {
    File(String),
    StandardInput,
    Line(String),
}

/// What the server knows about an input of the model: fills in what a JSON array does not tell.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct InputSpec {
    /// Name in the graph.
    pub name: String,
    /// `FP32`, ..
    pub datatype: String,
    /// Dimensions, -1 where any size is accepted.
    pub shape: Vec<i64>,
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .ok_or("write `name=@file`, `name=-` or `name=[1, 2, ..]`")?;
        let source = match value.strip_prefix('@') {
            Some("-") => Source::StandardInput,
            Some(path) => Source::File(path.to_owned()),
            None if value == "-" => Source::StandardInput,
            None => Source::Line(value.to_owned()),
        };
        Ok(Self {
            name: name.to_owned(),
            source,
        })
    }
}

impl Input {
    /// Reads the value and makes it what the API takes.
    pub fn tensor(&self, known: &[InputSpec]) -> Result<Value, Error> {
        let bytes = self.read()?;
        let known = known.iter().find(|known| known.name == self.name);
        self.interpret(&bytes, known)
            .map_err(|reason| Error::Input {
                name: self.name.clone(),
                reason,
            })
    }

    fn read(&self) -> Result<Vec<u8>, Error> {
        let (path, read) = match &self.source {
            Source::Line(text) => return Ok(text.clone().into_bytes()),
            Source::File(path) => (path.as_str(), fs::read(path)),
            Source::StandardInput => {
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes);
                ("standard input", read)
            }
        };
        read.map_err(|source| Error::Io {
            path: path.into(),
            source,
        })
    }

    fn interpret(&self, bytes: &[u8], known: Option<&InputSpec>) -> Result<Value, String> {
        if bytes.starts_with(npy::MAGIC) {
            let file = Bytes::copy_from_slice(bytes);
            let tensor = npy::read(&file).map_err(|problem| problem.to_string())?;
            let data = values(&tensor);
            if data.contains(&Value::Null) {
                return Err("it holds NaN or infinity, which JSON cannot carry".to_owned());
            }
            let shape = tensor.shape().iter().map(|dim| *dim as u64).collect();
            let data_type = tensor.data_type().to_string();
            return Ok(self.document(&with_batch(shape, known), &data_type, &data));
        }
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("neither a NumPy array nor JSON: {error}"))?;
        match value {
            Value::Object(mut tensor) => {
                tensor.insert("name".to_owned(), json!(self.name));
                Ok(Value::Object(tensor))
            }
            nested => self.nested(&nested, known),
        }
    }

    /// A nested array: its shape is what it looks like, its type what the model takes.
    fn nested(&self, nested: &Value, known: Option<&InputSpec>) -> Result<Value, String> {
        let mut data = Vec::new();
        let shape = flatten(nested, &mut data)?;
        let data_type = match known {
            Some(known) => known.datatype.as_str(),
            None => guess(&data),
        };
        Ok(self.document(&with_batch(shape, known), data_type, &data))
    }

    fn document(&self, shape: &[u64], data_type: &str, data: &[Value]) -> Value {
        json!({"name": self.name, "shape": shape, "datatype": data_type, "data": data})
    }
}

/// A lone record gets the batch dimension that the model has in front.
fn with_batch(mut shape: Vec<u64>, known: Option<&InputSpec>) -> Vec<u64> {
    if known.is_some_and(|known| {
        known.shape.len() == shape.len() + 1 && known.shape.first().is_some_and(|dim| *dim <= 1)
    }) {
        shape.insert(0, 1);
    }
    shape
}

fn flatten(value: &Value, data: &mut Vec<Value>) -> Result<Vec<u64>, String> {
    let Value::Array(rows) = value else {
        data.push(value.clone());
        return Ok(Vec::new());
    };
    let mut shape = vec![rows.len() as u64];
    let mut row_shape: Option<Vec<u64>> = None;
    for row in rows {
        let this = flatten(row, data)?;
        match &row_shape {
            Some(first) if *first != this => {
                return Err(format!("ragged: rows of shape {first:?} and {this:?}"));
            }
            Some(_) => {}
            None => row_shape = Some(this),
        }
    }
    shape.extend(row_shape.unwrap_or_default());
    Ok(shape)
}

fn guess(data: &[Value]) -> &'static str {
    match data {
        [Value::Bool(_), ..] => "BOOL",
        [Value::String(_), ..] => "BYTES",
        numbers if !numbers.is_empty() && numbers.iter().all(Value::is_i64) => "INT64",
        _ => "FP32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels() -> InputSpec {
        InputSpec {
            name: "pixels".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![-1, 3],
        }
    }

    fn line(text: &str) -> Input {
        text.parse().expect("an input")
    }

    #[test]
    fn a_line_holds_a_nested_array() {
        let input = line("pixels=[[1, 2, 3], [4, 5, 6]]");
        let tensor = input.tensor(&[pixels()]).expect("a tensor");
        let expected = json!({
            "name": "pixels", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]
        });
        assert_eq!(tensor, expected);
    }

    #[test]
    fn a_lone_record_becomes_a_batch_of_one() {
        let tensor = line("pixels=[1, 2, 3]")
            .tensor(&[pixels()])
            .expect("a tensor");
        assert_eq!(tensor["shape"], json!([1, 3]));
        let tensor = line("pixels=[1, 2, 3]").tensor(&[]).expect("a tensor");
        assert_eq!(
            (&tensor["shape"], &tensor["datatype"]),
            (&json!([3]), &json!("INT64"))
        );
    }

    #[test]
    fn a_whole_tensor_passes_as_it_is() {
        let input = line(r#"x={"shape": [1], "datatype": "BYTES", "data": ["a"]}"#);
        let tensor = input.tensor(&[pixels()]).expect("a tensor");
        assert_eq!(
            (&tensor["name"], &tensor["datatype"]),
            (&json!("x"), &json!("BYTES"))
        );
    }

    #[test]
    fn mistakes_are_told() {
        assert!("pixels".parse::<Input>().is_err());
        assert!("=[1]".parse::<Input>().is_err());
        let ragged = line("x=[[1, 2], [3]]").tensor(&[]).expect_err("ragged");
        assert!(ragged.to_string().contains("ragged"));
        let text = line("x=pixels.npy")
            .tensor(&[])
            .expect_err("no JSON")
            .to_string();
        assert!(text.contains("neither a NumPy array nor JSON"), "{text}");
        assert!(line("x=@/no/such/file").tensor(&[]).is_err());
    }
}
